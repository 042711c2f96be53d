"""A block that only grows, of every kind: what a token costs does not grow with it, and nothing of it is lost or shown otherwise."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt
from PySide6.QtCore import QUrl
from PySide6.QtGui import QTextCursor

from app.bench.growth import GROWTHS
from app.transcript.copying import words_between
from app.transcript.draft import LONG
from app.transcript.plain import MOST_CHARACTERS
from tests.app.conftest import settle
from tests.app.transcript.test_view import copied_all, structure

SHORT, LONG_ANSWER = 1_000, 50_000
TOKENS = 120
BLOCK = 10  # a block that Qt only goes past, counted in characters that it lays out


def work_of(view, position: int) -> int:
    """What Qt has to do when something changes here: lay out a block anew, and go past the others of its frame and the frames in it."""
    cursor = QTextCursor(view.document())
    cursor.setPosition(min(position, view.document().characterCount() - 1))
    frame = cursor.currentFrame()
    beside = sum(1 for _ in iterated(frame)) if frame.parentFrame() is not None else 0  # of the whole document it knows where to begin
    return cursor.block().length() + BLOCK * beside


def cost(desk, monkeypatch, growth, length: int) -> float:
    """What a token costs on the mean: characters parsed, characters that left the document and came into it, and what is laid out."""
    answer = desk.ask()
    desk.say(answer, growth.text(length))
    if growth.unfolded:
        desk.view.anchors.follow(QUrl(f"thought:{answer.id}:"))
    settle()
    spent = 0
    parse = MarkdownIt.parse

    def counted(self, source, env=None):
        nonlocal spent
        spent += len(source)
        return parse(self, source, env)

    def changed(at, gone, came):
        nonlocal spent
        spent += gone + came + work_of(desk.view, at + came)

    monkeypatch.setattr(MarkdownIt, "parse", counted)
    desk.view.document().contentsChange.connect(changed)
    for number in range(TOKENS):
        desk.say(answer, growth.tokens[number % len(growth.tokens)])
    desk.view.document().contentsChange.disconnect(changed)
    monkeypatch.setattr(MarkdownIt, "parse", parse)
    return spent / TOKENS


@pytest.mark.parametrize("name", GROWTHS)
def test_a_token_of_a_long_block_costs_what_one_of_a_short_block_does(desk, monkeypatch, name):
    short, long = (cost(desk, monkeypatch, GROWTHS[name], length) for length in (SHORT, LONG_ANSWER))
    assert long <= max(2 * short, 3 * LONG), (short, long)
    assert long > 0 or name == "reasoning"  # which is folded


@pytest.mark.parametrize("name", GROWTHS)
def test_a_long_block_looks_in_the_end_as_if_written_at_once_and_is_copied_as_it_was_said(desk, name):
    growth = GROWTHS[name]
    text = growth.text(3 * LONG)
    answer = desk.ask("Go on.")
    for at in range(0, len(text), 29):
        desk.say(answer, text[at : at + 29])
        if growth.unfolded and at == 29 * 4:
            desk.view.anchors.follow(QUrl(f"thought:{answer.id}:"))
    desk.end(answer)
    streamed = structure(desk.view)
    desk.view.rebuild()
    if growth.unfolded:
        desk.view.anchors.follow(QUrl(f"thought:{answer.id}:"))
    assert streamed == structure(desk.view)
    assert copied_all(desk.view) == ("Go on." if "<think>" in text else "Go on.\n\n" + text.strip("\n"))


@pytest.mark.parametrize("name", ["one paragraph", "quote", "list item", "list item with code", "list item with a list"])
def test_what_follows_a_drafted_block_is_no_part_of_it(desk, name):
    after = "\n\nAnd a paragraph after it.\n\n- a list\n- of two\n"
    text = "Before.\n\n" + GROWTHS[name].text(3 * LONG)
    if "code" in name:
        text += "  ```\n"
    answer = desk.ask()
    for at in range(0, len(text), 29):
        desk.say(answer, text[at : at + 29])
    drafted = desk.view.document().characterCount()
    for at in range(0, len(after), 7):
        desk.say(answer, after[at : at + 7])
    streamed = structure(desk.view)
    assert abs(desk.view.document().characterCount() - drafted) < 400  # it stands there once
    desk.view.rebuild()
    assert streamed == structure(desk.view)


def test_a_part_of_a_long_paragraph_ends_where_its_line_does(desk):
    """So that nothing moves when it is put together in the end."""
    answer = desk.ask()
    text = "Some *more* of the words that a paragraph is made of, all of them in one line. " * 60
    for at in range(0, len(text), 17):
        desk.say(answer, text[at : at + 17])
        settle()
    height = desk.view.document().size().height()
    parts = desk.view.document().find("Some").block().text()
    assert LONG // 2 < len(parts) <= LONG + 40
    desk.end(answer)
    settle()
    assert abs(desk.view.document().size().height() - height) <= 60


@pytest.mark.parametrize("words", ["words with [a link](https://example.org/a/b?c=d) and `code` in it, ", "\u9577\u3044\u6bb5\u843d\u3001"])
def test_no_word_is_cut_in_two_and_no_line_left_half_empty(desk, words):
    answer = desk.ask()
    text = words * (3 * LONG // len(words))
    for at in range(0, len(text), 5):
        desk.say(answer, text[at : at + 5])
        settle()
    block = desk.view.document().find(words[:3]).block()
    parts = []
    while block.isValid() and len(block.text()) > 1:
        parts.append(block)
        block = block.next()
    assert len(parts) >= 2 and "".join(part.text() for part in parts).count("](") == 0
    for part in parts[:-1]:
        lines = [part.layout().lineAt(line).naturalTextWidth() for line in range(part.layout().lineCount())]
        assert lines[-1] > 0.75 * max(lines)
        assert not part.text().isascii() or set(part.text().split()) <= {"words", "with", "a", "link", "and", "code", "in", "it,"}


@pytest.mark.parametrize(
    "before", ["> quoted\n>\n" * 60, "- item\n\n  more of it\n" * 1 + "\n  and more\n" * 60, "- item\n" + "  - nested\n" * 60]
)
@pytest.mark.parametrize("after", ["\nA new paragraph", "2. Another list", "# A heading", "- The next"])
def test_what_comes_after_a_drafted_block_is_seen_while_its_line_is_written(desk, before, after):
    answer = desk.ask()
    desk.say(answer, "Before.\n\n")
    for at in range(0, len(before), 9):
        desk.say(answer, before[at : at + 9])
    for letter in after + " which":
        desk.say(answer, letter)
    assert after.split()[-1] + " which" in desk.view.document().toPlainText()
    assert desk.view.document().toPlainText().count("Before.") == 1


def test_a_quote_that_goes_on_in_another_frame_has_no_gap(desk):
    answer = desk.ask()
    for number in range(40):
        desk.say(answer, f"> Quoted {number}.\n>\n")
    settle()
    tops = [desk.view.cursorRect(desk.view.document().find(f"Quoted {number}.")).top() for number in range(40)]
    steps = [below - above for above, below in zip(tops, tops[1:], strict=False)]
    assert max(steps) - min(steps) <= 5


def test_what_is_selected_in_a_long_block_stays_and_more_of_it_comes_when_it_no_longer_is(desk):
    answer = desk.ask()
    desk.say(answer, "> " + "quoted words and more of them " * 120)
    desk.view.setTextCursor(desk.view.document().find("quoted"))
    desk.say(answer, "\n\nAfter it.\n\nMore.")
    assert desk.view.textCursor().selectedText() == "quoted" and "After it" not in desk.view.document().toPlainText()
    cursor = desk.view.textCursor()
    cursor.clearSelection()
    desk.view.setTextCursor(cursor)
    assert desk.view.document().toPlainText().count("After it.") == 1


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_code_that_is_being_written_stands_there_line_for_line(desk, size):
    code = "".join(f"{'y' * (number % 90)} = {number}\n" for number in range(150)) + "z" * (2 * MOST_CHARACTERS)
    text = "```py\n" + code
    answer = desk.ask()
    for at in range(0, len(text), size):
        desk.say(answer, text[at : at + size])
    streamed = structure(desk.view)
    desk.view.rebuild()
    assert streamed == structure(desk.view)
    assert desk.view.entries[1].code(0) == code
    start, end = desk.view.document().find("= 10").selectionStart(), desk.view.document().find("= 80").selectionEnd()
    assert words_between(desk.view.document(), start, end) == "\n".join(["= 10", *code.split("\n")[11:81]])


@pytest.mark.parametrize("name", [name for name in GROWTHS if name != "table"])  # whose rows go on in the frame it began in
def test_frames_that_are_written_into_are_small(desk, name):
    answer = desk.ask()
    desk.say(answer, GROWTHS[name].text(20_000))
    desk.say(answer, GROWTHS[name].tokens[0])
    frames = list(desk.view.entries[-1].frames)
    for frame in frames:
        frames += frame.childFrames()
        assert sum(at.currentFrame() is None for at in iterated(frame)) < 120  # one between two frames of code included


def iterated(frame):
    at = frame.begin()
    while not at.atEnd():
        yield at
        at += 1
