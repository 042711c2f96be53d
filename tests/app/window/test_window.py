"""The window over a scripted engine: many tabs at once, Stop, closing, switching, the dashboard, errors, the end."""

from __future__ import annotations

import json

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QCloseEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.chats.model import AnswerState
from app.theme import Theme
from app.window.session import describe, restore
from app.window.states import Stage
from engine import EngineState, ErrorInfo, Priority, rush_hour
from tests.app.conftest import settle
from tests.app.fakes import Script

CONTROL = Qt.KeyboardModifier.ControlModifier
SHIFT = Qt.KeyboardModifier.ShiftModifier
ALT = Qt.KeyboardModifier.AltModifier


def pieces(chat: int, count: int) -> list[str]:
    return [f"<{chat}:{number}> " for number in range(count)]


def shown(window, chat_id: str) -> str:
    return window.page(chat_id).view.document().toPlainText()


def open_chats(window, engine, count: int, length: int = 40, **script) -> list[str]:
    """Chats in tabs of their own, each asked something; the n-th is answered with pieces that name it."""
    chats = []
    for number in range(count):
        engine.scripts.append(Script(pieces(number, length), **script))
        chat_id = window.new_chat()
        window.send(chat_id, f"question {number}")
        chats.append(chat_id)
    return chats


def press(window, key: Qt.Key, modifier: Qt.KeyboardModifier = CONTROL) -> None:
    QTest.keyClick(QApplication.focusWidget() or window, key, modifier)
    settle()


def test_eight_tabs_stream_at_once_from_a_thread(make_window, qtbot):
    window, engine = make_window(seats=8)
    chats = open_chats(window, engine, 8, length=60)
    engine.start_thread(0.001)
    qtbot.waitUntil(lambda: not window.answering.active_chats, timeout=20_000)
    engine.stop_thread()
    settle()
    for number, chat_id in enumerate(chats):
        assert window.book[chat_id].last.text == "".join(pieces(number, 60))
        window.open_chat(chat_id)
        assert f"<{number}:0>" in shown(window, chat_id) and f"<{number}:59>" in shown(window, chat_id)
        for other in range(8):
            assert other == number or f"<{other}:" not in shown(window, chat_id)


def test_a_hundred_switches_while_streaming_lose_and_leak_nothing(make_window):
    window, engine = make_window(seats=8)
    chats = open_chats(window, engine, 8, length=120)
    for number in range(100):
        engine.tick()
        settle()
        window.switch((number * 5) % 8)
        current = window.current_chat
        said = window.book[current].last.text
        assert said.strip() == "" or said.split()[-1] in shown(window, current)
    engine.run()
    settle()
    for number, chat_id in enumerate(chats):
        text = "".join(pieces(number, 120))
        assert window.book[chat_id].last.text == text
        window.open_chat(chat_id)
        assert text.strip() in shown(window, chat_id)


def test_text_for_a_hidden_tab_touches_no_widget(make_window):
    window, engine = make_window(seats=2)
    first, second = open_chats(window, engine, 2)
    window.open_chat(second)
    hidden = window.page(first).view.document()
    changes = []
    hidden.contentsChanged.connect(lambda: changes.append(1))
    engine.tick(20)
    settle()
    assert window.book[first].last.text and changes == []
    window.open_chat(first)
    assert changes and "<0:18>" in shown(window, first)


def test_switching_puts_the_tab_in_view_first(make_window):
    window, engine = make_window(seats=2)
    first, second = open_chats(window, engine, 2)
    engine.priorities.clear()
    window.open_chat(first)
    assert engine.priorities == [(second, Priority.BACKGROUND), (first, Priority.FOREGROUND)]


