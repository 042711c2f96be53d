"""The transcript's rows that a reader sees and does: where words stand, when the view follows, and every action by keyboard alone."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QPointF, QRectF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QToolButton

from app.chats.model import ChatMessage
from app.transcript.formats import Kind
from app.transcript.reading import FOLLOW_PIXELS
from app.transcript.wording import summary
from app.transcript.writer import frame_kind
from engine import FinishReason, TimeSplit, Usage
from tests.app.conftest import settle
from tests.app.ux.desk import ALT, NONE, answered, asked, press, tick

LINES = [f"line {number}\n\n" for number in range(200)]


def bubble_of(view, entry) -> QRectF:
    """The bubble of a question, in the document."""
    frame = next(frame for frame in entry.frames if frame_kind(frame) is Kind.BUBBLE)
    margins = frame.frameFormat()
    rect = view.document().documentLayout().frameBoundingRect(frame)
    return rect.adjusted(margins.leftMargin(), margins.topMargin(), -margins.rightMargin(), -margins.bottomMargin())


def test_questions_stand_in_a_bubble_at_the_right_and_answers_fill_the_column(make_window):
    window, engine = make_window()
    words = "many words in one paragraph " * 30
    view = window.page(answered(window, engine, words)).view
    question, answer = view.entries
    left, right = view.column.left, view.column.left + view.column.width
    layout = view.document().documentLayout()
    box = bubble_of(view, question)
    assert abs(box.right() - right) <= 2 and box.width() < view.column.width / 2 and box.left() > left + view.column.width / 2
    assert all(frame_kind(frame) is not Kind.BUBBLE for frame in answer.frames)
    words = view.document().find("question 0").block()
    start = layout.blockBoundingRect(words).left() + words.layout().lineAt(0).x()
    end = start + words.layout().lineAt(0).naturalTextWidth()
    assert abs((start - box.left()) - (box.right() - end)) <= 3, "as much room at either side of the words"
    block = view.document().find("many words").block()
    line = block.layout().lineAt(0)
    assert layout.blockBoundingRect(block).left() <= left + 2 and line.naturalTextWidth() > 0.9 * view.column.width


def test_an_answer_shows_tables_tasks_strikethrough_and_the_language_of_code(make_window):
    window, engine = make_window()
    answer = "| a | b |\n|---|---|\n| 1 | 2 |\n\n- [ ] open\n- [x] done\n\n~~gone~~ **bold**\n\n```python\nx = 1\n```\n"
    view = window.page(answered(window, engine, answer)).view
    text = view.document().toPlainText()
    assert "☐ open" in text and "☑ done" in text and "|" not in text and "~~" not in text and "```" not in text
    assert view.document().find("gone").charFormat().fontStrikeOut() and view.document().find("bold").charFormat().fontWeight() > 500
    assert view.document().find("1").currentTable() is not None
    assert "python" in text.lower() and "Copy" in text


def long_answer(window, engine):
    """The view of an answer that is still being written, longer than the screen, and its scroll bar."""
    chat_id = asked(window, engine, [*LINES, *("more\n\n" for _ in range(300))], prefill_ticks=0)
    tick(window, engine, len(LINES))
    view = window.page(chat_id).view
    bar = view.verticalScrollBar()
    assert view.following and bar.value() == bar.maximum() > 2 * view.height()
    return view, bar


def more(window, engine, view) -> None:
    """Forty lines more are written."""
    before = view.document().blockCount()
    tick(window, engine, 40)
    view.sync()  # what was costly would wait a moment
    settle()
    assert view.document().blockCount() >= before + 40


def test_the_view_follows_within_ten_pixels_of_the_end_and_no_further(make_window):
    window, engine = make_window()
    view, bar = long_answer(window, engine)
    bar.setValue(bar.maximum() - FOLLOW_PIXELS)
    assert FOLLOW_PIXELS == 10 and view.following
    more(window, engine, view)
    assert bar.value() == bar.maximum()
    bar.setValue(bar.maximum() - FOLLOW_PIXELS - 1)
    assert not view.following
    place = bar.value()
    more(window, engine, view)
    assert bar.value() == place


def wheel(view) -> None:
    place = QPointF(view.viewport().rect().center())
    up, no = QPoint(0, 120), Qt.MouseButton.NoButton
    event = QWheelEvent(place, view.viewport().mapToGlobal(place), QPoint(), up, no, NONE, Qt.ScrollPhase.NoScrollPhase, False)
    QApplication.sendEvent(view.viewport(), event)


def page_up(view) -> None:
    QTest.keyClick(view, Qt.Key.Key_PageUp)


def drag(view) -> None:
    bar = view.verticalScrollBar()
    bar.setSliderDown(True)
    bar.setSliderPosition(bar.maximum() - 200)
    bar.setSliderDown(False)


@pytest.mark.parametrize("away", [wheel, page_up, drag])
def test_the_reader_lets_go_at_once_and_the_end_takes_hold_again(make_window, away):
    window, engine = make_window()
    view, bar = long_answer(window, engine)
    away(view)
    place = bar.value()
    assert place < bar.maximum() - FOLLOW_PIXELS and not view.following
    more(window, engine, view)
    assert bar.value() == place and not view.following
    bar.setValue(bar.maximum())
    assert view.following
    more(window, engine, view)
    assert bar.value() == bar.maximum()


def test_a_round_button_leads_to_the_end_after_half_a_screen(make_window):
    window, engine = make_window()
    view, bar = long_answer(window, engine)
    half = view.viewport().height() // 2
    (button,) = [button for button in view.findChildren(QToolButton) if button.accessibleName() == "To the bottom"]
    assert not button.isVisible() and button.width() == button.height()
    bar.setValue(bar.maximum() - half)
    assert not button.isVisible()
    bar.setValue(bar.maximum() - half - 1)
    assert button.isVisible()
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    settle()
    assert bar.value() == bar.maximum() and view.following and not button.isVisible()


def reached_by_tab(window) -> list:
    """What the focus goes through from the composer on, with Tab alone, until it is back."""
    window.focus_composer()
    settle()
    first = QApplication.focusWidget()
    reached = [first]
    for _ in range(200):
        press(window, Qt.Key.Key_Tab)
        if QApplication.focusWidget() is first:
            return reached
        reached.append(QApplication.focusWidget())
    raise AssertionError("Tab never comes back")


def test_every_action_under_the_last_answer_is_reached_and_done_by_keyboard(make_window, qapp):
    window, engine = make_window()
    window.activateWindow()
    chat_id = answered(window, engine, "the answer")
    bar = window.page(chat_id).view.bars.pinned
    assert bar.names == ("copy", "retry", "edit", "branch", "delete")
    reached = reached_by_tab(window)
    assert [button for button in reached if button in [bar.button(name) for name in bar.names]] == [bar.button(n) for n in bar.names]
    bar.button("copy").setFocus()
    press(window, Qt.Key.Key_Space)
    assert qapp.clipboard().text() == "the answer"
    bar.button("edit").setFocus()
    press(window, Qt.Key.Key_Space)
    assert window.page(chat_id).composer.editing
    press(window, Qt.Key.Key_Escape)
    bar.button("delete").setFocus()
    press(window, Qt.Key.Key_Space)
    assert len(window.book[chat_id].messages) == 1


def test_messages_further_up_are_marked_by_keys_and_their_actions_reached(make_window):
    window, engine = make_window()
    window.activateWindow()
    chat_id = answered(window, engine, "one", "two")
    view = window.page(chat_id).view
    for _ in range(3):
        press(window, Qt.Key.Key_Up, ALT)
    assert view.bars.marked == window.book[chat_id].messages[1].id and view.bars.floating.isVisible()
    view.bars.floating.button("branch").setFocus()
    press(window, Qt.Key.Key_Space)
    assert [message.text for message in window.book[window.current_chat].messages] == ["question 0", "one"]


def test_under_an_answer_stands_where_its_time_went(qapp):
    message = ChatMessage("m", "assistant", "x", usage=Usage(10, 157), time=TimeSplit(0.2, 0.4, 5.0, 0.1, 0.6), reason=FinishReason.LENGTH)
    words = summary(message).replace("\xa0", " ")
    assert words == "waited 0.30 s · prefill 0.40 s · decode 5.0 s · 31.2 tok/s · 157 tokens · ended at its length limit"
