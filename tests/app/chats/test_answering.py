"""Answers and their chats: queueing, stopping in every state, errors, priorities; text never leaves its chat."""

from __future__ import annotations

import pytest

from app.chats.answering import Answering
from app.chats.book import ChatBook
from app.chats.model import AnswerState, Attachment, Said
from engine import ErrorInfo, FinishReason, Priority, RequestRefused
from tests.app.fakes import FakeEngine, Script


class Desk:
    """Answering over a scripted engine, with the mailbox that a window would drain."""

    def __init__(self, **values) -> None:
        self.engine = FakeEngine(**values)
        self.book = ChatBook()
        self.ready: dict = {}
        self.answering = Answering(self.book, self.engine, lambda handle: self.ready.setdefault(handle.id, handle))

    def chat(self, *pieces: str, **script):
        if pieces or script:
            self.engine.scripts.append(Script(pieces or ("ok",), **script))
        return self.book.new_chat()

    def drain(self):
        handles, self.ready = list(self.ready.values()), {}
        return self.answering.deliver(handles)

    def run(self):
        progress = []
        while self.engine.busy or self.ready:
            self.engine.tick()
            progress += self.drain()
        return progress


def test_text_arrives_in_order_in_its_own_chat():
    desk = Desk()
    chats = [desk.chat(*(f"{number}-{piece} " for piece in range(20))) for number in range(8)]
    for chat in chats:
        assert desk.answering.send(chat.id, f"question {chat.id}")
    desk.run()
    for number, chat in enumerate(chats):
        assert chat.last.text == "".join(f"{number}-{piece} " for piece in range(20))
        assert chat.last.state is AnswerState.DONE
        assert chat.unread
    assert desk.answering.open_requests == 0


def test_a_second_message_waits_and_goes_out_when_the_answer_ends():
    desk = Desk()
    chat = desk.chat("first")
    desk.engine.scripts.append(Script(("second",)))
    assert desk.answering.send(chat.id, "one")
    assert not desk.answering.send(chat.id, "two")
    assert chat.follow_ups == [Said("two")]
    desk.run()
    assert [message.text for message in chat.messages] == ["one", "first", "two", "second"]
    assert chat.follow_ups == []
    assert [message.content for message in desk.engine.prompts[1]] == ["one", "first", "two"]


@pytest.mark.parametrize("ticks", [0, 1, 2, 4])
def test_stop_in_every_state_keeps_the_text_and_the_queue(ticks):
    desk = Desk()
    chat = desk.chat("a", "b", "c", "d", "e", prefill_ticks=2)
    desk.answering.send(chat.id, "go")
    desk.answering.send(chat.id, "later")
    desk.engine.tick(ticks)
    assert desk.answering.stop(chat.id)
    assert not desk.answering.active(chat.id)
    assert chat.last.state is AnswerState.STOPPED  # at once, not when the engine gets to it
    said = "abcde"[: max(0, ticks - 2)]
    assert chat.last.text == said
    desk.run()
    assert chat.last.text == said and chat.last.reason is FinishReason.CANCELLED and chat.last.time is not None
    assert chat.follow_ups == [Said("later")] and not chat.unread
    assert len(desk.engine.submitted) == 1  # what is queued waits for the person
    assert not desk.answering.stop(chat.id)
    assert chat.follow_ups == []
    assert desk.answering.open_requests == 0


def test_one_may_ask_again_before_the_stopped_answer_has_ended():
    desk = Desk()
    chat = desk.chat("old ", "text", prefill_ticks=0)
    desk.engine.scripts.append(Script(("new",), prefill_ticks=0))
    desk.answering.send(chat.id, "one")
    desk.engine.tick()
    desk.drain()
    desk.answering.stop(chat.id)
    assert desk.answering.send(chat.id, "two")
    desk.run()
    assert [message.text for message in chat.messages] == ["one", "old ", "two", "new"]
    assert chat.messages[1].state is AnswerState.STOPPED and chat.messages[3].state is AnswerState.DONE


def test_a_refusal_stands_in_the_chat_and_can_be_tried_again():
    desk = Desk()
    chat = desk.chat()
    desk.engine.refuse = RequestRefused("prompt_too_long", "The prompt has 9,000 tokens, the context 8,192.", "Start a new chat.")
    assert desk.answering.send(chat.id, "long")
    assert chat.last.state is AnswerState.FAILED and chat.last.error.code == "prompt_too_long"
    assert not desk.answering.active(chat.id)
    desk.engine.refuse = None
    assert desk.answering.retry(chat.id)
    desk.run()
    assert [message.text for message in chat.messages] == ["long", "Hello, world."]


def test_an_error_keeps_what_was_written_and_holds_the_queue():
    desk = Desk()
    chat = desk.chat("half ", error=ErrorInfo("nan_logits", "The model gave no numbers."))
    desk.answering.send(chat.id, "go")
    desk.answering.send(chat.id, "next")
    desk.run()
    assert chat.last.text == "half " and chat.last.state is AnswerState.FAILED and chat.last.error.code == "nan_logits"
    assert chat.follow_ups == [Said("next")]
    assert desk.answering.send_follow_up(chat.id)
    desk.run()
    assert chat.last.text == "Hello, world."