@pytest.mark.parametrize("ticks", [0, 1, 3, 10])
def test_escape_stops_in_every_state_and_the_box_offers_to_send_again(make_window, ticks):
    window, engine = make_window(seats=1)
    (chat_id,) = open_chats(window, engine, 1, prefill_ticks=4)
    page = window.page(chat_id)
    assert page.composer.button.accessibleName() == "Stop"
    engine.tick(ticks)
    settle()
    window.activateWindow()
    press(window, Qt.Key.Key_Escape, Qt.KeyboardModifier.NoModifier)
    assert page.composer.button.accessibleName() == "Send"
    assert window.book[chat_id].last.state is AnswerState.STOPPED
    text = window.book[chat_id].last.text
    engine.tick()
    settle()
    assert engine.riding == [None] and not engine.waiting  # the seat is free in the very next step
    assert window.book[chat_id].last.text == text
    assert "stopped by you" in shown(window, chat_id)


def test_stop_once_keeps_the_queue_stop_twice_drops_it(make_window):
    window, engine = make_window(seats=1)
    (chat_id,) = open_chats(window, engine, 1)
    window.send(chat_id, "later")
    composer = window.page(chat_id).composer
    assert composer.follow_up_count == 1
    window.stop(chat_id)
    assert composer.follow_up_count == 1 and composer.button.isEnabled()
    window.stop(chat_id)
    assert composer.follow_up_count == 0


def test_queued_messages_go_out_by_themselves_and_can_be_edited(make_window):
    window, engine = make_window(seats=1)
    (chat_id,) = open_chats(window, engine, 1, length=3)
    window.send(chat_id, "second")
    window.send(chat_id, "third")
    page = window.page(chat_id)
    page.composer.follow_up_edited.emit(1)
    assert page.composer.text == "third" and page.composer.follow_up_count == 1
    engine.run()
    settle()
    engine.run()
    settle()
    assert [message.text for message in window.book[chat_id].messages if message.role == "user"] == ["question 0", "second"]
    assert page.composer.follow_up_count == 0


def test_closing_a_generating_tab_asks_without_blocking(make_window):
    window, engine = make_window(seats=2)
    first, second = open_chats(window, engine, 2)
    window.close_tab(0)
    assert window.open_chats == (first, second) and set(window.bar.keys) == {"keep", "stop", "cancel"}
    engine.tick(5)  # everything goes on meanwhile
    settle()
    window.bar.choose("cancel")
    assert window.open_chats == (first, second)
    window.close_tab(0)
    window.bar.choose("keep")
    assert window.open_chats == (second,)
    engine.run()
    window.bridge.drain()  # a frame's wait would be up to the machine
    settle()
    assert window.book[first].last.text == "".join(pieces(0, 40)) and window.book[first].unread
    window.open_chat(first)
    assert "<0:39>" in shown(window, first) and not window.book[first].unread


def test_stop_and_close_frees_the_seat_and_keeps_the_text(make_window):
    window, engine = make_window(seats=1)
    (chat_id,) = open_chats(window, engine, 1)
    engine.tick(6)
    settle()
    window.close_tab(0, "stop")
    engine.tick()
    settle()
    assert engine.riding == [None]
    assert window.book[chat_id].last.text and window.book[chat_id].last.state is AnswerState.STOPPED
    assert len(window.open_chats) == 1  # a new, empty one
    window.open_tabs.reopen()
    assert window.current_chat == chat_id and "stopped by you" in shown(window, chat_id)


def test_tab_states_follow_the_engine(make_window):
    window, engine = make_window(seats=1)
    first, second = open_chats(window, engine, 2, prefill_ticks=4, length=2)
    tabs = window.tabs
    engine.tick(2)
    window.monitor._tick()
    assert (tabs.state_of(first).stage, tabs.state_of(first).share) == (Stage.PREFILL, 0.5)
    assert (tabs.state_of(second).stage, tabs.state_of(second).place) == (Stage.QUEUED, 1)
    engine.tick(3)
    window.monitor._tick()
    assert tabs.state_of(first).stage is Stage.DECODE
    engine.run()
    settle()
    assert tabs.state_of(first).stage is Stage.UNREAD and tabs.state_of(second).stage is Stage.IDLE
    window.grab()
    window.open_chat(first)
    assert tabs.state_of(first).stage is Stage.IDLE


