"""Selecting with the mouse or by keyboard from one message, or one block of code, into another: exactly what was drawn over or reached."""

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


def test_all_or_another_chat_take_its_place(desk, view):
    draw(view, "beta0", "two0")
    QTest.keyClick(view, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    assert view.selection.everything and view.extraSelections() == [] and "alpha1" in copied(view)
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


# ------------------------------------------------------------------------------------------------------------- keyboard

CONTROL = Qt.KeyboardModifier.ControlModifier


def reach(view, *keys, ctrl=False) -> None:
    for key in keys:
        QTest.keyClick(view, getattr(Qt.Key, f"Key_{key}"), SHIFT | CONTROL if ctrl else SHIFT)


def test_keys_reach_over_the_borders_of_messages_and_code_a_character_at_a_time(view):
    QTest.mouseClick(view.viewport(), LEFT, NONE, point(view, "eta0", behind=True))
    assert view.selection.span is None
    reach(view, *["Left"] * 5)
    assert copied(view) == "beta0"
    QTest.mouseClick(view.viewport(), LEFT, NONE, point(view, "eta0"))
    reach(view, *["Right"] * 7)  # four to the end of the question, one over the border, two into the answer
    assert copied(view) == "eta0\n\nAn"
    assert not view.textCursor().hasSelection() and view.selection.span is not None
    reach(view, *["Left"] * 5)
    assert copied(view) == "et" and view.textCursor().selectedText() == "et" and view.extraSelections() == []
    reach(view, *["Left"] * 3)
    assert copied(view) == "b"


def test_keys_pass_over_what_nobody_said(view):
    """The header over code, with its button, and the figures under an answer."""
    QTest.mouseClick(view.viewport(), LEFT, NONE, point(view, "five0.", behind=True))
    reach(view, "Right", "Right")
    assert copied(view) == "x"
    QTest.mouseClick(view.viewport(), LEFT, NONE, point(view, "eight0"))
    reach(view, "Down")
    assert copied(view).startswith("eight0.\n\nquestion")


def test_lines_words_pages_and_the_ends_are_reached(view):
    QTest.mouseClick(view.viewport(), LEFT, NONE, point(view, "two0"))
    reach(view, "End")
    assert copied(view) == "two0 three0."
    reach(view, "Home")
    assert copied(view) == "Answer one0 "
    reach(view, "Right", ctrl=True)
    assert copied(view) == "one0 "
    reach(view, "End", ctrl=True)
    assert copied(view).startswith("two0 three0.") and copied(view).endswith("Last seven1 [eight1](https://a.b/).")
    reach(view, "Home", ctrl=True)
    assert copied(view) == "question alpha0 beta0\n\nAnswer one0 "
    reach(view, "Down", "Up")
    before = copied(view)
    view.resize(900, 150)
    settle()
    reach(view, "PageDown", "PageDown")
    assert len(copied(view)) != len(before) and view.verticalScrollBar().value() > 0


def test_after_the_mouse_the_keys_go_on_where_it_let_go(view):
    draw(view, "beta0", "two0")
    reach(view, *["Right"] * 3)
    assert copied(view) == "beta0\n\nAnswer one0 two0 th"
    first = view.selection.span[0]
    reach(view, "Up", "Up")
    assert view.selection.span[1] <= first + len("beta0")


def test_where_the_caret_is_out_of_sight_what_is_in_view_is_selected(view):
    view.resize(900, 200)
    settle()
    bar = view.verticalScrollBar()
    bar.setValue(bar.maximum())
    settle()
    reach(view, "Right", ctrl=True)
    place = bar.value()
    top = view.cursorForPosition(QPoint(0, 0)).position()
    assert view.selection.span[0] >= top and abs(bar.value() - place) < 40 and copied(view).strip()
