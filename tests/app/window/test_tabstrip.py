"""The strip of tabs when there are more than fit."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu, QToolButton

from app.theme import Theme
from app.window.states import ChatState, Stage
from app.window.tabstrip import HEIGHT, TabStrip
from tests.app.conftest import settle


@pytest.fixture
def strip(qapp: QApplication) -> TabStrip:
    made = TabStrip(Theme.dark())
    made.set_room(540)  # a fifth tab begins before the arrows and goes on behind them
    made.resize(540, HEIGHT)
    made.show()
    yield made
    made.hide()
    made.deleteLater()
    settle()


def picture(strip: TabStrip, titles: str, area: QRect) -> QImage:
    for index in range(strip.count()):
        strip.set_title(strip.chat_at(index), titles)
    settle()
    return strip.grab(area).toImage()


def test_no_tab_is_painted_behind_the_arrows(strip: TabStrip) -> None:
    strip.add("0", "0")
    settle()
    assert strip.seen == strip.rect()
    for number in range(1, 9):
        strip.add(str(number), "")
    settle()
    arrows = [button.geometry() for button in strip.findChildren(QToolButton) if button.isVisible()]
    assert len(arrows) == 2 and not any(strip.seen.intersects(arrow) for arrow in arrows)
    behind = arrows[0].united(arrows[1])
    assert any(strip.tabRect(index).intersects(behind) for index in range(strip.count())), "else there is nothing to hide"
    last = QRect(strip.seen.right() - 3, 0, 4, HEIGHT)
    empty = [picture(strip, " ", area) for area in (behind, last)]
    assert [picture(strip, "MMMMMMMMMMMMMMMMMMMM", area) for area in (behind, last)] == empty
    assert picture(strip, "WWWWWWWWWWWWWWWWWWWW", strip.seen) != picture(strip, " ", strip.seen)


@pytest.mark.parametrize("current", [0, 4, 11])
def test_the_tab_in_view_keeps_twelve_letters_and_is_wholly_seen(strip: TabStrip, current: int) -> None:
    for number in range(12):
        strip.add(str(number), "")
    strip.setCurrentIndex(current)
    strip.set_state(str(current), ChatState(Stage.DECODE, seat=3, tok_s=120.0, tokens=7))
    settle()
    tab = strip.tabRect(current)
    assert strip.seen.contains(tab)
    assert picture(strip, "Sourdough bu and more", tab) != picture(strip, "Sourdough ba and more", tab)


def make_crowd(window, count: int) -> list[str]:
    chats = []
    for number in range(count):
        chat = window.book.new_chat()
        window.book.add_user(chat.id, "question")
        window.book.rename(chat.id, f"Chat & {number}")
        chats.append(chat.id)
    window.add_tabs(chats)
    settle()
    return chats


def test_a_button_lists_all_tabs_with_their_states_when_not_all_are_seen(make_window) -> None:
    window, _ = make_window()
    button, tabs = window.parts.row.all_tabs, window.tabs
    assert button.isHidden() and window.open_chats
    chats = make_crowd(window, 20)
    assert button.isVisible() and button.focusPolicy() & Qt.FocusPolicy.TabFocus
    window.open_chat(chats[2])
    window.book.set_unread(chats[18], True)
    window.progress.show_states()
    settle()
    button.setFocus()
    QTest.keyClick(button, Qt.Key.Key_Space)
    settle()
    menu = next(menu for menu in window.findChildren(QMenu) if menu.isVisible())
    lines = [action.text() for action in menu.actions()]
    assert len(lines) == 21 and lines[1] == "Chat && 0" and lines[19] == "Chat && 18\tnew answer"
    assert menu.activeAction() is menu.actions()[3]
    for key in (Qt.Key.Key_Down, Qt.Key.Key_Return):
        QTest.keyClick(menu, key)
    settle()
    assert window.current_chat == chats[3] and tabs.seen.contains(tabs.tabRect(tabs.currentIndex()))
    button.setFocus()
    for chat_id in chats[3:]:
        window.close_tab(tabs.index_of(chat_id), "stop")
    settle()
    assert button.isHidden() and window.focusWidget() is not button
    assert all(tabs.seen.contains(tabs.tabRect(index)) for index in range(tabs.count()))


@pytest.mark.parametrize("width", [700, 1280])
def test_the_button_is_there_just_when_a_tab_is_not_wholly_seen(make_window, width: int) -> None:
    window, _ = make_window()
    window.resize(width, 600)
    for _ in range(10):
        make_crowd(window, 1)
        tabs = window.tabs
        whole = all(tabs.seen.contains(tabs.tabRect(index)) for index in range(tabs.count()))
        assert window.parts.row.all_tabs.isHidden() is whole, tabs.count()
    assert not whole
