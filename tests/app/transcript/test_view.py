"""The transcript: what is shown is what was said; nothing is fetched; reading is not disturbed by writing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices, QTextCursor, QTextDocument, QTextListFormat
from PySide6.QtTest import QTest

from app.chats.book import ChatBook
from app.theme import Theme
from app.transcript.copying import words_between
from app.transcript.entries import AnswerEntry
from app.transcript.mirror import FIRST_BUILT, MOST_BUILT
from app.transcript.view import TranscriptView
from engine import ErrorInfo, FinishReason
from tests.app.conftest import settle
from tests.app.transcript.conftest import make_end

SAMPLE = (Path(__file__).parent / "sample.md").read_text(encoding="utf-8")
HOSTILE = """![picture](http://127.0.0.1:9/pixel.png) ![local](file:///etc/passwd) <img src="http://127.0.0.1:9/x.png">
<script>alert(1)</script> <a href="javascript:alert(1)">x</a> [j](javascript:alert(1)) [d](data:text/html,x) [f](file:///etc/passwd)
[action](action:retry:x) [code](code:x:0) [ok](https://example.org/path?q=1)

<style>body { background: url(http://127.0.0.1:9/s.css) }</style>

\ufdd0\ufdd1\ufffc\u2029 &lt;b&gt; &#0; \x00 ![[[[(((

| a |
|---|
| ![t](http://127.0.0.1:9/t.png) |
"""


def shown(view) -> str:
    return view.document().toPlainText()


def structure(view) -> list:
    """The document as (text, block format, fragments) without positions: equal for equal renderings."""
    blocks = []
    block = view.document().begin()
    while block.isValid():
        fragments = []
        at = block.begin()
        while not at.atEnd():
            fragment = at.fragment()
            char = fragment.charFormat()
            fragments.append((fragment.text(), char.fontWeight(), char.fontItalic(), char.anchorHref(), char.foreground().color().name()))
            at += 1
        block_format = block.blockFormat()
        listed = block.textList()
        blocks.append((block.text(), block_format.leftMargin(), block_format.headingLevel(), bool(listed), fragments))
        block = block.next()
    return blocks


@pytest.mark.parametrize("size", [1, 5, 64])
def test_a_streamed_answer_looks_like_one_that_was_there(desk, size):
    answer = desk.ask()
    for at in range(0, len(SAMPLE), size):
        desk.say(answer, SAMPLE[at : at + size])
    desk.end(answer)
    streamed = structure(desk.view)
    desk.view.rebuild()
    assert streamed == structure(desk.view)


def copied(view, start: int, end: int) -> str:
    cursor = view.textCursor()
    cursor.setPosition(start)
    cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
    view.setTextCursor(cursor)
    return view.createMimeDataFromSelection().text()


def test_what_is_copied_is_the_source(desk):
    answer = desk.ask("What is *this*?")
    desk.say(answer, SAMPLE)
    desk.end(answer)
    view = desk.view
    view.selectAll()
    assert view.createMimeDataFromSelection().text() == "What is *this*?\n\n" + SAMPLE.strip("\n")
    part = view.entries[1].part()
    assert len(part.spans) > 12
    for span in part.spans:  # every block by itself
        assert copied(view, span.start, span.end) == SAMPLE[span.text_start : span.text_end].strip("\n")
    first, last = part.spans[1], part.spans[4]
    assert copied(view, first.start, last.end) == SAMPLE[first.text_start : last.text_end].strip("\n")
    assert copied(view, part.spans[0].start + 2, last.end).endswith(SAMPLE[first.text_start : last.text_end].strip("\n"))


def test_parts_of_blocks_are_copied_as_words_code_and_tex(desk):
    answer = desk.ask()
    desk.say(answer, "One **two** $x^2$ three.\n\n```py\nif x:\n\ty = 1\n\n    z\n```\n\n- a\n- b\n\n| h | i |\n|---|---|\n| 1 | 2 |\n")
    desk.end(answer)
    view = desk.view
    text, code, first, second, table = view.entries[1].part().spans
    assert copied(view, text.start + 4, text.end) == "two $x^2$ three."
    assert copied(view, text.start, text.end - 1) == "One two $x^2$ three"
    assert copied(view, code.start + 4, code.end - 1) == "if x:\n\ty = 1\n\n    "
    assert copied(view, first.start, second.end - 1) == "- a"
    assert copied(view, first.start, second.end) == "- a\n- b"
    assert copied(view, text.start + 4, second.end - 1) == "two $x^2$ three.\n\n```py\nif x:\n\ty = 1\n\n    z\n```\n\n- a"
    assert words_between(view.document(), table.start, table.end - 2) == "h\ti\n1"


def test_formulas_are_drawn_on_their_line_and_stay_text_where_they_cannot_be(desk):
    answer = desk.ask()
    desk.say(answer, r"Before $x^2$ after, broken $\frac{a$ end, $\href{file:///etc/passwd}{x}$.")
    desk.end(answer)
    assert shown(desk.view).count("\ufffc") == 1 and r"$\frac{a$" in shown(desk.view) and r"\href" in shown(desk.view)
    block = desk.view.document().find("Before").block()
    line = block.layout().lineAt(0)
    assert line.height() < 40  # the formula does not push lines apart
    assert desk.view.grab().save("/dev/null", "PNG")
    assert desk.view.asked == []


def test_reasoning_is_folded_with_its_duration_and_opens(desk):
    answer = desk.ask()
    for piece in ("<thi", "nk>\nlet me see", " <b>hm</b>", "</think>", "\n\nThe answer."):
        desk.say(answer, piece)
        if "see" in piece:
            assert "Thinking" in shown(desk.view) and "let me see" not in shown(desk.view)
    answer.thought = 3.21
    desk.end(answer)
    assert "Thought for 3.2 s" in shown(desk.view) and "The answer." in shown(desk.view) and "let me see" not in shown(desk.view)
    desk.view.anchorClicked.emit(QUrl(f"thought:{answer.id}:"))
    assert "let me see <b>hm</b>" in shown(desk.view) and "think>" not in shown(desk.view)
    desk.view.anchorClicked.emit(QUrl(f"thought:{answer.id}:"))
    assert "let me see" not in shown(desk.view)
    desk.view.selectAll()
    assert desk.view.createMimeDataFromSelection().text() == "question\n\nThe answer."


def test_reasoning_whose_beginning_the_template_wrote_is_found_at_its_end(desk):
    answer = desk.ask()
    for piece in ("thoughts first", "</th", "ink>\n", "Then **words**."):
        desk.say(answer, piece)
    desk.end(answer)
    whole = desk.ask()
    desk.say(whole, "<think>hm</think>\nWords on `</think>`.")
    desk.end(whole)
    desk.view.anchorClicked.emit(QUrl(f"thought:{whole.id}:"))
    assert shown(desk.view).count("think>") == 1
    assert "thoughts first" not in shown(desk.view) and "Then words." in shown(desk.view) and "Thoughts" in shown(desk.view)


def test_every_prefix_of_a_streamed_answer_ends_as_the_whole(desk):
    text = SAMPLE[:400] + "\n\n$$\na\n$$\n<think> is a word, $x_1$ too.\n"
    for stop in range(1, len(text), 23):
        answer = desk.ask()
        for at in range(0, stop, 11):
            desk.say(answer, text[at : min(stop, at + 11)])
        desk.end(answer)
        streamed = structure(desk.view)
        desk.view.rebuild()
        assert streamed == structure(desk.view), text[:stop]
        desk.book.delete_message(desk.chat.id, desk.chat.messages[-1])
        desk.book.delete_message(desk.chat.id, desk.chat.messages[-1])


def test_every_prefix_shows_the_text_so_far(desk):
    answer = desk.ask()
    text = "First *one*.\n\n- a\n- b\n\n```py\nx = 1\n```\n\nEnd."
    for character in text:
        desk.say(answer, character)
        if character.isalnum() and "`" not in answer.text[-4:]:
            assert character in shown(desk.view)
    desk.end(answer)
    for words in ("First one.", "x = 1", "End.", "157 tokens", "30.6 tok/s", "complete"):
        assert words in shown(desk.view), words


def test_hostile_markdown_fetches_nothing_and_links_nowhere(desk, monkeypatch):
    opened = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url))
    asked = []
    desk.view.link_asked.connect(asked.append)
    actions = []
    desk.view.action_asked.connect(lambda *call: actions.append(call))
    answer = desk.ask(HOSTILE)
    for at in range(0, len(HOSTILE), 3):
        desk.say(answer, HOSTILE[at : at + 3])
    desk.end(answer)
    desk.view.grab()
    hrefs = {fragment[3] for _, _, _, _, fragments in structure(desk.view) for fragment in fragments if fragment[3]}
    web = {href for href in hrefs if not href.startswith(("action:", "code:"))}
    allowed = {"http://127.0.0.1:9/pixel.png", "http://127.0.0.1:9/t.png", "https://example.org/path?q=1"}
    assert web == allowed
    assert {href for href in hrefs if href.startswith("action:")} <= {f"action:{name}:{answer.id}" for name in ("copy", "retry")}
    assert desk.view.asked == []
    html = desk.view.document().toHtml()
    assert "<img" not in html and "<script" not in html
    for words in ("<script>alert(1)</script>", '<img src="http://127.0.0.1:9/x.png">', "[image: picture]", "<style>"):
        assert words in shown(desk.view), words
    desk.view.anchorClicked.emit(QUrl("https://example.org/path?q=1"))
    assert asked == ["https://example.org/path?q=1"] and opened == []
    assert desk.view.source() == QUrl()


def test_even_a_document_that_asks_gets_nothing(desk):
    assert desk.view.loadResource(QTextDocument.ResourceType.ImageResource.value, QUrl("file:///etc/hostname")) is None


def test_what_the_person_wrote_is_shown_verbatim(desk):
    text = "# not a title\n**stars** <b>tag</b> [l](https://example.org)"
    desk.ask(text)
    assert text in shown(desk.view)


def test_copying_code_gives_its_source_to_the_byte(desk):
    copied = []
    desk.view.code_copied.connect(copied.append)
    answer = desk.ask()
    code = "if x:\n\tprint('a  b')\n\n"
    desk.say(answer, f"```python\n{code}```\n\ntext\n\n```\nsecond\n")
    desk.view.anchorClicked.emit(QUrl(f"code:{answer.id}:1"))  # still being written
    desk.say(answer, "```\n")
    desk.end(answer)
    for number in (0, 1, 7):
        desk.view.anchorClicked.emit(QUrl(f"code:{answer.id}:{number}"))
    assert copied == ["second\n", code, "second\n"]


def test_selection_can_be_copied_as_plain_text(desk):
    answer = desk.ask()
    desk.say(answer, "One **bold**\nline two\n\n- item")
    desk.end(answer)
    desk.view.selectAll()
    data = desk.view.createMimeDataFromSelection()
    assert not data.hasHtml() and data.text() == "question\n\nOne **bold**\nline two\n\n- item"


def test_the_view_follows_the_end_until_the_reader_scrolls_away(desk):
    answer = desk.ask()
    bar = desk.view.verticalScrollBar()
    for number in range(60):
        desk.say(answer, f"Line {number}\n\n")
    settle()
    assert desk.view.following and bar.value() == bar.maximum() > 0
    bar.setValue(bar.maximum() // 2)
    place = bar.value()
    assert not desk.view.following
    for number in range(30):
        desk.say(answer, f"More {number}\n\n")
        settle()
        assert bar.value() == place
    assert desk.view._down.isVisible()
    QTest.mouseClick(desk.view._down, Qt.MouseButton.LeftButton)
    assert desk.view.following and bar.value() == bar.maximum()
    desk.say(answer, "\n".join("tail" for _ in range(40)))
    settle()
    assert bar.value() == bar.maximum()


def test_a_selection_survives_and_holds_the_tail_only_while_it_touches_it(desk):
    answer = desk.ask()
    desk.say(answer, "Stays here.\n\nThe tail grows")
    cursor = desk.view.document().find("Stays")
    desk.view.setTextCursor(cursor)
    desk.say(answer, " and grows")
    assert desk.view.textCursor().selectedText() == "Stays" and "and grows" in shown(desk.view)
    desk.view.setTextCursor(desk.view.document().find("tail"))
    desk.say(answer, " still")
    assert desk.view.textCursor().selectedText() == "tail" and "still" not in shown(desk.view)
    cursor = desk.view.textCursor()
    cursor.clearSelection()
    desk.view.setTextCursor(cursor)
    assert "and grows still" in shown(desk.view)


def test_an_answer_taken_back_leaves_the_document(desk):
    answer = desk.ask()
    desk.say(answer, "wrong\n\n```\ncode\n```\n\n| a |\n|---|\n| b |\n")
    desk.end(answer)
    desk.book.delete_message(desk.chat.id, answer)
    fresh = desk.book.begin_answer(desk.chat.id)
    desk.book.append(fresh, "right")
    desk.view.sync()
    assert "wrong" not in shown(desk.view) and "code" not in shown(desk.view) and "right" in shown(desk.view)
    assert len(desk.view.document().rootFrame().childFrames()) == 3  # bubble, body, footer
    assert desk.view.entries[-1].message is fresh


def test_errors_say_what_happened_what_to_do_and_offer_a_retry(desk):
    actions = []
    desk.view.action_asked.connect(lambda *call: actions.append(call))
    answer = desk.ask()
    desk.book.fail(desk.chat.id, answer, ErrorInfo("x", "The pool has 9 blocks.", "Start a new chat."))
    desk.view.sync()
    for words in ("The pool has 9 blocks.", "Start a new chat.", "Try again"):
        assert words in shown(desk.view)
    desk.view.anchorClicked.emit(QUrl(f"action:retry:{answer.id}"))
    assert actions == [("retry", answer.id)]


def test_the_last_answer_has_its_actions_in_sight_once_it_is_complete(desk):
    asked = []
    desk.view.action_asked.connect(lambda *call: asked.append(call))
    pinned = desk.view.bars.pinned
    first = desk.ask("one")
    desk.say(first, "answer one")
    assert pinned.isHidden()
    desk.end(first)
    settle()
    assert pinned.isVisible() and pinned.served.message is first
    assert pinned.names == ("copy", "retry", "edit", "branch", "delete")
    assert desk.view.viewport().rect().contains(pinned.geometry())
    desk.ask("two")
    settle()
    assert pinned.isHidden()
    second = desk.chat.last
    desk.book.append(second, "half")
    desk.book.stop(desk.chat.id, second)
    desk.view.sync()
    settle()
    assert pinned.served.message is second and "continue" in pinned.names
    for name in pinned.names:
        assert pinned.button(name).accessibleName() and pinned.button(name).toolTip()
        QTest.mouseClick(pinned.button(name), Qt.MouseButton.LeftButton)
    assert asked == [(name, second.id) for name in pinned.names]


def test_any_message_shows_its_actions_under_the_pointer_or_by_keyboard(desk):
    for number in range(3):
        answer = desk.ask(f"question {number}")
        desk.say(answer, f"answer {number}")
        desk.end(answer)
    settle()
    bars, messages = desk.view.bars, desk.chat.messages
    rect = desk.view.entry_rect(desk.view.entries[1])
    bars.point_at(rect.center().y())
    settle()
    assert bars.floating.isVisible() and bars.floating.served.message is messages[1]
    assert rect.adjusted(0, 0, 0, 1).contains(bars.floating.geometry().center().toPointF())
    bars.point_at(None)
    assert bars.floating.isHidden()
    assert bars.current() is messages[-1]
    bars.step(-1)
    assert bars.current() is messages[-1] and bars.pinned.isVisible()
    for _ in range(3):
        bars.step(-1)
    settle()
    assert bars.current() is messages[2] and bars.floating.isVisible()
    assert "retry" not in bars.floating.names
    bars.mark(None)
    assert bars.floating.isHidden()


def test_versions_are_counted_and_stepped_through(desk):
    first = desk.ask()
    desk.say(first, "first answer")
    desk.end(first)
    second = desk.book.begin_answer(desk.chat.id, instead_of=first)
    desk.say(second, "second answer")
    desk.end(second)
    settle()
    bar = desk.view.bars.pinned
    assert bar.names[:2] == ("older", "newer") and bar.button("older").isEnabled() and not bar.button("newer").isEnabled()
    assert "second answer" in shown(desk.view) and "first answer" not in shown(desk.view)
    desk.book.show_version(desk.chat.id, second, -1)
    desk.view.sync()
    assert "first answer" in shown(desk.view) and "second answer" not in shown(desk.view)
    assert not bar.button("older").isEnabled() and bar.served.version == 1


def test_status_words_stand_under_the_answer_only_while_it_runs(desk):
    answer = desk.ask()
    desk.view.set_status("Queued, 3rd in line")
    assert "Queued, 3rd in line" in shown(desk.view)
    desk.end(answer)
    desk.view.set_status("late")
    assert "Queued" not in shown(desk.view) and "late" not in shown(desk.view)


def test_references_given_later_are_linked_at_the_end(desk):
    answer = desk.ask()
    for piece in ("See [the site][1].\n\n", "Text.\n\n", "[1]: https://example.org/ref\n"):
        desk.say(answer, piece)
    desk.end(answer)
    assert any(fragment[3] == "https://example.org/ref" for _, _, _, _, fragments in structure(desk.view) for fragment in fragments)
    assert shown(desk.view).count("Text.") == 1


def test_a_long_chat_opens_at_its_end_and_older_messages_come_when_one_scrolls_up(desk):
    for number in range(FIRST_BUILT):
        desk.book.add_user(desk.chat.id, f"question {number}")
        answer = desk.book.begin_answer(desk.chat.id)
        desk.book.append(answer, f"answer {number}\n\nwith a second paragraph")
        desk.book.finish(desk.chat.id, answer, make_end())
    desk.view.rebuild()
    settle()
    assert len(desk.view.entries) == FIRST_BUILT and "question 59" in shown(desk.view) and "question 0\n" not in shown(desk.view)
    bar = desk.view.verticalScrollBar()
    assert bar.value() == bar.maximum()
    top = desk.view.cursorForPosition(desk.view.viewport().rect().topLeft())
    bar.setValue(0)
    words = desk.view.cursorForPosition(desk.view.viewport().rect().center()).block().text()
    settle()
    assert desk.view.cursorForPosition(desk.view.viewport().rect().center()).block().text() == words  # nothing jumped
    for _ in range(10):
        bar.setValue(0)
        settle()
    assert len(desk.view.entries) == 2 * FIRST_BUILT
    order = [entry.message for entry in desk.view.entries]
    assert order == desk.chat.messages and isinstance(desk.view.entries[1], AnswerEntry)
    assert top.position() <= desk.view.document().characterCount()
    assert desk.view.bars.pinned.served.message is desk.chat.last


def fill(desk, count: int, words: str = "") -> None:
    for number in range(count):
        desk.book.add_user(desk.chat.id, f"question {number} ")
        answer = desk.book.begin_answer(desk.chat.id)
        desk.book.append(answer, f"answer {number} {words}\n\nwith a second paragraph")
        desk.book.finish(desk.chat.id, answer, make_end())
    desk.view.rebuild()
    settle()


def test_of_a_very_long_chat_only_what_is_near_the_reader_is_written(desk):
    fill(desk, 400)
    bar = desk.view.verticalScrollBar()
    bars = []
    while desk.view.entries[0].message is not desk.chat.messages[0]:
        bar.setValue(bar.minimum() + 10)
        first = desk.view.entries[0]
        before = desk.view.entry_rect(first).top()
        settle()
        assert abs(desk.view.entry_rect(first).top() - before) < 2  # writing above and dropping below moves nothing
        assert len(desk.view.entries) <= MOST_BUILT
        bars.append(bar.value())
    assert len(bars) > 20 and not desk.view.following and desk.view.entries[-1].message is not desk.chat.last
    new = desk.ask("meanwhile")  # nothing of the end is written while the reader is far from it
    desk.say(new, "streams on")
    assert desk.view.entry_of(new.id) is None
    while not desk.view.following:
        bar.setValue(bar.maximum())
        settle()
        assert len(desk.view.entries) <= MOST_BUILT
    assert "streams on" in shown(desk.view)
    desk.say(new, " and on")
    assert "streams on and on" in shown(desk.view)


def test_the_button_and_a_jump_go_anywhere_at_once(desk):
    fill(desk, 300)
    first = desk.chat.messages[0]
    desk.view.go_to(first.id)
    settle()
    assert desk.view.entries[0].message is first and desk.view.viewport().rect().contains(
        desk.view.entry_rect(desk.view.entries[0]).center().toPoint()
    )
    desk.view.scroll_to_end()
    settle()
    assert desk.view.entries[-1].message is desk.chat.last and desk.view.following


def test_where_one_was_reading_comes_back_in_another_view_of_any_size(desk):
    fill(desk, 120)
    middle = desk.chat.messages[100]
    desk.view.go_to(middle.id, 30)
    settle()
    place = desk.view.scroll_place()
    assert place.message_id == middle.id and abs(place.offset - 30) <= 1
    desk.view.resize(600, 500)
    settle()
    assert desk.view.scroll_place().message_id == middle.id
    desk.book.set_scroll(desk.chat.id, place)
    other = TranscriptView(Theme.dark(), clock=lambda: 0.0)
    other.show_chat(desk.chat)
    other.resize(900, 600)
    other.show()
    settle()
    assert other.scroll_place().message_id == middle.id and not other.following
    other.close()
    other.deleteLater()


def test_find_reaches_every_message_and_highlights_what_is_in_sight(desk):
    fill(desk, 150, words="Needle and needle")
    finder = desk.view.finder
    finder.search("needle")
    assert len(finder.hits) == 300 and finder.at is None and len(desk.view.extraSelections()) >= 60
    assert finder.step(-1) == finder.hits[-1]
    for _ in range(299):
        finder.step(-1)
    assert finder.at == 0 and desk.view.entries[0].message is desk.chat.messages[0]
    assert finder.step(-1) == finder.hits[-1]  # around
    assert finder.step(1) == finder.hits[0]
    finder.search("question 77 ")
    assert len(finder.hits) == 1 and finder.step(1).place == 154
    settle()
    assert desk.view.entry_of(desk.chat.messages[154].id) is not None and len(desk.view.extraSelections()) == 1
    finder.search("nowhere")
    assert finder.step(1) is None
    finder.search("")
    assert desk.view.extraSelections() == []


def test_typing_over_the_transcript_is_handed_on(desk):
    typed = []
    desk.view.typed.connect(typed.append)
    QTest.keyClicks(desk.view, "a")
    QTest.keyClick(desk.view, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    QTest.keyClick(desk.view, Qt.Key.Key_PageUp)
    assert typed == ["a"]


KINDS = {
    "paragraphs": ("", "word " * 20 + "\n\n", "tail"),
    "items": ("", "- item *one*\n", "- tail"),
    "items apart": ("", "1. item **one**\n\n", "1. tail"),
    "rows": ("| a | b |\n|---|---|\n", "| one | `two` |\n", "| tail"),
    "code": ("```py\n", "x = 1\n", "tail"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_cost_of_a_token_does_not_grow_with_the_answer(desk, kind):
    """Counted in what is written anew, not in seconds: after 300 blocks, items or rows a token touches few of them."""
    head, unit, tail = KINDS[kind]
    answer = desk.ask()
    desk.say(answer, head)
    counts = []
    for units in (30, 270):
        desk.book.append(answer, unit * units)
        desk.view.sync()
        desk.say(answer, tail)
        changed = []
        desk.view.document().contentsChange.connect(lambda at, gone, came, changed=changed: changed.append(gone + came))
        desk.say(answer, "s")
        desk.view.document().contentsChange.disconnect()
        desk.say(answer, "\n" if kind != "paragraphs" else "\n\n")
        counts.append(sum(changed))
    assert 0 < max(counts) < 500 < len(answer.text) // 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_block_written_in_pieces_looks_as_if_written_at_once(desk, kind):
    head, unit, tail = KINDS[kind]
    answer = desk.ask()
    text = "Before.\n\n" + head + unit * 60 + tail
    for at in range(0, len(text), 11):
        desk.say(answer, text[at : at + 11])
    streamed = structure(desk.view)
    numbers = [listed.itemText(block) for block in blocks(desk.view) if (listed := block.textList())]
    desk.view.rebuild()
    assert streamed == structure(desk.view)
    desk.end(answer)
    assert copied_all(desk.view).endswith(text)
    if kind == "items apart":
        assert numbers == [f"{number}." for number in range(1, 62)]


def blocks(view):
    block = view.document().begin()
    while block.isValid():
        yield block
        block = block.next()


def copied_all(view) -> str:
    view.selectAll()
    return view.createMimeDataFromSelection().text()


@pytest.mark.parametrize("width", [600, 1200])
def test_a_long_table_is_no_narrower_than_its_words_and_has_no_gap(desk, width):
    desk.view.resize(width, 600)
    answer = desk.ask()
    desk.say(answer, "| city | fact | n |\n|---|---|--:|\n" + "".join(f"| City {row} | a `fact` | {row * 17} |\n" for row in range(60)))
    desk.end(answer)
    settle()
    places = [block.position() for block in blocks(desk.view) if block.text().startswith("City")]
    tops = [top_of(desk.view, place) for place in places]
    steps = [below - above for above, below in zip(tops, tops[1:], strict=False)]
    assert len(places) == 60 and max(steps) - min(steps) <= 1 and max(steps) < 42


def top_of(view, position: int) -> int:
    cursor = QTextCursor(view.document())
    cursor.setPosition(position)
    return view.cursorRect(cursor).top()


def test_a_list_that_turns_out_to_stand_apart_is_written_anew_with_what_was_before_it_untouched(desk):
    answer = desk.ask()
    desk.say(answer, "Before.\n\n```py\nx\n```\n\n" + "- item\n" * 40)
    desk.say(answer, "\n- apart\n- more")
    streamed = structure(desk.view)
    desk.view.rebuild()
    assert streamed == structure(desk.view) and shown(desk.view).count("Before.") == 1 and shown(desk.view).count("item") == 40
    assert desk.view.entries[1].code(0) == "x\n"


def test_the_document_ends_where_the_last_message_does(desk):
    answer = desk.ask()
    desk.say(answer, "```\ncode\n```\n")
    desk.end(answer)
    cursor = QTextCursor(desk.view.document())
    cursor.movePosition(QTextCursor.MoveOperation.End)
    assert cursor.block().text() == "" and cursor.blockFormat().lineHeight() == 1


def test_writing_that_was_costly_waits_before_it_writes_again(qapp, qtbot, no_leftovers):
    book = ChatBook()
    chat = book.new_chat()
    now = [100.0]

    def clock():
        now[0] += 0.004  # each look at the clock, so each sync, costs 4 ms
        return now[0]

    view = TranscriptView(Theme.dark(), clock=clock)
    view.show_chat(chat)
    book.add_user(chat.id, "x")
    answer = book.begin_answer(chat.id)
    view.sync()
    book.append(answer, "first ")
    view.sync_text()
    assert "first" in shown(view)  # first words never wait
    book.append(answer, "later")
    view.sync_text()
    assert "later" not in shown(view)
    qtbot.waitUntil(lambda: "later" in shown(view), timeout=30_000)
    view.deleteLater()
    settle()


def test_the_figures_of_a_stopped_answer_stand_under_it_once_the_engine_has_told_them(desk):
    answer = desk.ask()
    desk.say(answer, "Half of")
    desk.book.stop(desk.chat.id, answer)
    desk.view.sync()
    assert "stopped" in shown(desk.view) and "tokens" not in shown(desk.view)
    desk.book.finish(desk.chat.id, answer, replace(make_end(), reason=FinishReason.CANCELLED))
    desk.view.sync()
    assert "157 tokens" in shown(desk.view) and "waited" in shown(desk.view) and shown(desk.view).count("stopped") == 1


def test_a_continued_answer_opens_its_last_block_again(desk):
    answer = desk.ask()
    desk.say(answer, "First.\n\n- one\n- tw")
    desk.book.stop(desk.chat.id, answer)
    desk.view.sync()
    assert "continue" in desk.view.bars.pinned.names
    assert desk.book.resume_answer(desk.chat.id) is answer
    desk.view.sync()
    assert "continue" not in desk.view.bars.pinned.names and "tw" in shown(desk.view)
    desk.say(answer, "o\n- three")
    desk.end(answer)
    streamed = structure(desk.view)
    assert shown(desk.view).count("First.") == 1 and "two" in shown(desk.view) and "continue" not in desk.view.bars.pinned.names
    desk.view.rebuild()
    assert streamed == structure(desk.view)


def test_a_task_has_its_box_in_the_place_of_a_bullet_and_bullets_stand_off(desk):
    """What a person would see: no bullet beside a box, words of tasks and items in one column, and air behind a bullet."""
    answer = desk.ask()
    desk.say(answer, "- [ ] task\n- item\n- [x] done\n\n1. [ ] first\n")
    desk.end(answer)
    place = {}
    for block in blocks(desk.view):
        if listed := block.textList():
            line = block.layout().lineAt(0)
            style = listed.format().style()
            place[block.text()] = (style, line.cursorToX(2 if block.text()[0] in "\u2610\u2611" else 0)[0], line.x())
    none, disc, numbers = QTextListFormat.Style.ListStyleUndefined, QTextListFormat.Style.ListDisc, QTextListFormat.Style.ListDecimal
    assert [place[words][0] for words in ("\u2610 task", "item", "\u2611 done", "\u2610 first")] == [none, disc, none, numbers]
    words = {round(place[words][1]) for words in ("\u2610 task", "item", "\u2611 done")}
    assert len(words) == 1 and place["\u2610 task"][2] < place["item"][2]
    bullet = next(block for block in blocks(desk.view) if block.text() == "item")
    assert gap_before(desk.view, bullet) >= 6


def gap_before(view, block) -> int:
    """The columns between what is painted left of a block's words and these."""
    cursor = QTextCursor(block)
    words = view.cursorRect(cursor)
    strip = view.viewport().grab(words.adjusted(-24, 0, 0, 0)).toImage()
    empty = strip.pixel(0, 0)
    inked = [x for x in range(strip.width()) if any(strip.pixel(x, y) != empty for y in range(strip.height()))]
    return strip.width() - words.width() - 1 - max(x for x in inked if x < strip.width() - words.width())
