"""Titles by the model: at the idle class, never in anybody's way, never over a name that the person gave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.chats.titling import Titling
from engine import Priority
from tests.app.chats.test_answering import Desk
from tests.app.fakes import Script


class TitleDesk(Desk):
    def __init__(self) -> None:
        super().__init__()
        self.titling = Titling(self.book, self.answering, self.engine, lambda handle: self.ready.setdefault(handle.id, handle))
        self.titling.enabled = True
        self.renamed: list[str] = []

    def drain(self):
        handles, self.ready = list(self.ready.values()), {}
        if chat_id := self.titling.deliver(handles):
            self.renamed.append(chat_id)
        return self.answering.deliver(handles)

    def asked(self, *title: str):
        """A chat whose first answer has ended, with the title that will be said."""
        chat = self.chat("Because of the rain.")
        self.engine.scripts.append(Script(title))
        self.answering.send(chat.id, "why is the bus late today, and what is to be done about it")
        self.run()
        return chat


def test_a_title_comes_after_the_first_answer_at_the_idle_class():
    desk = TitleDesk()
    chat = desk.asked("Title: ", '"Late bus"')
    place = chat.updated
    assert desk.titling.answered(chat.id)
    assert desk.engine.submitted[-1].priority is Priority.IDLE and desk.engine.submitted[-1].chat_id == f"title:{chat.id}"
    assert desk.engine.prompts[-1][:2] == chat.prompt()  # the chat's own beginning: computed already
    desk.run()
    assert chat.title == "Late bus" and desk.renamed == [chat.id] and not chat.named and chat.updated == place
    assert not desk.titling.busy and not desk.titling.answered(chat.id)


def test_a_rename_or_anything_that_is_asked_drops_it():
    desk = TitleDesk()
    for who in ("rename", None):
        chat = desk.asked("Never")
        guess = chat.title
        desk.titling.answered(chat.id)
        if who:
            desk.book.rename(chat.id, "Mine")
        desk.titling.drop(chat.id if who else None)
        assert desk.engine.submitted[-1].cancelled
        desk.run()
        assert chat.title == ("Mine" if who else guess)
    chat = desk.asked("Never")
    desk.titling.answered(chat.id)
    desk.book.rename(chat.id, "Mine")  # even if nobody told
    desk.run()
    assert chat.title == "Mine"


def test_no_title_while_others_are_answered_nor_for_later_answers():
    desk = TitleDesk()
    chat = desk.asked("No")
    desk.titling.enabled = False
    assert not desk.titling.answered(chat.id)
    desk.titling.enabled = True
    other = desk.chat("long", "answer")
    desk.answering.send(other.id, "x")
    assert not desk.titling.answered(chat.id)
    desk.run()
    desk.answering.send(chat.id, "again")
    desk.run()
    assert not desk.titling.answered(chat.id) and not desk.titling.answered("unknown")


def test_a_title_that_is_no_better_than_the_first_line_is_not_taken():
    desk = TitleDesk()
    chat = desk.asked("In Two and a Half Words: A Journey")
    guess = chat.title
    assert desk.titling.answered(chat.id)
    desk.run()
    assert chat.title == guess and desk.renamed == []


@pytest.mark.parametrize(
    ("wanted", "megabytes", "dtype", "asked"),
    [
        ("auto", 538, "float32", False),  # 135M
        ("auto", 270, "bfloat16", False),
        ("auto", 3_000, "bfloat16", True),
        ("auto", 400, "int4", True),
        ("auto", 0, "", True),  # a server elsewhere
        ("on", 538, "float32", True),
        ("off", 3_000, "bfloat16", False),
    ],
)
def test_small_models_are_asked_for_titles_only_on_request(wanted, megabytes, dtype, asked):
    desk = TitleDesk()
    chat = desk.asked("Late bus")
    desk.titling.wanted = wanted
    snapshot = desk.engine.snapshot
    desk.engine.snapshot = replace(snapshot, model=replace(snapshot.model, weight_bytes=megabytes * 10**6, dtype=dtype))
    assert desk.titling.answered(chat.id) is asked
