"""The models window and the change of model, over a scripted engine and a scripted desk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtTest import QTest

from app.models import wording
from app.models.dialog import ModelsDialog
from app.theme import Theme
from engine import (
    Added,
    EngineState,
    ErrorInfo,
    Fit,
    Fitted,
    Found,
    HubModel,
    Listed,
    ModelEntry,
    Moved,
    Offer,
    Offered,
    Said,
    TransferProgress,
    TransferState,
)
from engine.catalog.fit import Verdict
from engine.catalog.hub import HubFile
from engine.catalog.registry import Kind
from tests.app.conftest import settle

MIB = 1 << 20
ENTRIES = (
    ModelEntry("starter", "starter", Kind.STARTER, 540 * MIB, True, True),
    ModelEntry("org/Small-GGUF", "/models/Small.Q4_K_M.gguf", Kind.GGUF, 240 * MIB, True, True),
    ModelEntry("huge", "/elsewhere/huge", Kind.FOLDER, 90_000 * MIB, True, False),
    ModelEntry("gone", "/elsewhere/gone", Kind.FOLDER, 0, False, False),
)


def make_fit(verdict: Verdict, weights: int) -> Fit:
    return Fit(verdict, weights * MIB, 300 * MIB, 80 * MIB, 0, weights * MIB, 512 * MIB, 8000 * MIB, "cpu", "16-bit", 8, 4096, (8, 4096))


class FakeDesk:
    """Remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.asked.append((name, *args))


