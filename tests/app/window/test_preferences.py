"""Settings, keys and the palette, as a person meets them."""

from __future__ import annotations

import json
from dataclasses import fields

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.chats.book import ChatBook
from app.chats.model import ChatSettings
from app.chats.reader import ChatReader
from app.dashboard.motion import reduced_motion
from app.settings import Settings, SettingsFile
from app.theme import Theme
from app.window.keys import KEYS
from app.window.library import Library
from app.window.main_window import MainWindow
from app.window.palette import NAME
from engine import StagedEngine
from tests.app.conftest import settle


def press(window, key, modifiers=Qt.KeyboardModifier.ControlModifier):
    QTest.keyClick(window, key, modifiers)
    settle()


def test_every_key_has_an_action_and_every_action_a_row(make_window):
    window, _ = make_window()
    assert set(window.keys.actions) == set(KEYS)
    window.overlays.open_settings()
    assert {"Theme", "Motion", "Language", "Notices", "Keys", "Search", "Quit"} <= set(window.overlays.settings_card.shown())


def test_the_theme_is_changed_at_once_and_kept(make_window, tmp_path):
    window, _ = make_window()
    window.preferences.attach(SettingsFile(tmp_path))
    window.overlays.open_settings()
    box = window.overlays.settings_card.theme_box
    box.setCurrentIndex(box.findData("light"))
    box.activated.emit(box.currentIndex())
    assert window.theme.name == "light" and SettingsFile(tmp_path).settings.theme == "light"
    window.toggle_theme()
    assert SettingsFile(tmp_path).settings.theme == "dark" and box.currentData() == "dark"


CHANGES = {
    "theme": "light",
    "motion": "reduced",
    "language": "de",
    "notify": False,
    "keep_two": False,
    "reproducible": True,
    "titles": "off",
    "send": "ctrl+enter",
    "zoom": 125,
    "api_port": 8421,
    "keys": {"sidebar": ("Ctrl+Y",)},
    "presets": {"Dry": {"temperature": 0.1}},
}


def test_each_can_be_changed_over_an_engine_on_a_stage(qapp, no_leftovers, tmp_path):
    """Every one but the API's switch, which opens a socket."""
    engine = StagedEngine()
    window = MainWindow(engine, ChatBook(), Theme.dark())
    window.preferences.attach(SettingsFile(tmp_path))
    window.show()
    assert {*CHANGES, "api"} == {field.name for field in fields(Settings)}
    try:
        for name, value in CHANGES.items():
            window.preferences.change(**{name: value})
            assert getattr(SettingsFile(tmp_path).settings, name) == value
        assert ("keep_two", False) in engine.calls and engine.sim.core.company.alone and len(engine.snapshot.seats) == 1
    finally:
        window.preferences.change(motion="system")  # which is the whole program's
        engine.close()
        window.shut_down()
        window.deleteLater()
        settle()


def test_damaged_settings_are_told_in_the_window(make_window, tmp_path):
    (tmp_path / "settings.json").write_text("{")
    window, _ = make_window()
    window.preferences.attach(SettingsFile(tmp_path))
    assert "The file of settings was damaged" in window.bar.words


def test_a_key_is_rebound_and_one_that_is_taken_is_refused(make_window, tmp_path):
    window, _ = make_window()
    window.preferences.attach(SettingsFile(tmp_path))
    press(window, Qt.Key.Key_Slash)
    card = window.overlays.settings_card
    assert not card.isHidden() and "Theme" not in card.shown() and "Sidebar" in card.shown()
    edit = card._edits["sidebar"]
    edit.setKeySequence(QKeySequence("Ctrl+T"))
    edit.editingFinished.emit()
    assert "Ctrl+T belongs to “New tab” already" in card.note.text() and edit.keySequence() == QKeySequence("Ctrl+B")
    edit.setKeySequence(QKeySequence("Ctrl+J"))
    edit.editingFinished.emit()
    card.close_card()
    press(window, Qt.Key.Key_B)
    assert not window.sidebar.collapsed
    press(window, Qt.Key.Key_J)
    assert window.sidebar.collapsed
    assert json.loads((tmp_path / "settings.json").read_text())["keys"] == {"sidebar": ["Ctrl+J"]}
    card._resets["sidebar"].click()
    press(window, Qt.Key.Key_B)
    assert not window.sidebar.collapsed


