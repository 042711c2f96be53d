"""The window's own rows: where its parts are, how tabs close and come back, what a tab tells of its chat."""

from __future__ import annotations

import json

from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QColor, QContextMenuEvent, QImage, QPainter
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.theme import Theme
from app.window.rings import paint_ring
from app.window.session import describe, restore
from app.window.states import ChatState, Stage
from tests.app.conftest import settle
from tests.app.ux.desk import CONTROL, SHIFT, answered, asked, finish, press, tick

LEFT = Qt.MouseButton.LeftButton


def test_the_sidebar_has_its_parts_where_they_are_promised(make_window):
    window, engine = make_window()
    answered(window, engine, "words")
    sidebar = window.sidebar
    assert sidebar.mapTo(window, QPoint(0, 0)).x() == 0
    places = [part.mapTo(sidebar, QPoint(0, 0)).y() for part in (sidebar.new_button, sidebar.search, sidebar.list, sidebar.settings_button)]
    assert places == sorted(places) and sidebar.height() - places[-1] < 60, "settings are at the foot"
    count = window.tabs.count()
    QTest.mouseClick(sidebar.new_button, LEFT)
    assert window.tabs.count() == count + 1 and window.book[window.current_chat].empty


def test_a_suggestion_is_sent_by_a_click(make_window):
    window, engine = make_window()
    page = window.page(window.current_chat)
    QTest.mouseClick(page.suggestions[2], LEFT)
    assert engine.prompts[0][-1].content == page.suggestions[2].toolTip() and not page.suggestions[2].isVisible()


def test_the_strip_opens_the_dashboard_and_the_rows_buttons_their_sides(make_window):
    window, _ = make_window()
    parts = window.parts
    QTest.mouseClick(parts.strip, LEFT)
    settle()
    assert parts.dashboard_mode == "beside"
    QTest.mouseClick(parts.row.dashboard_button, LEFT)
    QTest.mouseClick(parts.row.panel_button, LEFT)
    settle()
    assert (
        parts.dashboard_mode == "off" and parts.panel.isVisible() and not parts.panel.mapTo(window, QPoint(0, 0)).x() < window.width() - 330
    )


def test_closed_tabs_come_back_where_they_stood_the_last_one_first(make_window):
    window, engine = make_window()
    window.activateWindow()
    chats = tuple(answered(window, engine, "words") for _ in range(4))
    window.switch(1)
    press(window, Qt.Key.Key_W, CONTROL)
    assert window.current_chat == chats[2]
    press(window, Qt.Key.Key_W, CONTROL)
    assert window.open_chats == (chats[0], chats[3])
    press(window, Qt.Key.Key_T, CONTROL | SHIFT)
    assert window.open_chats == (chats[0], chats[2], chats[3]) and window.current_chat == chats[2]
    press(window, Qt.Key.Key_T, CONTROL | SHIFT)
    assert window.open_chats == chats and window.current_chat == chats[1]
    press(window, Qt.Key.Key_T, CONTROL | SHIFT)
    assert window.open_chats == chats, "there is no other"


def close_others(window, chat_id: str) -> None:
    menu = window.tab_menu.menu(chat_id)
    next(action for action in menu.actions() if action.text() == "Close others").trigger()
    menu.deleteLater()
    settle()


def test_closing_many_tabs_asks_once_for_all_of_them(make_window):
    window, engine = make_window()
    chats = [answered(window, engine, "words"), *(asked(window, engine) for _ in range(3))]
    close_others(window, chats[3])
    assert window.bar.keys == ("keep", "stop", "cancel") and "2 of these chats" in window.bar.words and len(window.open_chats) == 4
    window.bar.choose("cancel")
    assert len(window.open_chats) == 4 and len(window.answering.active_chats) == 3
    close_others(window, chats[3])
    window.bar.choose("stop")
    assert window.open_chats == (chats[3],) and window.answering.active_chats == (chats[3],)
    for chat_id in (chats[2], chats[1], chats[0]):
        window.open_tabs.reopen()
        assert window.current_chat == chat_id
    assert window.open_chats == tuple(chats)
    finish(window, engine)
    close_others(window, chats[0])
    assert window.open_chats == (chats[0],) and window.bar.isHidden(), "nothing was being written: nothing was asked"


def ring(state: ChatState, theme: Theme) -> QImage:
    image = QImage(24, 24, QImage.Format.Format_RGB32)
    image.fill(QColor(theme.window))
    painter = QPainter(image)
    paint_ring(painter, QPointF(12, 12), state, theme, theme.window)
    painter.end()
    return image