def test_a_tab_far_behind_in_the_queue_shows_its_place_and_when_it_starts(make_window):
    window, engine = make_window(seats=1)
    engine.first = 1  # the engine tells of so many at every step, of all others when somebody asks
    *_, last = open_chats(window, engine, 4, prefill_ticks=4)
    engine.tick(1)
    window.monitor._tick()
    state = window.tabs.state_of(last)
    assert (state.stage, state.place) == (Stage.QUEUED, 3)
    assert state.words == "Queued, 3rd in line: no free seat  ·  starts in about 2.0 s"


def test_sampling_stops_when_nothing_happens(make_window, qtbot):
    window, engine = make_window()
    open_chats(window, engine, 1)
    assert window.monitor.active
    engine.run()
    qtbot.waitUntil(lambda: not window.monitor.active, timeout=30_000)
    engine.publish()  # somebody else's request
    settle()
    assert window.monitor.active
    qtbot.waitUntil(lambda: not window.monitor.active, timeout=30_000)


def test_sending_while_the_model_loads_just_waits(make_window):
    window, engine = make_window(state=EngineState.LOADING, progress=0.3)
    (chat_id,) = open_chats(window, engine, 1)
    engine.tick()
    window.monitor._tick()
    settle()
    assert "Waits for the model: reading weights, 30%" in shown(window, chat_id)
    assert "as soon as the model is loaded" in window.page(chat_id).composer.edit.placeholderText()
    assert window.sidebar.model_words.text() == "Reading weights, 30%"
    window.stop(chat_id)
    engine.tick()
    settle()
    assert window.book[chat_id].last.state is AnswerState.STOPPED
    engine.state = EngineState.READY
    engine.scripts.append(Script(("now",)))
    window.send(chat_id, "again")
    engine.run()
    settle()
    assert "now" in shown(window, chat_id)


def test_a_failed_engine_says_why_and_offers_to_try_again(make_window):
    window, engine = make_window()
    engine.state = EngineState.FAILED
    engine.publish()
    settle()
    window.monitor._tick()
    bar = window.parts.engine_bar
    assert "The model file is damaged." in bar.words and "restart" in bar.keys and not bar.isHidden()
    bar.choose("restart")
    window.monitor._tick()
    settle()
    assert engine.state is EngineState.READY and bar.isHidden()


def test_an_error_stands_in_the_chat_with_a_retry(make_window):
    window, engine = make_window()
    engine.scripts.append(Script(("half",), error=ErrorInfo("nan_logits", "The model gave no numbers.", "Try again.")))
    chat_id = window.new_chat()
    window.send(chat_id, "go")
    engine.run()
    settle()
    assert "The model gave no numbers." in shown(window, chat_id) and "Try again" in shown(window, chat_id)
    page = window.page(chat_id)
    page.view.action_asked.emit("retry", window.book[chat_id].last.id)
    settle()
    engine.run()
    settle()
    assert "Hello, world." in shown(window, chat_id) and "no numbers" not in shown(window, chat_id)


def test_drafts_belong_to_their_chats(make_window):
    window, engine = make_window()
    (first,) = open_chats(window, engine, 1)
    QTest.keyClicks(window.page(first).composer.edit, "half a thought")
    second = window.new_chat()
    assert window.page(second).composer.text == ""
    window.open_chat(first)
    assert window.page(first).composer.text == "half a thought" == window.book[first].draft
    engine.run()
    settle()
    window.close_tab(window.tabs.index_of(first))
    window.open_tabs.reopen()
    assert window.page(first).composer.text == "half a thought"


