"""Selecting with the mouse from one message, or one block of code, into another: exactly what it was drawn over."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QGuiApplication, QMouseEvent
from PySide6.QtTest import QTest

from tests.app.conftest import settle

LEFT, SHIFT, NONE = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.NoModifier
ANSWER = (
    "Answer one{0} two{0} three{0}.\n\nSecond four{0} five{0}.\n\n```py\nx{0} = 1\ny{0} = 2\n```\n\nLast seven{0} [eight{0}](https://a.b/)."
)


@pytest.fixture
def view(desk):
    desk.view.resize(900, 900)
    for number in range(2):
        answer = desk.ask(f"question alpha{number} beta{number}")
        desk.say(answer, ANSWER.format(number))
        desk.end(answer)
    settle()
    desk.view.verticalScrollBar().setValue(0)
    settle()
    return desk.view


def point(view, words: str, behind: bool = False) -> QPoint:
    """In the middle of the line, before or behind words."""
    found = view.document().find(words)
    assert not found.isNull()
    end = found.selectionEnd() if behind else found.selectionStart()
    found.setPosition(end)
    return view.cursorRect(found).center()


def move(view, place: QPoint) -> None:
    """The mouse, with its left button held."""
    at = QPointF(place)
    event = QMouseEvent(QEvent.Type.MouseMove, at, view.viewport().mapToGlobal(at), Qt.MouseButton.NoButton, LEFT, NONE)
    QGuiApplication.sendEvent(view.viewport(), event)


def draw(view, begin: str, end: str) -> None:
    first, last = point(view, begin), point(view, end, behind=True)
    QTest.mousePress(view.viewport(), LEFT, NONE, first)
    move(view, (first + last) / 2)
    move(view, last)
    QTest.mouseRelease(view.viewport(), LEFT, NONE, last)
    settle()


def copied(view) -> str:
    QGuiApplication.clipboard().setText("nothing")
    QTest.keyClick(view, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    return QGuiApplication.clipboard().text()


@pytest.mark.parametrize(
    ("begin", "end", "wanted"),
    [
        ("two0", "five0", "two0 three0.\n\nSecond four0 five0"),
        ("five0", "y0", "five0.\n\nx0 = 1\ny0"),
        ("y0", "seven0", "y0 = 2\n\nLast seven0"),
        ("beta0", "two0", "beta0\n\nAnswer one0 two0"),
        ("seven0", "alpha1", "seven0 eight0.\n\nquestion alpha1"),
        ("y0", "x1", None),
    ],
)
def test_what_it_was_drawn_over_is_selected_and_copied(view, begin, end, wanted):
    draw(view, begin, end)
    got = copied(view)
    if wanted is None:  # from code to code, a whole message between
        assert got.startswith("y0 = 2\n\nLast") and got.endswith("x1") and "question alpha1 beta1" in got
        assert "y1" not in got and "x0" not in got
    else:
        assert got == wanted
    first, last = view.selection.span
    document = view.document()
    assert (first, last) == (document.find(begin).selectionStart(), document.find(end).selectionEnd())
    assert view.createMimeDataFromSelection().text() == got


def test_drawn_backwards_it_is_the_same_and_what_is_marked_is_what_is_copied(view):
    draw(view, "beta0", "y0")
    forwards = copied(view)
    marked = " ".join(mark.cursor.selectedText() for mark in view.extraSelections())
    assert marked.split() == forwards.split() and not view.textCursor().hasSelection()
    first, last = point(view, "beta0"), point(view, "y0", behind=True)
    QTest.mousePress(view.viewport(), LEFT, NONE, last)
    move(view, first)
    QTest.mouseRelease(view.viewport(), LEFT, NONE, first)
    assert copied(view) == forwards


def test_back_within_one_message_it_is_qts_own_again(view):
    QTest.mousePress(view.viewport(), LEFT, NONE, point(view, "four0"))
    move(view, point(view, "beta1", behind=True))
    assert view.extraSelections() and not view.textCursor().hasSelection()
    move(view, point(view, "five0", behind=True))
    QTest.mouseRelease(view.viewport(), LEFT, NONE, point(view, "five0", behind=True))
    assert view.textCursor().selectedText() == "four0 five0" and view.extraSelections() == []


def test_shift_and_a_click_reach_further_and_a_click_lets_go(view):
    QTest.mouseClick(view.viewport(), LEFT, NONE, point(view, "two0"))
    QTest.mouseClick(view.viewport(), LEFT, SHIFT, point(view, "alpha1", behind=True))
    assert copied(view).startswith("two0 three0.") and copied(view).endswith("question alpha1")
    QTest.mouseClick(view.viewport(), LEFT, SHIFT, point(view, "x0", behind=True))
    assert copied(view).endswith("x0") and copied(view).startswith("two0 three0.")
    QTest.mouseClick(view.viewport(), LEFT, NONE, point(view, "four0"))
    assert view.selection.span is None and view.extraSelections() == [] and copied(view) == "nothing"


def test_letting_go_over_a_link_opens_nothing(view):
    asked = []
    view.link_asked.connect(asked.append)
    view.anchorClicked.connect(asked.append)
    draw(view, "alpha0", "eight0")
    link = point(view, "eight0") + QPoint(8, 0)
    QTest.mousePress(view.viewport(), LEFT, NONE, point(view, "alpha0"))
    move(view, link)
    QTest.mouseRelease(view.viewport(), LEFT, NONE, link)
    assert asked == [] and view.selection.span is not None
    QTest.mouseClick(view.viewport(), LEFT, NONE, link)
    assert len(asked) >= 1


def test_it_stays_while_an_answer_is_written_and_holds_only_what_it_touches(desk, view):
    answer = desk.ask("more")
    desk.say(answer, "Begun here.\n\nThe tail")
    draw(view, "seven1", "Begun")
    before = copied(view)
    desk.say(answer, " grows.\n\nAnd more")
    assert copied(view) == before and "grows" in view.document().toPlainText()
    draw(view, "seven1", "And")
    desk.say(answer, " still")
    assert "still" not in view.document().toPlainText()
    QTest.mouseClick(view.viewport(), LEFT, NONE, point(view, "alpha0"))
    assert "still" in view.document().toPlainText()


def test_all_or_the_keyboard_or_another_chat_take_its_place(desk, view):
    draw(view, "beta0", "two0")
    QTest.keyClick(view, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    assert view.selection.everything and view.extraSelections() == [] and "alpha1" in copied(view)
    draw(view, "beta0", "two0")
    QTest.keyClick(view, Qt.Key.Key_Left, SHIFT)
    assert view.extraSelections() == []
    draw(view, "beta0", "two0")
    view.rebuild()
    assert view.selection.span is None and view.extraSelections() == []


def test_held_below_the_view_it_scrolls_on(view, qtbot):
    view.resize(900, 260)
    settle()
    bar = view.verticalScrollBar()
    bar.setValue(0)
    QTest.mousePress(view.viewport(), LEFT, NONE, point(view, "alpha0"))
    move(view, QPoint(300, view.viewport().height() + 120))
    qtbot.waitUntil(lambda: bar.value() == bar.maximum() > 0, timeout=10_000)
    first, last = view.selection.span
    assert first == view.document().find("alpha0").selectionStart() and last > view.document().find("beta1").selectionEnd()
    QTest.mouseRelease(view.viewport(), LEFT, NONE, QPoint(300, 100))
    place = bar.value()
    bar.setValue(0)
    settle()
    assert bar.value() == 0 < place and view.selection.span == (first, last)
