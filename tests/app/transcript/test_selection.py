"""Selecting, copying and finding in a chat of which only a stretch is written."""

from __future__ import annotations

import os
import subprocess
import sys

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication, QTextCursor
from PySide6.QtTest import QTest

from app.transcript.mirror import FIRST_BUILT, MOST_BUILT
from tests.app.conftest import settle
from tests.app.transcript.conftest import make_end

COUNT = 3 * MOST_BUILT // 2


def fill(desk, count: int = COUNT) -> str:
    """A chat of `2 * count` messages; what copying all of it must give."""
    pieces = []
    for number in range(count):
        question, words = f"question *{number}*", f"Answer {number}.\n\n```py\nx = {number}\n```"
        desk.book.add_user(desk.chat.id, question)
        answer = desk.book.begin_answer(desk.chat.id)
        desk.book.append(answer, f"<think>hm {number}</think>" + words if number % 7 == 0 else words)
        desk.book.finish(desk.chat.id, answer, make_end())
        pieces += [question, words]
    desk.view.rebuild()
    settle()
    return "\n\n".join(pieces)


def test_all_is_copied_in_order_though_little_of_it_is_written(desk):
    whole = fill(desk)
    assert len(desk.view.entries) == FIRST_BUILT
    QTest.keyClick(desk.view, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    assert desk.view.selection.everything and desk.view.textCursor().hasSelection()
    QTest.keyClick(desk.view, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == whole


COPIES = """
import sys
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from app.chats.book import ChatBook
from app.theme import Theme
from app.transcript.view import TranscriptView
app, book = QApplication([]), ChatBook()
chat = book.new_chat()
book.add_user(chat.id, "copied")
view = TranscriptView(Theme.dark())
view.show_chat(chat)
view.selectAll()
QTest.keyClick(view, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
print(app.clipboard().text())
"""


def test_a_program_that_has_copied_something_ends_in_order():
    """The clipboard of a machine without a screen goes after Python has: what lies in it must not be Python's."""
    ended = subprocess.run([sys.executable, "-c", COPIES], capture_output=True, text=True, timeout=60, env=os.environ)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "copied\n", "")


def test_all_stays_selected_while_more_is_written_and_any_other_selection_ends_it(desk):
    whole = fill(desk)
    desk.view.selection.select_all()
    desk.view.verticalScrollBar().setValue(0)
    settle()
    assert len(desk.view.entries) > FIRST_BUILT and desk.view.selection.source() == whole
    cursor = desk.view.textCursor()
    assert (cursor.selectionStart(), cursor.selectionEnd()) == (0, desk.view.document().characterCount() - 1)
    desk.view.setTextCursor(desk.view.document().find("Answer"))
    assert not desk.view.selection.everything and desk.view.selection.source() == "Answer"


def test_what_is_selected_is_not_taken_out_while_one_scrolls_on(desk):
    count = MOST_BUILT // 2 + 10
    fill(desk, count)
    first = desk.chat.messages[0]
    desk.view.go_to(first.id)
    settle()
    cursor = desk.view.document().find("question *0*")
    cursor.setPosition(cursor.selectionStart())
    bar = desk.view.verticalScrollBar()
    while not desk.view._mirror.at_end:  # as when one drags down, or holds Shift and clicks far below
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        desk.view.setTextCursor(cursor)
        bar.setValue(bar.maximum())
        settle()
        cursor = desk.view.textCursor()
    assert len(desk.view.entries) == 2 * count > MOST_BUILT
    copied = desk.view.selection.source()
    assert copied.startswith("question *0*") and "Answer 90." in copied
    cursor.clearSelection()
    desk.view.setTextCursor(cursor)
    bar.setValue(0)
    settle()
    bar.setValue(bar.maximum() // 2)
    desk.view.scroll_to_end()
    desk.say(desk.ask(), "more")
    assert len(desk.view.entries) <= MOST_BUILT


def test_a_find_of_a_search_far_back_is_brought_into_view_and_selected(desk):
    fill(desk)
    wanted = desk.chat.messages[41]
    desk.view.finder.show(wanted.id, "x 20")
    settle()
    entry = desk.view.entry_of(wanted.id)
    assert entry is not None and not desk.view.following
    assert desk.view.textCursor().selectedText() == "20"
    place = desk.view.cursorRect(desk.view.textCursor())
    assert 0 <= place.top() < desk.view.viewport().height()
    assert entry.part().start <= desk.view.textCursor().selectionStart() <= entry.part().end
    desk.view.finder.show(desk.chat.messages[-1].id, "")
    assert desk.view.entry_of(desk.chat.messages[-1].id) is not None


def test_the_menu_copies_selects_and_knows_links(desk):
    desk.say(answer := desk.ask("please"), "See [this](https://example.org/a) and [that](action:retry:x).\n\n")
    desk.end(answer)
    settle()

    def actions(words: str):
        rect = desk.view.cursorRect(desk.view.document().find(words))
        menu = desk.view.selection.menu(rect.center() - QPoint(4, 0))
        return {action.text(): action for action in menu.actions() if action.text()}

    assert list(actions("this")) == ["Copy", "Select all", "Copy link address"] and list(actions("that")) == ["Copy", "Select all"]
    assert not actions("that")["Copy"].isEnabled()
    actions("this")["Copy link address"].trigger()
    assert QGuiApplication.clipboard().text() == "https://example.org/a"
    actions("that")["Select all"].trigger()
    assert desk.view.selection.everything
    actions("that")["Copy"].trigger()
    assert QGuiApplication.clipboard().text().startswith("please\n\nSee [this](https://example.org/a)")