def test_settings_are_found_by_their_words(make_window):
    window, _ = make_window()
    press(window, Qt.Key.Key_Comma)
    card = window.overlays.settings_card
    card.search.setText("desktop")
    assert card.shown() == ["Theme"]
    QTest.keyClick(card.search, Qt.Key.Key_Escape)
    assert card.isHidden()


def test_the_palette_finds_and_does(make_window):
    window, _ = make_window()
    press(window, Qt.Key.Key_P, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
    palette = window.overlays.palette
    assert QApplication.focusWidget() is palette.field and palette.list.rowCount() == len(KEYS) - 1
    palette.field.setText("sideb")
    assert [palette.list.item(row, 0).data(NAME) for row in range(palette.list.rowCount())] == ["sidebar"]
    assert palette.list.item(0, 1).text() == "Ctrl+B"
    QTest.keyClick(palette.field, Qt.Key.Key_Return)
    settle()
    assert palette.isHidden() and window.sidebar.collapsed


def test_motion_is_reduced_when_the_person_says_so(make_window):
    window, _ = make_window()
    window.preferences.change(motion="reduced")
    assert reduced_motion()
    window.preferences.change(motion="system")
    assert not QApplication.instance().property("reduced_motion")


def test_an_end_behind_another_window_is_told(make_window, monkeypatch):
    window, engine = make_window()
    alerts = []
    monkeypatch.setattr(QApplication, "alert", lambda *values: alerts.append(values))
    monkeypatch.setattr(window, "isActiveWindow", lambda: False)
    chat = window.new_chat()
    window.send(chat, "question")
    engine.run()
    settle()
    assert len(alerts) == 1
    window.preferences.change(notify=False)
    window.send(chat, "another")
    engine.run()
    settle()
    assert len(alerts) == 1


def test_import_and_export_from_the_window(make_window, qtbot, tmp_path):
    library = Library(tmp_path / "data")
    window, _ = make_window(book=library.book)
    message = {"author": {"role": "user"}, "content": {"parts": ["hello there"]}}
    export = [{"conversation_id": "1", "title": "Imported", "mapping": {"a": {"message": message}}}, 3]
    (tmp_path / "conversations.json").write_text(json.dumps(export))
    window.files.import_file(tmp_path / "conversations.json")
    qtbot.waitUntil(lambda: "1 chat imported from ChatGPT" in window.bar.words, timeout=30_000)
    assert "entry 2: the entry is not an object" in window.bar.words
    chat = window.book.listed()[0]
    assert chat.title == "Imported" and window.sidebar.model.index_of(chat.id).isValid()
    for form in ("md", "json", "html", "pdf"):
        window.files.export([chat], tmp_path / f"out.{form}", "md")
        assert (tmp_path / f"out.{form}").stat().st_size > 40
    window.files.export([chat], tmp_path / "none" / "out.md", "md")
    assert "could not be written" in window.bar.words
    window.files.import_file(tmp_path / "missing.json")
    qtbot.waitUntil(lambda: "There is no file" in window.bar.words, timeout=30_000)
    window.shut_down()
    assert library.close()
    with ChatReader(tmp_path / "data" / "chats.db") as reader:
        assert [chat.title for chat in reader.chats()] == ["Imported"]


def test_an_export_that_stumbles_is_told_and_the_next_one_works(make_window, qtbot, tmp_path, monkeypatch):
    library = Library(tmp_path / "data")
    window, _ = make_window(book=library.book)
    library.attach(window)
    chat = window.book.new_chat()
    window.book.set_settings(chat.id, ChatSettings(system_prompt="half a pair: \ud83d"))
    window.book.add_user(chat.id, "hello")

    def stumbles(*_):
        raise KeyError("no such colour")

    with monkeypatch.context() as patch:
        patch.setattr("app.window.chat_files.write_file", stumbles)
        window.files.export([chat], tmp_path / "out.html", "html")
        qtbot.waitUntil(lambda: "could not be written: 'no such colour'" in window.bar.words, timeout=30_000)
    for form in ("md", "json", "html"):
        window.files.export([chat], tmp_path / f"out.{form}", form)
        qtbot.waitUntil(lambda form=form: window.bar.words.startswith(f"Written to {tmp_path / f'out.{form}'}"), timeout=30_000)
        assert "hello" in (tmp_path / f"out.{form}").read_text(encoding="utf-8")
    window.shut_down()
    assert library.close()
