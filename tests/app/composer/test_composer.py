"""The composer's keys: what sends, what does not, and an Enter that belongs to an input method."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.composer import Composer
from app.theme import Theme
from tests.app.conftest import settle

ENTER = Qt.Key.Key_Return
SHIFT = Qt.KeyboardModifier.ShiftModifier


@pytest.fixture
def composer(qapp, no_leftovers):
    widget = Composer(Theme.dark())
    widget.resize(700, 60)
    widget.show()
    widget.sent_texts = []
    widget.sent.connect(widget.sent_texts.append)
    yield widget
    widget.close()
    widget.deleteLater()
    settle()


def compose(composer, preedit: str, commit: str = "") -> None:
    event = QInputMethodEvent(preedit, [])
    if commit:
        event.setCommitString(commit)
    QApplication.sendEvent(composer.edit, event)


def test_enter_sends_and_empties_the_box(composer):
    QTest.keyClicks(composer.edit, "hello")
    QTest.keyClick(composer.edit, ENTER)
    assert composer.sent_texts == ["hello"] and composer.text == ""


def test_shift_enter_is_a_new_line(composer):
    QTest.keyClicks(composer.edit, "one")
    QTest.keyClick(composer.edit, ENTER, SHIFT)
    QTest.keyClicks(composer.edit, "two")
    assert composer.sent_texts == []
    QTest.keyClick(composer.edit, Qt.Key.Key_Enter)
    assert composer.sent_texts == ["one\ntwo"]


def test_blank_text_is_not_sent(composer):
    QTest.keyClicks(composer.edit, "   ")
    QTest.keyClick(composer.edit, ENTER)
    assert composer.sent_texts == [] and not composer.button.isEnabled()


def test_enter_never_sends_while_an_input_method_composes(composer):
    compose(composer, "にほ")
    assert composer.edit.composing
    QTest.keyClick(composer.edit, ENTER)
    assert composer.sent_texts == []
    compose(composer, "", commit="日本")
    assert composer.text == "日本" and not composer.edit.composing
    QTest.keyClick(composer.edit, ENTER)
    assert composer.sent_texts == ["日本"]


def test_the_button_is_send_then_stop_in_the_same_place(composer):
    before = composer.button.geometry()
    stops = []
    composer.stop_asked.connect(lambda: stops.append(1))
    composer.set_running(True)
    settle()
    assert composer.button.accessibleName() == "Stop" and composer.button.geometry() == before
    QTest.mouseClick(composer.button, Qt.MouseButton.LeftButton)
    assert stops == [1] and composer.sent_texts == []
    composer.set_running(False)
    QTest.keyClicks(composer.edit, "x")
    assert composer.button.accessibleName() == "Send"
    QTest.mouseClick(composer.button, Qt.MouseButton.LeftButton)
    assert composer.sent_texts == ["x"]


def test_enter_still_hands_text_over_while_an_answer_is_written(composer):
    composer.set_running(True)
    QTest.keyClicks(composer.edit, "next")
    QTest.keyClick(composer.edit, ENTER)
    assert composer.sent_texts == ["next"]


def test_held_messages_go_out_with_an_empty_enter(composer):
    composer.set_follow_ups(["one", "two"], held=True)
    assert composer.follow_up_count == 2 and composer.button.isEnabled()
    QTest.keyClick(composer.edit, ENTER)
    assert composer.sent_texts == [""]
    composer.set_follow_ups(["two"], held=False)
    QTest.keyClick(composer.edit, ENTER)
    assert composer.sent_texts == [""]


def test_the_box_grows_to_its_bound_and_no_further(composer):
    composer.bound_height(500)
    small = composer.edit.height()
    composer.set_text("\n".join("line" for _ in range(4)))
    assert small < composer.edit.height() < 200
    composer.set_text("\n".join("line" for _ in range(80)))
    assert composer.edit.height() == 200
    composer.set_text("")
    assert composer.edit.height() == small


def test_up_in_an_empty_box_recalls_and_elsewhere_moves(composer):
    recalls = []
    composer.recalled.connect(lambda: recalls.append(1))
    QTest.keyClick(composer.edit, Qt.Key.Key_Up)
    QTest.keyClicks(composer.edit, "x")
    QTest.keyClick(composer.edit, Qt.Key.Key_Up)
    assert recalls == [1]


def test_only_text_is_pasted(composer):
    data = QMimeData()
    data.setHtml('<b>bold</b><img src="http://127.0.0.1:9/x.png">')
    data.setText("bold")
    composer.edit.insertFromMimeData(data)
    assert composer.text == "bold"
    assert "<img" not in composer.edit.toHtml() and "font-weight:700" not in composer.edit.toHtml()


def test_a_draft_is_told_as_it_is_typed(composer):
    drafts = []
    composer.draft_changed.connect(drafts.append)
    QTest.keyClicks(composer.edit, "ab")
    assert drafts == ["a", "ab"]