def test_keys(make_window):
    window, engine = make_window()
    window.activateWindow()
    chats = open_chats(window, engine, 3, length=1)
    engine.run()
    settle()
    press(window, Qt.Key.Key_1, ALT)
    assert window.current_chat == chats[0]
    press(window, Qt.Key.Key_Tab)
    assert window.current_chat == chats[1]
    press(window, Qt.Key.Key_Tab, CONTROL | SHIFT)
    press(window, Qt.Key.Key_Tab, CONTROL | SHIFT)
    assert window.current_chat == chats[2]
    press(window, Qt.Key.Key_W)
    assert window.open_chats == (chats[0], chats[1])
    press(window, Qt.Key.Key_T, CONTROL | SHIFT)
    assert window.current_chat == chats[2]
    press(window, Qt.Key.Key_T)
    fresh = window.current_chat
    assert fresh not in chats and window.book[fresh].empty
    press(window, Qt.Key.Key_N)
    assert window.current_chat == fresh and window.tabs.count() == 4  # one empty chat is enough
    press(window, Qt.Key.Key_B)
    assert window.sidebar.collapsed
    press(window, Qt.Key.Key_K)
    assert not window.overlays.search_card.isHidden() and QApplication.focusWidget() is window.overlays.search_card.field
    press(window, Qt.Key.Key_L)
    assert QApplication.focusWidget() is window.page(fresh).composer.edit
    window.switch(0)
    press(window, Qt.Key.Key_C, CONTROL | SHIFT)
    assert QApplication.clipboard().text() == "<0:0> "


def test_the_dashboard_stands_beside_or_alone(make_window):
    window, _ = make_window()
    window.resize(1500, 900)
    window.activateWindow()
    settle()
    parts = window.parts
    press(window, Qt.Key.Key_D)  # with the focus in the composer, where Qt would delete a character
    assert parts.dashboard_mode == "beside" and parts.row.dashboard_button.isChecked()
    assert parts.stack.width() >= 520 and parts.dashboard.width() == 560
    window.resize(1280, 900)
    settle()
    assert parts.stack.width() >= 520 and parts.dashboard.width() >= parts.dashboard.LEAST_WIDTH
    window.resize(2400, 900)
    settle()
    assert parts.stack.width() > parts.dashboard.width() > 800
    parts.splitter.moveSplitter(900, 1)  # by hand: then it stays
    settle()
    chosen = parts.splitter.sizes()
    parts._divide()
    assert parts.splitter.sizes() == chosen and chosen[0] == 900
    press(window, Qt.Key.Key_F9, Qt.KeyboardModifier.NoModifier)
    assert parts.dashboard_mode == "off" and not parts.row.dashboard_button.isChecked()
    press(window, Qt.Key.Key_D, CONTROL | SHIFT)
    assert parts.dashboard_mode == "full"
    window.open_chat(window.current_chat)
    assert parts.dashboard_mode == "off"
    window.resize(900, 700)
    settle()
    press(window, Qt.Key.Key_D)
    assert parts.dashboard_mode == "full"
    parts.set_dashboard("off")


def test_the_dashboards_requests_are_the_windows(make_window):
    window, engine = make_window(seats=4)
    (chat_id,) = open_chats(window, engine, 1)
    window.parts.set_dashboard("full")
    window.parts.dashboard.open_chat.emit("not one of ours")
    assert window.parts.dashboard_mode == "full"
    now = [0.0]
    window.demo._clock = lambda: now[0]
    window.parts.dashboard.run_demo.emit()
    assert 0 < len(engine.submitted) < 21 and window.demo.coming
    now[0] = 1000.0
    window.demo.advance()
    assert len(engine.submitted) == 21 and window.current_chat == chat_id and not window.demo.coming
    load = rush_hour()
    assert sorted(params.max_tokens for params in engine.params[1:]) == sorted(request.tokens for request in load.requests)
    assert {window.book[chat].title for chat in window.open_chats[1:]} == {request.title for request in load.requests}
    window.parts.dashboard.open_chat.emit(window.open_chats[3])
    assert window.current_chat == window.open_chats[3] and window.parts.dashboard_mode == "off"
    engine.run()
    settle()
    assert not window.answering.active_chats


