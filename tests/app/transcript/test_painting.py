"""What a token costs: only what it changes is written, laid out and painted, in a short answer and in a long one alike."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QEvent, QObject
from PySide6.QtGui import QImage, QRegion

from app.chats.book import ChatBook
from app.theme import Theme
from app.transcript import backdrop
from app.transcript.body import MOST_BLOCKS
from app.transcript.view import TranscriptView
from tests.app.conftest import settle

MIXED = "".join(
    f"Paragraph {n} of the answer, which is long enough to be broken into two lines of the column.\n\n"
    + ("" if n % 5 else f"```python\nprint({n})\n```\n\n> quoted {n}\n\n")
    for n in range(120)
)


class Painted(QObject):
    """Collects what is painted of a view's viewport."""

    def __init__(self, view: TranscriptView) -> None:
        super().__init__()
        self.region = QRegion()
        self._viewport = view.viewport()
        self._viewport.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Paint:
            self.region = self.region.united(event.region())
        return False

    def start(self) -> None:
        settle()
        self.region = QRegion()

    def stop(self) -> QRegion:
        settle()
        self._viewport.removeEventFilter(self)
        region, self.region = self.region, QRegion()
        self._viewport.installEventFilter(self)
        return region


def picture(view: TranscriptView) -> QImage:
    return view.viewport().grab().toImage()


def changed_rows(before: QImage, after: QImage) -> list[int]:
    wide = before.width()
    return [y for y in range(before.height()) if any(before.pixel(x, y) != after.pixel(x, y) for x in range(0, wide, 3))]


@pytest.mark.parametrize(
    ("there", "more"),
    [
        ("Short.", " More words."),
        (MIXED, "A tail"),
        (MIXED + "The last one", ".\n\nAnd another"),
        (MIXED + "```c\nint a;", "\nint b;\n"),
        (MIXED + "```c\nint a;\n", "```\n"),
        ("<think>hm", "</think>Yes"),
        ("words that turn into a heading", "\n==="),
        ("", "First"),
    ],
)
def test_what_changes_is_painted_and_not_the_rest(desk, there, more):
    answer = desk.ask()
    desk.say(answer, there)
    painted = Painted(desk.view)
    settle()
    before, place = picture(desk.view), desk.view.verticalScrollBar().value()
    painted.start()
    desk.say(answer, more)
    region = painted.stop()
    rows = changed_rows(before, picture(desk.view))
    assert rows
    if desk.view.verticalScrollBar().value() == place:
        missed = [y for y in rows if not region.contains(desk.view.viewport().rect().adjusted(0, y, 0, 0).topLeft())]
        assert not missed
        assert region.boundingRect().height() < desk.view.viewport().height()
    else:
        assert region.boundingRect() == desk.view.viewport().rect()


def test_words_on_its_progress_are_painted_alone(desk):
    answer = desk.ask()
    desk.say(answer, "One.\n\nTwo.\n\n")
    painted = Painted(desk.view)
    settle()
    before = picture(desk.view)
    painted.start()
    desk.view.set_status("12 tok/s")
    region = painted.stop()
    rows = changed_rows(before, picture(desk.view))
    assert rows and region.boundingRect().top() <= rows[0] and rows[-1] <= region.boundingRect().bottom()
    assert region.boundingRect().top() > 40


def test_a_long_answer_stands_in_frames_that_are_skipped(desk, monkeypatch):
    answer = desk.ask()
    looked = []
    plain = backdrop._paint
    monkeypatch.setattr(backdrop, "_paint", lambda painter, kind, *rest: (looked.append(kind), plain(painter, kind, *rest)))
    counts = []
    for text in (MIXED[: len(MIXED) // 8], MIXED):
        desk.say(answer, text)
        settle()
        looked.clear()
        picture(desk.view)
        counts.append(len(looked))
    assert 0 < counts[1] <= counts[0] + 2
    assert all(len(frame.childFrames()) <= MOST_BLOCKS for entry in desk.view.entries for frame in entry.frames)
    assert len(desk.view.entries[1].frames) > 10
    desk.end(answer)
    desk.view.selectAll()
    assert desk.view.createMimeDataFromSelection().text().endswith(answer.text.strip("\n"))


def test_frames_go_with_their_answer(desk):
    answer = desk.ask()
    desk.say(answer, "<think>a thought</think>" + MIXED + "[late]\n\n[late]: https://example.org\n")
    desk.end(answer)  # a reference given late: all is written anew
    written = desk.view.document().toPlainText()
    assert written.count("Paragraph 7 ") == 1
    desk.view.rebuild()
    assert desk.view.document().toPlainText() == written
    removed = desk.book.delete_message(desk.chat.id, answer)
    desk.view.sync()
    assert "Paragraph" not in desk.view.document().toPlainText() and "thought" not in desk.view.document().toPlainText()
    desk.book.restore_message(desk.chat.id, removed)
    desk.view.sync()
    assert desk.view.document().toPlainText() == written


def test_a_chat_whose_long_answer_is_being_written_opens_at_its_end_and_follows(qapp, no_leftovers):
    book = ChatBook()
    chat = book.new_chat()
    book.add_user(chat.id, "Tell me")
    answer = book.begin_answer(chat.id)
    book.append(answer, MIXED)
    view = TranscriptView(Theme.dark(), clock=lambda: 0.0)
    view.show_chat(chat)
    view.resize(900, 600)
    view.show()
    settle()
    bar = view.verticalScrollBar()
    assert view.following and bar.value() == bar.maximum() > 1000
    book.append(answer, "more\n\n" * 10)
    view.sync()
    settle()
    assert bar.value() == bar.maximum()
    view.close()
    view.deleteLater()
    settle()


@pytest.mark.parametrize("paragraphs", [0, MOST_BLOCKS - 1, MOST_BLOCKS, 3 * MOST_BLOCKS])
def test_at_every_moment_a_growing_answer_looks_as_if_written_at_once(desk, paragraphs):
    """Whatever the tail was a moment ago (half a table, a list, a quote) is gone when it is written again."""
    tail = "| seat | rider |\n|---|:-:|\n| 1 | a |\n| 2 | b |\n\n- one\n  - two\n\n> said\n> so\n\n```c\nint x;\n```\n\n$$x^2$$\n\nEnd"
    answer = desk.ask()
    desk.say(answer, "Paragraph.\n\n" * paragraphs)
    other = TranscriptView(Theme.dark(), clock=lambda: 0.0)
    other.show_chat(desk.chat)
    for at in range(0, len(tail), 3):
        desk.say(answer, tail[at : at + 3])
        other.rebuild()
        assert desk.view.document().toPlainText() == other.document().toPlainText()
    other.deleteLater()
    settle()
