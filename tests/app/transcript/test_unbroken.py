"""Stretches without a blank: shown with places to break at, copied and stored without them; in the box to write in, too."""

from __future__ import annotations

import json

import pytest
from PySide6.QtGui import QTextCursor, QTextOption

from app.transcript.unbroken import BREAK, MOST, insert_words, is_unbroken
from tests.app.conftest import settle
from tests.app.fakes import Script

LONG = "QUJD" * 1500
JSON = json.dumps([{"name": "x" * 7, "n": number} for number in range(900)], separators=(",", ":"))


def longest(text: str) -> int:
    return max(len(word) for word in text.replace(BREAK, " ").split())


def test_what_counts_as_unbroken():
    assert is_unbroken("x" * (MOST + 1)) and is_unbroken(f"see {LONG}") and is_unbroken(JSON)
    assert not is_unbroken("word " * 2000) and not is_unbroken("x" * MOST) and not is_unbroken("長" * 5000)


@pytest.mark.parametrize("text", ["", "a b", LONG, f"{LONG} and {LONG}\nend", "é" + "x" * (MOST + 1)])
def test_all_of_it_is_written(qapp, text):
    from PySide6.QtGui import QTextCharFormat, QTextDocument

    document = QTextDocument()
    insert_words(QTextCursor(document), text, QTextCharFormat())
    assert document.toPlainText().replace(BREAK, "") == text and (not text or longest(document.toPlainText()) <= MOST + 1)


@pytest.mark.parametrize("answer", [LONG, f"so `{LONG}` it is", f"```\n{JSON}\n```", f"- item\n- {LONG}", f"| a |\n|---|\n| {LONG} |"])
def test_a_chat_of_it_is_laid_out_in_pieces_and_copied_as_it_was(make_window, answer):
    window, engine = make_window()
    engine.scripts.append(Script([answer]))
    chat = window.new_chat()
    window.send(chat, f"what is {LONG}")
    engine.run()
    window.bridge.drain()
    settle()
    said = window.book[chat].last.text
    view = window.page(chat).view
    words = view.document().toPlainText().replace("\u2028", "\n")
    assert max(longest(line) for line in words.split("\n") if line.strip()) <= max(1500, MOST + 1)
    view.selectAll()
    copied = view.createMimeDataFromSelection().text()
    assert BREAK not in copied and said.strip() in copied and f"what is {LONG}" in copied
    cursor = view.textCursor()  # a part of a message, whose words are taken from the document
    cursor.setPosition(view.document().toPlainText().index("QUJD") + 4)
    cursor.setPosition(cursor.position() + 3000, QTextCursor.MoveMode.KeepAnchor)
    view.setTextCursor(cursor)
    part = view.createMimeDataFromSelection().text()
    assert BREAK not in part and part in LONG


@pytest.mark.parametrize("code", [LONG, JSON])
def test_a_part_of_code_is_copied_letter_by_letter(make_window, code):
    window, engine = make_window()
    engine.scripts.append(Script([f"so:\n\n```\n{code}\n```\nbye"]))
    chat = window.new_chat()
    window.send(chat, "what is it")
    engine.run()
    window.bridge.drain()
    settle()
    view = window.page(chat).view
    cursor = view.textCursor()
    cursor.setPosition(view.document().toPlainText().index(code[:20]) + 4)
    cursor.setPosition(cursor.position() + 4000, QTextCursor.MoveMode.KeepAnchor)
    view.setTextCursor(cursor)
    part = view.createMimeDataFromSelection().text()
    assert len(part) > 3900 and part in code, "no line of ours within one of its own"


def test_the_box_breaks_anywhere_while_it_holds_it(make_window):
    window, _ = make_window()
    composer = window.page(window.current_chat).composer
    edit, mode = composer.edit, QTextOption.WrapMode
    assert edit.wordWrapMode() == mode.WrapAtWordBoundaryOrAnywhere
    composer.files.unfolded.emit(LONG)
    assert edit.wordWrapMode() == mode.WrapAnywhere and composer.text == LONG
    edit.clear()
    assert edit.wordWrapMode() == mode.WrapAtWordBoundaryOrAnywhere
    composer.set_text(LONG)
    assert edit.wordWrapMode() == mode.WrapAnywhere
    composer.set_text("a few words")
    assert edit.wordWrapMode() == mode.WrapAtWordBoundaryOrAnywhere