def test_tabs_are_dragged_middle_clicked_and_closed_by_their_mark(make_window):
    window, engine = make_window()
    chats = open_chats(window, engine, 3, length=1)
    engine.run()
    settle()
    tabs = window.tabs
    start = tabs.tabRect(0).center()
    QTest.mousePress(tabs, Qt.MouseButton.LeftButton, pos=start)
    for step in range(1, 12):
        QTest.mouseMove(tabs, start + QPoint(step * 25, 0))
        tabs.grab()
    QTest.mouseRelease(tabs, Qt.MouseButton.LeftButton, pos=start + QPoint(275, 0))
    assert window.open_chats != tuple(chats) and set(window.open_chats) == set(chats)
    assert window.current_chat == chats[0]
    order = window.open_chats
    QTest.mouseClick(tabs, Qt.MouseButton.MiddleButton, pos=tabs.tabRect(2).center())
    assert window.open_chats == order[:2]
    before = window.current_chat
    other = next(index for index in range(2) if window.open_chats[index] != before)
    QTest.mouseClick(tabs, Qt.MouseButton.LeftButton, pos=tabs._close_rect(other).center())
    assert window.open_chats == (before,) and window.current_chat == before


def test_renaming_deleting_and_undo(make_window):
    window, engine = make_window()
    (chat_id,) = open_chats(window, engine, 1, length=1)
    engine.run()
    settle()
    window.chats.rename(chat_id, "Tom & Jerry")
    assert window.tabs.tabText(0) == "Tom && Jerry" and window.sidebar.model.index_of(chat_id).data() == "Tom & Jerry"
    window.chats.delete([chat_id])
    assert chat_id not in window.book and chat_id not in window.open_chats
    window.bar.choose("undo")
    assert window.current_chat == chat_id and "<0:0>" in shown(window, chat_id)


def test_a_link_is_shown_before_it_is_opened(make_window, monkeypatch):
    opened = []
    monkeypatch.setattr("app.window.page.QDesktopServices.openUrl", lambda url: opened.append(url.toString()))
    window, _ = make_window()
    page = window.page(window.current_chat)
    page.view.link_asked.emit("https://example.org/a?b=c")
    assert "https://example.org/a?b=c" in page.bar.words and opened == []
    window.activateWindow()
    press(window, Qt.Key.Key_Escape, Qt.KeyboardModifier.NoModifier)
    assert page.bar.isHidden() and opened == []
    page.view.link_asked.emit("https://example.org/a?b=c")
    page.bar.choose("open")
    assert opened == ["https://example.org/a?b=c"]


def test_closing_the_window_while_something_is_written_asks_once(make_window):
    window, engine = make_window()
    open_chats(window, engine, 1)
    closed = []
    window.closed.connect(lambda: closed.append(1))
    event = QCloseEvent()
    window.closeEvent(event)
    assert not event.isAccepted() and closed == [] and "quit" in window.bar.keys
    window.bar.choose("stay")
    window.closeEvent(event)
    assert not event.isAccepted()
    window.bar.choose("quit")
    assert closed == [1]


def test_the_theme_changes_while_everything_runs(make_window):
    window, engine = make_window(seats=2)
    chats = open_chats(window, engine, 2)
    engine.tick(8)
    settle()
    window.parts.set_dashboard("beside")
    window.toggle_theme()
    settle()
    assert window.grab().toImage().pixelColor(window.width() - 4, 4).name() == Theme.light().sidebar
    engine.run()
    settle()
    assert "<1:39>" in shown(window, chats[1])


def test_parameters_hold_for_the_next_answer(make_window):
    window, engine = make_window()
    chat_id = window.new_chat()
    window.parts.toggle_panel()
    panel = window.parts.panel
    panel.system.setPlainText("Be brief.")
    panel.temperature.setValue(0.0)
    panel.max_tokens.setValue(12)
    window.send(chat_id, "go")
    assert (engine.params[0].temperature, engine.params[0].max_tokens) == (0.0, 12)
    assert engine.prompts[0][0].content == "Be brief."
    engine.run()
    settle()
    window.new_chat()
    assert panel.system.toPlainText() == "" and panel.max_tokens.value() != 12


def test_shutting_down_in_the_middle_keeps_what_was_written(make_window):
    window, engine = make_window(seats=2)
    chats = open_chats(window, engine, 2)
    engine.tick(10)
    window.shut_down()
    engine.close()
    settle()
    for chat_id in chats:
        assert window.book[chat_id].last.state is AnswerState.STOPPED and len(window.book[chat_id].last.text.split()) == 9


