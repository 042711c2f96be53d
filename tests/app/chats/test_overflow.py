"""A chat that outgrows its context: stopped with a clear word, or its oldest turns left out in steps that keep beginnings alike."""

from __future__ import annotations

from app.chats.book import ChatBook
from app.chats.model import AnswerState, ChatSettings, Overflow
from app.chats.overflow import STEP, fitted, overflow_words
from engine import ErrorInfo


def make_chat(turns: int, overflow: Overflow = Overflow.DROP_OLDEST):
    book = ChatBook()
    chat = book.new_chat()
    book.set_settings(chat.id, ChatSettings(system_prompt="be brief", max_tokens=100, overflow=overflow.value))
    for number in range(turns):
        book.add_user(chat.id, f"question {number}")
        answer = book.begin_answer(chat.id)
        book.append(answer, f"answer {number}")
        answer.state = AnswerState.DONE
    book.add_user(chat.id, "last")
    return book, chat


def count(prompt) -> int:
    return 10 * len(prompt)


def test_what_fits_is_left_alone_and_so_is_a_chat_that_is_to_stop():
    _, chat = make_chat(5)
    assert fitted(chat, count, 1000) == chat.prompt()
    assert fitted(chat, count, 0) == chat.prompt()
    assert 1 < len(fitted(chat, lambda prompt: None, 100)) < len(chat.prompt())  # no tokenizer: guessed
    _, chat = make_chat(50, Overflow.STOP)
    assert fitted(chat, count, 200) == chat.prompt()


def test_the_oldest_turns_go_the_system_prompt_and_the_last_turn_stay():
    _, chat = make_chat(50)
    prompt = fitted(chat, count, 400)
    assert prompt[0].role == "system" and prompt[1].role == "user" and prompt[-1].content == "last"
    assert count(prompt) <= 300
    assert [turn.role for turn in fitted(chat, lambda prompt: 10**6, 400)] == ["system", "user"]


def test_many_prompts_in_a_row_begin_alike():
    book, chat = make_chat(30)
    beginnings = set()
    for number in range(STEP):
        beginnings.add(fitted(chat, count, 400)[1].content)
        answer = book.begin_answer(chat.id)
        book.append(answer, "a")
        book.add_user(chat.id, f"more {number}")
    assert len(beginnings) <= 3


def test_the_words_say_what_can_be_done():
    error = ErrorInfo("prompt_too_long", "The prompt has 9,000 tokens.", "Shorten it.")
    assert "Ctrl+Shift+B" in overflow_words(error, make_chat(1, Overflow.STOP)[1]).hint
    assert "attachments" in overflow_words(error, make_chat(1)[1]).hint
    other = ErrorInfo("nan", "No.", "Wait.")
    assert overflow_words(other, make_chat(1)[1]) is other
