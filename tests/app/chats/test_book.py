"""Chats without a window: titles, day groups, the prompt a model is given, and the book that changes them."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime

import pytest

from app.chats.book import ChatBook
from app.chats.model import AnswerState, Chat, ChatSettings
from app.chats.titles import TITLE_LENGTH, group_by_day, title_from
from engine import ErrorInfo, FinishedEvent, FinishReason, Message, TimeSplit, Usage


def make_end(reason: FinishReason = FinishReason.STOP) -> FinishedEvent:
    return FinishedEvent("r1", reason, Usage(5, 7), TimeSplit(0.1, 0.2, 0.7, 0.0, 0.3))


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Hello there", "Hello there"),
        ("\n\n## A **bold** plan\nmore", "A bold plan"),
        ("```\n- `code` first", "code first"),
        ("   \n???\nreal words", "real words"),
        ("1. first thing", "first thing"),
        ("", ""),
        ("***", ""),
    ],
)
def test_titles_come_from_the_first_line_that_says_something(text, title):
    assert title_from(text) == title


def test_long_titles_are_cut_at_a_word():
    title = title_from("Explain to me, in great detail, how continuous batching differs from static batching")
    assert title.endswith("…") and len(title) <= TITLE_LENGTH + 1
    assert title == "Explain to me, in great detail, how continuous…"
    assert len(title_from("x" * 300)) == TITLE_LENGTH + 1


def test_chats_stand_under_their_days():
    now = datetime(2026, 3, 30, 12)
    days = {"a": 0, "b": 0.4, "c": 1, "d": 6, "e": 30}
    chats = [Chat(name, updated=now.timestamp() - age * 86400) for name, age in days.items()]
    groups = [(name, [chat.id for chat in members]) for name, members in group_by_day(chats, now)]
    assert groups == [("Today", ["a", "b"]), ("Yesterday", ["c"]), ("Previous 7 days", ["d"]), ("Older", ["e"])]


def test_the_prompt_alternates_and_leaves_out_what_is_empty():
    book = ChatBook()
    chat = book.new_chat()
    book.set_settings(chat.id, ChatSettings(system_prompt="Be brief."))
    book.add_user(chat.id, "one")
    book.finish(chat.id, book.begin_answer(chat.id), make_end(FinishReason.CANCELLED))  # stopped before a word came
    book.add_user(chat.id, "two")
    answer = book.begin_answer(chat.id)
    book.append(answer, "fine")
    book.finish(chat.id, answer, make_end())
    book.add_user(chat.id, "three")
    book.begin_answer(chat.id)
    expected = [("system", "Be brief."), ("user", "one\n\ntwo"), ("assistant", "fine"), ("user", "three")]
    assert chat.prompt() == [Message(role, text) for role, text in expected]


def test_an_ended_answer_keeps_why_and_its_time():
    book = ChatBook()
    chat = book.new_chat()
    book.add_user(chat.id, "Hi & bye")
    answer = book.begin_answer(chat.id)
    assert chat.title == "Hi & bye" and answer.running
    book.finish(chat.id, answer, make_end())
    assert (answer.state, answer.reason, answer.usage, answer.time.decode) == (AnswerState.DONE, FinishReason.STOP, Usage(5, 7), 0.7)
    book.fail(chat.id, answer, ErrorInfo("x", "No."))
    assert answer.state is AnswerState.FAILED and answer.error.message == "No."


def test_rename_and_delete_and_restore():
    book = ChatBook()
    chat = book.new_chat()
    book.add_user(chat.id, "first words")
    book.rename(chat.id, "  Mine ")
    assert (chat.title, chat.named) == ("Mine", True)
    book.rename(chat.id, " ")
    assert (chat.title, chat.named) == ("first words", False)
    assert book.delete(chat.id) is chat
    assert chat.id not in book and book.listed() == []
    book.restore(chat)
    assert book.listed() == [chat]


def test_search_wants_every_word_in_titles_or_messages():
    book = ChatBook()
    first, second, _ = (book.new_chat() for _ in range(3))
    book.add_user(first.id, "The Bus is late")
    book.add_user(second.id, "Rain today")
    assert {hit.chat_id for hit in book.search_everything("bus LATE")} == {first.id}
    assert {hit.chat_id for hit in book.search_everything("today")} == {second.id}
    assert book.search_everything("bus today") == [] == book.search_everything("")


def test_chats_import_without_qt_and_without_torch():
    code = (
        "import sys\n"
        "for name in ('PySide6', 'torch', 'transformers'): sys.modules[name] = None\n"
        "import app.chats.model, app.chats.book, app.chats.titles, app.chats.answering, app.chats.store\n"
        "import app.transcript.stream, app.transcript.markdown, app.transcript.highlight\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