def test_looking_at_a_chat_brings_it_to_the_front():
    desk = Desk()
    first, second = desk.chat(), desk.chat()
    desk.answering.look_at(first.id)
    desk.answering.look_at(second.id)
    desk.answering.look_at(second.id)
    front, back = Priority.FOREGROUND, Priority.BACKGROUND
    assert desk.engine.priorities == [(first.id, front), (first.id, back), (second.id, front)]
    desk.answering.send(first.id, "x")
    desk.answering.send(second.id, "x")
    assert [handle.priority for handle in desk.engine.submitted] == [back, front]


def test_a_chat_deleted_while_it_is_answered_takes_its_text_along():
    desk = Desk()
    chat, other = desk.chat("gone"), desk.chat("here")
    desk.answering.send(chat.id, "x")
    desk.answering.send(other.id, "y")
    desk.book.delete(chat.id)
    desk.run()
    assert chat.id not in desk.book and other.last.text == "here"


def test_blank_messages_are_not_sent():
    desk = Desk()
    chat = desk.chat()
    assert not desk.answering.send(chat.id, "  \n ")
    assert chat.empty and desk.engine.submitted == []


def test_a_stopped_answer_goes_on_where_it_was_cut():
    desk = Desk()
    chat = desk.chat("one ", "two ", "never", prefill_ticks=0)
    desk.engine.scripts.append(Script(("three",)))
    desk.answering.send(chat.id, "count")
    desk.engine.tick(2)
    desk.drain()
    desk.answering.stop(chat.id)
    desk.run()
    assert chat.last.cut_short and desk.answering.go_on(chat.id)
    assert not desk.answering.go_on(chat.id)  # it is being written
    desk.run()
    assert [message.text for message in chat.messages] == ["count", "one two three"]
    assert desk.engine.continued == [False, True]
    assert [(turn.role, turn.content) for turn in desk.engine.prompts[1]] == [("user", "count"), ("assistant", "one two ")]
    assert chat.last.usage.completion_tokens == 3 and chat.last.time.decode == 4.0 and not chat.last.cut_short
    assert not desk.answering.go_on(desk.book.new_chat().id)


def test_asking_again_keeps_the_old_answer_as_a_version():
    desk = Desk()
    chat = desk.chat("first")
    desk.engine.scripts.append(Script(("second",)))
    desk.answering.send(chat.id, "q")
    desk.run()
    first = chat.last
    assert desk.answering.retry(chat.id)
    assert not desk.answering.retry(chat.id)  # one at a time
    desk.run()
    assert [message.content for message in desk.engine.prompts[1]] == ["q"]
    assert [message.text for message in chat.tree.versions(first)] == ["first", "second"] and chat.last.text == "second"


def test_an_answer_in_the_middle_is_asked_again_with_what_led_to_it():
    desk = Desk()
    chat = desk.chat("first")
    desk.engine.scripts += [Script(("second",)), Script(("other",))]
    desk.answering.send(chat.id, "one")
    desk.run()
    desk.answering.send(chat.id, "two")
    desk.run()
    assert desk.answering.retry(chat.id, chat.messages[1])
    desk.run()
    assert [message.text for message in chat.messages] == ["one", "other"]
    assert [message.content for message in desk.engine.prompts[2]] == ["one"]
    desk.book.show_version(chat.id, chat.last, -1)
    assert [message.text for message in chat.messages] == ["one", "first", "two", "second"]


def test_an_edited_question_stops_the_answer_and_is_asked():
    desk = Desk()
    chat = desk.chat("a", "b", "c", prefill_ticks=0)
    desk.answering.send(chat.id, "wrong")
    desk.engine.tick()
    desk.drain()
    assert desk.answering.edit(chat.id, chat.messages[0], "right")
    desk.run()
    assert [message.text for message in chat.messages] == ["right", "Hello, world."]
    assert desk.engine.prompts[1][0].content == "right"
    desk.book.show_version(chat.id, chat.messages[0], -1)
    assert [(message.text, message.state) for message in chat.messages][1] == ("a", AnswerState.STOPPED)


def test_an_edited_answer_is_what_the_model_is_told_it_said():
    desk = Desk()
    chat = desk.chat("four")
    desk.answering.send(chat.id, "2 + 2?")
    desk.run()
    assert not desk.answering.edit(chat.id, chat.last, "five")
    desk.answering.send(chat.id, "sure?")
    assert [message.content for message in desk.engine.prompts[1]] == ["2 + 2?", "five", "sure?"]
    assert not desk.answering.edit(chat.id, chat.messages[0], "  ")


def test_files_go_before_the_words_under_their_names():
    desk = Desk()
    chat = desk.chat()
    assert desk.answering.send(chat.id, "", (Attachment("a.py", "code", "x = 1"),))
    desk.answering.send(chat.id, "and this?", (Attachment("b.txt", "text", "b"),))
    assert chat.title == "a.py"
    desk.run()
    first, _, second = desk.engine.prompts[1]
    assert first.content == "<file name='a.py'>\nx = 1\n</file>"
    assert second.content == "<file name='b.txt'>\nb\n</file>\n\nand this?"


def test_reasoning_is_timed_from_the_first_word_to_its_end():
    desk = Desk()
    now = iter(range(0, 1000, 10))
    desk.answering._clock = lambda: float(next(now))
    chat = desk.chat("<think>", "hm", "</think>", "yes", "!")
    plain = desk.chat("no ", "thought")
    desk.answering.send(chat.id, "q")
    desk.run()
    assert chat.last.thought == 10.0 and chat.last.text == "<think>hm</think>yes!"
    desk.answering.send(plain.id, "q")
    desk.run()
    assert plain.last.thought is None