def test_every_widget_one_can_reach_by_tab_has_a_name(make_window):
    window, engine = make_window()
    open_chats(window, engine, 1)
    nameless = []
    for widget in window.findChildren(type(window.parts).__mro__[1]):
        reachable = widget.focusPolicy() & Qt.FocusPolicy.TabFocus and widget.isVisible()
        text = getattr(widget, "text", None)
        if reachable and not widget.accessibleName() and not (callable(text) and text()):
            nameless.append((type(widget).__name__, widget.objectName(), widget.toolTip()))
    assert nameless == []


def test_tabs_and_drafts_come_back_with_the_session(make_window, qapp):
    window, engine = make_window()
    chats = open_chats(window, engine, 3, length=1)
    engine.run()
    settle()
    window.book.set_draft(chats[2], "half a thought")
    window.close_tab(1)
    window.new_chat()
    window.open_chat(chats[0])
    session = describe(window)
    other, _ = make_window(book=window.book)  # the same chats, as another day would load them
    restore(other, session)
    assert other.open_chats == (chats[0], chats[2]) and other.current_chat == chats[0]
    other.open_chat(chats[2])
    assert other.page(chats[2]).composer.text == "half a thought"
    for broken in (None, "", "{", "[]", '"tabs"', '{"tabs": [1, null, "gone"]}', '{"tabs": 3, "closed": 4}'):
        restore(other, broken)
        assert other.open_chats == (chats[0], chats[2])


@pytest.mark.parametrize(
    "part",
    [
        {"closed": [["a"], 3, [1, 2], ["b", "x"], ["gone", -4]]},
        {"divided": ["wide", None, 700]},
        {"panel": [], "sidebar": "left", "dashboard": {}, "geometry": "ü"},
        {"current": 5},
    ],
    ids=lambda part: next(iter(part)),
)
def test_a_damaged_part_of_a_session_costs_no_tab(make_window, part):
    window, engine = make_window()
    chats = open_chats(window, engine, 2, length=1)
    engine.run()
    settle()
    session = json.loads(describe(window)) | part
    other, _ = make_window(book=window.book)
    restore(other, json.dumps(session))
    assert other.open_chats == tuple(chats)


def test_suggestions_keep_their_words_beside_the_dashboard(make_window):
    window, _ = make_window()
    page = window.page(window.current_chat)
    for width, mode, columns in ((1300, "off", 2), (1300, "beside", 1), (1300, "off", 2)):
        window.resize(width, 700)
        window.parts.set_dashboard(mode)
        settle()
        assert len({button.x() for button in page.suggestions}) == columns
        assert all(button.width() >= button.sizeHint().width() for button in page.suggestions)
        ends = [button.mapTo(page, QPoint(button.width(), 0)).x() for button in page.suggestions]
        assert max(ends) <= page.width() and all(button.mapTo(page, QPoint(0, 0)).x() >= 0 for button in page.suggestions)


def test_a_window_that_is_made_narrow_keeps_the_chat_and_brings_the_dashboard_back(make_window):
    window, _ = make_window()
    window.resize(1300, 700)
    window.parts.toggle_dashboard()
    settle()
    assert window.parts.dashboard_mode == "beside"
    window.resize(900, 700)
    settle()
    assert window.parts.dashboard_mode == "off" and json.loads(describe(window))["dashboard"] == "beside"
    window.resize(1300, 700)
    settle()
    assert window.parts.dashboard_mode == "beside"
    window.resize(900, 700)
    settle()
    window.parts.toggle_dashboard()  # asked for where both have no room: it has the window for itself
    window.resize(1300, 700)
    settle()
    assert window.parts.dashboard_mode == "full"


def test_trouble_with_the_disk_is_told_and_goes_away(make_window):
    window, _ = make_window()
    window.show_store_trouble("The disk is full.")
    assert "disk is full" in window.parts.store_bar.words and not window.parts.store_bar.isHidden()
    window.show_store_trouble("")
    assert window.parts.store_bar.isHidden()