@pytest.fixture
def window(make_window: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    made, engine = make_window()
    return made, engine


@pytest.fixture
def dialog(window: Any) -> Any:
    made, engine = window
    desk = FakeDesk()
    shown = ModelsDialog(made.models, Theme.dark(), made, desk)
    made.models._dialog = shown
    shown.show_snapshot(engine.snapshot)
    shown.show()
    yield shown, desk, engine
    shown.close()


def tell(dialog: ModelsDialog, *answers: object) -> None:
    for answer in answers:
        dialog.hear(answer)
    settle()


def fill(dialog: ModelsDialog) -> None:
    tell(
        dialog,
        Listed(ENTRIES, "/cache/models"),
        Fitted("starter", make_fit(Verdict.YES, 310)),
        Fitted("/models/Small.Q4_K_M.gguf", make_fit(Verdict.TIGHT, 7000)),
        Fitted("/elsewhere/huge", make_fit(Verdict.NO, 90_000)),
    )


def test_each_model_has_its_fit(dialog: Any) -> None:
    shown, _, _ = dialog
    fill(shown)
    assert [row.badge.text() for row in shown.machine.rows.values()] == ["Fits", "Tight", "Does not fit", ""]
    assert "Does not fit: it needs" in shown.machine.rows["/elsewhere/huge"].badge.toolTip()
    assert "300" not in shown.machine.rows["starter"].words.text() and "8 × 4,096 tokens" in shown.machine.rows["starter"].words.text()
    assert shown.machine.rows["starter"].load.text() == "Loaded" and not shown.machine.rows["starter"].load.isEnabled()
    assert not shown.machine.rows["/elsewhere/gone"].load.isEnabled() and "not there" in shown.machine.rows["/elsewhere/gone"].words.text()


def test_a_faulty_model_says_why_and_cannot_be_loaded(dialog: Any) -> None:
    shown, _, _ = dialog
    fill(shown)
    tell(shown, Fitted("/elsewhere/huge", None, ErrorInfo("truncated", "model.safetensors is incomplete.", "Download it again.")))
    row = shown.machine.rows["/elsewhere/huge"]
    assert row.badge.text() == "Faulty" and row.words.text() == "model.safetensors is incomplete. Download it again."
    assert not row.load.isEnabled()


def test_load_gives_the_chat_the_model_and_loads_it(dialog: Any, window: Any) -> None:
    shown, _, engine = dialog
    made, _ = window
    fill(shown)
    QTest.mouseClick(shown.machine.rows["/models/Small.Q4_K_M.gguf"].load, Qt.MouseButton.LeftButton)
    assert engine.loads == ["/models/Small.Q4_K_M.gguf"]
    assert made.book[made.current_chat].settings.model == "/models/Small.Q4_K_M.gguf"


def test_the_model_follows_the_chat(window: Any) -> None:
    made, engine = window
    first = made.current_chat
    made.send(first, "hello")
    for _ in range(40):
        engine.tick()
    settle()
    second = made.new_chat()
    made.models.choose("/models/other")
    assert made.book[first].settings.model == "starter"  # what it was begun with
    made.send(second, "hello")
    made.send(first, "again")
    assert engine.models == ["", "/models/other", "starter"]


def test_while_something_is_answered_the_change_waits_for_the_next_message(window: Any) -> None:
    made, engine = window
    made.send(made.current_chat, "hello")
    made.models.choose("/models/other")
    assert engine.loads == []
    assert made.book[made.current_chat].settings.model == "/models/other"


def test_the_panel_does_not_forget_the_model(window: Any) -> None:
    made, _ = window
    made.models.choose("/models/other")
    made.parts.panel.temperature.setValue(0.3)
    settings = made.book[made.current_chat].settings
    assert (settings.temperature, settings.model) == (0.3, "/models/other")


def test_loading_shows_how_far_and_can_be_cancelled(dialog: Any) -> None:
    shown, _, engine = dialog
    engine.state, engine.progress = EngineState.LOADING, 0.4
    engine.publish()
    shown.show_snapshot(engine.snapshot)
    assert (
        shown.present.first.progress.isVisible()
        and shown.present.first.progress.value() == 400
        and "40%" in shown.present.first.words.text()
    )
    shown.present.first.cancel.click()
    assert engine.snapshot.state is EngineState.EMPTY
    shown.show_snapshot(engine.snapshot)
    assert not shown.present.first.progress.isVisible() and not shown.present.first.unload.isVisible()


def test_unload(dialog: Any) -> None:
    shown, _, engine = dialog
    shown.present.first.unload.click()
    assert engine.snapshot.state is EngineState.EMPTY


def test_each_of_two_loaded_models_has_its_row_and_its_unload(dialog: Any) -> None:
    shown, desk, engine = dialog
    fill(shown)
    first = engine.snapshot
    model = replace(first.model, name="Small", source="/models/Small.Q4_K_M.gguf", weight_bytes=300 * MIB, kv_bytes=100 * MIB)
    other = replace(first, model=model)
    shown.show_snapshot(replace(first, others=(other,)))
    assert [row.name.text() for row in shown.present.rows] == [first.model.name, "Small"]
    assert "315 MB of weights" in shown.present.rows[1].words.text() and "105 MB of cache" in shown.present.rows[1].words.text()
    assert shown.machine.rows["/models/Small.Q4_K_M.gguf"].load.text() == "Loaded"
    shown.refresh()
    assert desk.asked[-1] == ("refresh", first.model.held + 400 * MIB)
    shown.present.rows[1].unload.click()
    assert engine.unloaded == ["/models/Small.Q4_K_M.gguf"]
    shown.show_snapshot(first)
    assert len(shown.present.rows) == 1


def test_two_models_are_kept_unless_the_settings_say_otherwise(window: Any) -> None:
    made, engine = window
    made.preferences.change(keep_two=False)
    assert engine.two[-1] is False
    made.preferences.change(keep_two=True)
    assert engine.two[-1] is True


def test_what_is_dropped_is_added(dialog: Any, tmp_path: Path) -> None:
    shown, desk, _ = dialog
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(tmp_path / "a #1.gguf")), QUrl("https://example.org/x.gguf")])
    buttons, keys = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    shown.dropEvent(QDropEvent(QPointF(5, 5), Qt.DropAction.CopyAction, data, buttons, keys))
    assert ("add", str(tmp_path / "a #1.gguf")) in desk.asked and len([ask for ask in desk.asked if ask[0] == "add"]) == 1


def test_deleting_is_asked_first_and_forgetting_is_not(dialog: Any) -> None:
    shown, desk, _ = dialog
    fill(shown)
    shown.machine.rows["/models/Small.Q4_K_M.gguf"].remove.click()
    assert ("remove", "org/Small-GGUF") not in desk.asked and "free 252 MB" in shown.bar.words
    shown.bar.choose("delete")
    shown.machine.rows["/elsewhere/huge"].remove.click()
    assert [ask for ask in desk.asked if ask[0] == "remove"] == [("remove", "org/Small-GGUF"), ("remove", "huge")]