def count(image: QImage, color: str) -> int:
    return sum(image.pixelColor(x, y).name() == color for x in range(24) for y in range(24))


def test_each_state_of_a_chat_has_a_ring_of_its_own_in_the_colour_of_its_seat(qapp):
    theme = Theme.dark()
    states = [
        ChatState(),
        ChatState(Stage.QUEUED),
        ChatState(Stage.QUEUED, place=2),
        ChatState(Stage.QUEUED, place=3),
        ChatState(Stage.PREFILL, seat=0, share=0.25),
        ChatState(Stage.PREFILL, seat=0, share=0.75),
        ChatState(Stage.DECODE, seat=0, tokens=1),
        ChatState(Stage.DECODE, seat=12, tokens=1),  # the first seat's hue once more, with another number
        ChatState(Stage.UNREAD),
        ChatState(Stage.ERROR),
    ]
    looks = [ring(state, theme) for state in states]
    assert all(one != other for number, one in enumerate(looks) for other in looks[:number])
    arc = [count(look, theme.seat_color(0).name()) for look in looks[4:6]]
    assert 0 < arc[0] < arc[1], "the arc fills"
    assert count(looks[6], theme.seat_color(0).name()) and not count(
        ring(ChatState(Stage.DECODE, seat=1), theme), theme.seat_color(0).name()
    )


def test_a_tab_says_how_fast_its_answer_comes(make_window):
    window, engine = make_window()
    chat_id = asked(window, engine, ["x "] * 30)
    tick(window, engine, 3)
    window.monitor._tick()
    tabs = window.tabs
    state = tabs.state_of(chat_id)
    assert state.stage is Stage.DECODE and state.tok_s > 0
    before = tabs.grab().toImage()
    tabs.set_state(chat_id, ChatState(Stage.DECODE, seat=state.seat, tokens=state.tokens, tok_s=state.tok_s + 50))
    assert tabs.grab().toImage() != before
    assert "decode, seat 1" in tabs.accessibleTabName(tabs.index_of(chat_id))


def test_the_dashboard_is_as_wide_as_it_was(make_window):
    window, _ = make_window()
    window.resize(1600, 900)
    window.parts.set_dashboard("beside")
    settle()
    assert window.parts.divided == []
    window.parts.splitter.moveSplitter(760, 1)
    settle()
    record = json.loads(describe(window)) | {"geometry": ""}  # a screen of tests is no wider than 800
    other, _ = make_window()
    other.hide()
    restore(other, json.dumps(record))
    other.resize(1600, 900)
    other.show()
    settle()
    assert other.parts.dashboard_mode == "beside" and other.parts.splitter.sizes() == window.parts.splitter.sizes()
    assert other.parts.divided == window.parts.divided
    for made in (window, other):
        made.parts.set_dashboard("off")


def test_tabs_that_were_closed_come_back_on_another_day_too(make_window):
    window, engine = make_window()
    chats = [answered(window, engine, "words") for _ in range(3)]
    window.close_tab(1)
    text = describe(window)
    other, _ = make_window(book=window.book)
    restore(other, text)
    assert other.open_chats == (chats[0], chats[2])
    other.open_tabs.reopen()
    assert other.open_chats == tuple(chats) and other.current_chat == chats[1]
    for broken in ([1], [["a"]], "x", [["gone", -5]]):
        fresh, _ = make_window(book=window.book)
        restore(fresh, json.dumps(json.loads(text) | {"closed": broken}))
        fresh.open_tabs.reopen()
        assert fresh.tabs.count() >= 1


def test_a_tabs_menu_opens_by_the_menu_key(make_window):
    window, engine = make_window()
    answered(window, engine, "words")
    answered(window, engine, "words")
    places = []
    window.tabs.menu_asked.disconnect()
    window.tabs.menu_asked.connect(lambda index, place: places.append(index))
    window.tabs.setFocus()
    event = QContextMenuEvent(QContextMenuEvent.Reason.Keyboard, window.tabs.rect().center(), window.tabs.mapToGlobal(QPoint(5, 5)))
    QApplication.sendEvent(window.tabs, event)
    assert places == [window.tabs.currentIndex()] and event.isAccepted()
    QTest.mouseClick(window.tabs, Qt.MouseButton.RightButton, pos=window.tabs.tabRect(0).center())
    assert places == [1, 0], "and by the right button for the tab under it"
