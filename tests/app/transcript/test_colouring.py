"""Long code is written plain and gets its colours a little at a time; what it says never changes."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QTextCursor

from app.transcript import colouring
from app.transcript.highlight import highlight, runs_of
from tests.app.conftest import settle

LINE = "    number = f(1)  # why \U0001f68c\n"
CODE = "def f(x):\n" + LINE * 400


def colours(view) -> set[str]:
    found = set()
    block = view.document().begin()
    while block.isValid():
        at = block.begin()
        while not at.atEnd():
            if "why" in at.fragment().text() or "def" in at.fragment().text():
                found.add(at.fragment().charFormat().foreground().color().name())
            at += 1
        block = block.next()
    return found


def answer(desk, code: str):
    message = desk.ask("code")
    desk.say(message, f"Before.\n\n```py\n{code}```\n\nAfter.")
    desk.end(message)
    settle()
    return message


def test_long_code_gets_the_colours_that_short_code_has_and_stays_what_it_was(desk, qtbot, monkeypatch):
    short = "def f(x):\n" + LINE
    answer(desk, short)
    wanted = colours(desk.view)
    assert len(wanted) == 2
    monkeypatch.setattr(colouring, "SLICE_S", 0.001)
    desk.view.rebuild()
    message = answer(desk, CODE)
    before = desk.view.document().toPlainText()
    waiting = desk.view.findChild(colouring.Colouring)
    assert waiting.busy  # the answer is there, its colours come
    qtbot.waitUntil(lambda: not waiting.busy, timeout=20_000)
    assert colours(desk.view) == wanted and desk.view.document().toPlainText() == before
    assert desk.view.entry_of(message.id).code(0) == CODE
    last = desk.view.document().find("why", QTextCursor(desk.view.document().lastBlock()), desk.view.document().FindFlag.FindBackward)
    assert last.charFormat().foreground().color().name() in wanted


def test_code_that_is_gone_is_left_alone(desk, qtbot, monkeypatch):
    monkeypatch.setattr(colouring, "SLICE_S", 0.0)
    answer(desk, CODE)
    waiting = desk.view.findChild(colouring.Colouring)
    assert waiting.busy
    desk.view.rebuild()
    assert waiting.busy  # written anew, to be coloured anew
    desk.view._mirror.forget()
    desk.view.clear()
    assert not waiting.busy
    desk.view.rebuild()


@pytest.mark.parametrize("language", ["py", "", "no such language", "json"])
@pytest.mark.parametrize("code", ["", "a\r\nb", CODE, "\ufeffx = 1\n", "\x00 {"])
def test_runs_join_to_the_code(code, language):
    runs = highlight(code, language)
    assert "".join(text for text, _ in runs) == code and runs == list(runs_of(code, language))