def test_from_a_search_to_a_download(dialog: Any) -> None:
    shown, desk, _ = dialog
    shown.show_page(1)
    shown.hub.search.setText("tiny")
    shown.hub.look_up()
    assert ("search", "tiny") in desk.asked
    tell(shown, Found("tiny", (HubModel("acme/Tiny", 1234, 5, "1.7 B", "free", gated=True, gguf=True),)))
    row = shown.hub.results["acme/Tiny"]
    assert row.badge.text() == "Terms to accept"
    row.choose.click()
    offer = Offer("acme/Tiny", "main", "Balanced", "Q4_K_M", (HubFile("t.gguf", 1000),), "free", True)
    tell(shown, Offered("acme/Tiny", (offer,)))
    (_, button), *_ = row.show_offers((offer,))
    assert button.text() == "Balanced  ·  Q4_K_M  ·  0 MB"
    name = "acme/Tiny · Balanced"
    tell(shown, Moved(name, TransferProgress(TransferState.RUNNING, 250, 1000)))
    progress = shown.hub.downloads[name]
    assert progress.bar.value() == 250 and progress.pause.text() == "Pause"
    progress.pause.click()
    tell(shown, Moved(name, TransferProgress(TransferState.PAUSED, 300, 1000)))
    progress.pause.click()
    assert [ask for ask in desk.asked if ask[1:] == (name,)] == [("pause", name), ("go_on", name)]
    desk.asked.clear()
    tell(shown, Moved(name, TransferProgress(TransferState.DONE, 1000, 1000)))
    assert "is here" in shown.bar.words and any(ask[0] == "refresh" for ask in desk.asked)


def test_a_server_is_added_used_and_removed(dialog: Any) -> None:
    shown, desk, engine = dialog
    shown.show_page(2)
    shown.servers.preset.activated.emit(1)
    assert shown.servers.address.text() == "http://127.0.0.1:30000/v1"
    shown.servers.key.setText("secret")
    shown.servers.connect_button.click()
    assert ("add_server", "http://127.0.0.1:30000/v1", "secret", "", False, "") in desk.asked and shown.servers.key.text() == ""
    source = "http://127.0.0.1:30000/v1"
    tell(shown, Added(source), Listed(ENTRIES, "/cache", (source, f"{source}#two")))
    assert engine.loads == [source]
    assert [row.name.text() for row in shown.servers.rows.values()] == ["Server 127.0.0.1:30000", "two on 127.0.0.1:30000"]
    assert [button.text() for button in shown.servers._buttons.values()] == ["In use", "Use"]


def test_metrics_that_lie_elsewhere_are_asked_for_and_shown(dialog: Any) -> None:
    shown, desk, _ = dialog
    shown.show_page(2)
    kinds = [shown.servers.preset.itemText(place) for place in range(shown.servers.preset.count())]
    shown.servers.preset.activated.emit(kinds.index("Ray Serve LLM"))
    assert "8080/metrics" in shown.servers.metrics.placeholderText()
    shown.servers.metrics.setText(" head:8080 ")
    shown.servers.connect_button.click()
    assert desk.asked[-1] == ("add_server", "http://127.0.0.1:8000/v1", "", "", False, "head:8080")
    source = "http://127.0.0.1:8000/v1##whole#http://head:8080/metrics"
    tell(shown, Listed(ENTRIES, "/cache", (source,)))
    (row,) = shown.servers.rows.values()
    assert row.name.text() == "Server 127.0.0.1:8000"
    assert wording.server_words(source) == "http://127.0.0.1:8000/v1 · answers come whole · metrics at http://head:8080/metrics"


def test_what_went_wrong_is_said(dialog: Any) -> None:
    shown, _, _ = dialog
    tell(shown, Said("The model hub cannot be reached. Connect to the network.", failed=True))
    assert "cannot be reached" in shown.bar.words


def test_the_menu_lists_models_and_marks_the_chats_own(window: Any) -> None:
    made, _ = window
    made.models.choose("/models/other.gguf")
    menu = made.models.make_menu()
    entries = {action.text(): action.isChecked() for action in menu.actions() if action.isCheckable()}
    assert entries == {"other": True, "Starter model": False}
    assert menu.actions()[-1].text() == "All models…"
    menu.deleteLater()
    settle()


def test_choices_are_remembered(window: Any) -> None:
    made, engine = window
    kept: dict[str, str] = {}
    made.models.attach('{"recent": ["/models/old"], "idle_minutes": 30}', kept.__setitem__)
    assert engine.idle_limits == [1800.0]
    made.models.choose("/models/new")
    made.models.set_idle_minutes(0)
    assert engine.idle_limits == [1800.0, None]
    assert json.loads(kept["models"]) == {"recent": ["/models/new", "/models/old"], "idle_minutes": 0}
    made.models.attach("not JSON", kept.__setitem__)


def test_words() -> None:
    assert wording.short_name("/x/org--Name/") == "org/Name"
    assert wording.short_name("C:\\models\\a.Q4_0.GGUF") == "a.Q4_0"
