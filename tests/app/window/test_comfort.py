"""Zoom, the key that sends, and the window's place: chosen once, there again at the next start."""

from __future__ import annotations

import json

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QGuiApplication, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.settings import ZOOMS, SettingsFile
from app.window.session import describe, restore
from tests.app.conftest import settle


def chat_with_words(window) -> str:
    chat = window.book.new_chat()
    window.book.add_user(chat.id, "A question")
    answer = window.book.begin_answer(chat.id)
    window.book.append(answer, "# Head\n\nSome words and `code`.\n\n```py\nx = 1\n```\n")
    window.book.stop(chat.id, answer)
    window.open_chat(chat.id)
    settle()
    return chat.id


def sizes(page) -> tuple[int, int, int]:
    document = page.view.document()
    words = document.find("Some").charFormat().font().pixelSize()
    code = document.find("x = 1").charFormat().font().pixelSize()
    return words, code, page.composer.edit.font().pixelSize()


def test_zoom_by_keys_and_wheel_is_kept_and_holds_in_every_tab(make_window, tmp_path):
    window, _ = make_window()
    window.preferences.attach(SettingsFile(tmp_path))
    page = window.page(chat_with_words(window))
    assert sizes(page) == (15, 13, 15) and page.view.column.width == 740
    for _ in range(3):
        QTest.keyClick(window, Qt.Key.Key_Plus, Qt.KeyboardModifier.ControlModifier)
    assert sizes(page) == (22, 20, 22) and page.view.column.full_width == 1110 and SettingsFile(tmp_path).settings.zoom == 150
    assert page.view.document().find("A question").charFormat().font().pixelSize() == 22
    other = window.page(chat_with_words(window))
    assert sizes(other) == (22, 20, 22)
    QTest.keyClick(window, Qt.Key.Key_Minus, Qt.KeyboardModifier.ControlModifier)
    assert window.preferences.settings.zoom == 125
    place = QPointF(200, 200)
    for _ in range(len(ZOOMS)):
        wheel = QWheelEvent(
            place,
            other.view.viewport().mapToGlobal(place),
            QPoint(),
            QPoint(0, -120),
            Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.ControlModifier,
            Qt.ScrollPhase.NoScrollPhase,
            False,
        )
        QApplication.sendEvent(other.view.viewport(), wheel)
    assert window.preferences.settings.zoom == ZOOMS[0] and sizes(other)[0] == 10
    window.preferences.zoom(0)
    assert sizes(other) == sizes(page) == (15, 13, 15)
    window.toggle_theme()
    assert sizes(page) == (15, 13, 15)


def test_the_reader_stays_at_its_place_when_the_words_grow(make_window):
    window, _ = make_window()
    chat_id = chat_with_words(window)
    for number in range(40):
        window.book.add_user(chat_id, f"More {number} " + "words " * 60)
    page = window.page(chat_id)
    page.refresh(False)
    settle()
    middle = window.book[chat_id].messages[20]
    page.view.go_to(middle.id, 0)
    settle()
    assert page.view.scroll_place().message_id == middle.id
    window.preferences.zoom(1)
    settle()
    assert page.view.scroll_place().message_id == middle.id


def test_ctrl_enter_sends_where_that_was_chosen(make_window, tmp_path):
    window, engine = make_window()
    window.preferences.attach(SettingsFile(tmp_path))
    window.overlays.open_settings("send")
    card = window.overlays.settings_card
    assert "Send with" in card.shown()
    card.send_box.setCurrentIndex(card.send_box.findData("ctrl+enter"))
    card.send_box.activated.emit(card.send_box.currentIndex())
    window.overlays.close_open()
    assert SettingsFile(tmp_path).settings.send == "ctrl+enter"
    page = window.page(window.new_chat())
    QTest.keyClicks(page.composer.edit, "one")
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Return)
    QTest.keyClicks(page.composer.edit, "two")
    assert page.composer.text == "one\ntwo" and not engine.submitted and "Ctrl+Enter" in page.composer.button.toolTip()
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert page.composer.text == "" and engine.prompts[-1][-1].content == "one\ntwo"
    window.preferences.change(send="enter")
    QTest.keyClicks(page.composer.edit, "three")
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Return)
    assert page.composer.text == ""


@pytest.mark.parametrize("damage", [{"geometry": "no such thing"}, {"geometry": ""}, {"geometry": 7}, {"panel": "x", "geometry": "AAAA"}])
def test_the_window_stands_where_it_stood(make_window, damage):
    window, _ = make_window()
    chat_with_words(window)
    window.setGeometry(60, 70, 640, 500)
    window.parts.toggle_panel()
    window.parts.toggle_sidebar()
    text = describe(window)
    other, _ = make_window(book=window.book)
    restore(other, text)
    assert other.geometry() == window.geometry()
    assert not other.parts.panel.isHidden() and other.sidebar.collapsed and other.parts.row.panel_button.isChecked()
    third, _ = make_window(book=window.book)
    size = third.size()
    restore(third, json.dumps({**json.loads(text), **damage}))
    assert third.size() == size and third.current_chat == window.current_chat


def test_a_maximised_window_is_maximised_again_and_knows_its_smaller_size(make_window):
    window, _ = make_window()
    window.setGeometry(60, 70, 640, 500)
    window.showMaximized()
    settle()
    text = describe(window)
    other, _ = make_window()
    restore(other, text)
    other.show()
    settle()
    assert other.isMaximized()
    other.showNormal()
    settle()
    assert (other.width(), other.height()) == (640, 500)


def test_a_window_whose_screen_is_gone_comes_onto_one_that_is_there(make_window):
    window, _ = make_window()
    window.setGeometry(9000, 4000, 640, 500)
    text = describe(window)
    other, _ = make_window()
    restore(other, text)
    assert QGuiApplication.primaryScreen().availableGeometry().intersected(other.frameGeometry()).width() > 300


def test_typing_anywhere_is_writing(make_window):
    window, _ = make_window()
    page = window.page(chat_with_words(window))
    for widget, letter in ((window.tabs, "a"), (window.parts.row.plus, "b"), (page.view, "c"), (window, "d")):
        widget.setFocus()
        QTest.keyClicks(widget, letter)
    QTest.keyClick(window.tabs, Qt.Key.Key_E, Qt.KeyboardModifier.AltModifier)
    assert page.composer.text == "abcd"
