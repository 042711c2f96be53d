"""Chats over the starter model: what a branch, another version and a title cost the KV cache."""

from __future__ import annotations

import time

import pytest

from app.chats.answering import Answering
from app.chats.book import ChatBook
from app.chats.model import ChatSettings
from engine import Engine

pytestmark = [pytest.mark.model, pytest.mark.slow]

LONG = "Explain, with a city bus as the picture, how a server answers many chats at once. " * 6


def answered(answering: Answering, handles: dict, chat_id: str) -> int:
    """Wait for a chat's answer; tokens of its prompt that came out of the cache."""
    end = time.monotonic() + 120
    while answering.active(chat_id) and time.monotonic() < end:
        answering.deliver(list(handles.values()))
        time.sleep(0.01)
    usage = answering.book[chat_id].last.usage
    assert usage is not None
    return usage.cached_tokens


def test_a_branch_and_another_version_share_what_was_computed(engine: Engine) -> None:
    handles: dict = {}
    book = ChatBook()
    answering = Answering(book, engine, lambda handle: handles.setdefault(handle.id, handle))
    chat = book.new_chat()
    book.set_settings(chat.id, ChatSettings(temperature=0.0, max_tokens=8))
    answering.send(chat.id, LONG)
    answered(answering, handles, chat.id)
    prompt = chat.last.usage.prompt_tokens
    assert prompt > 80
    answering.retry(chat.id)
    assert answered(answering, handles, chat.id) > prompt // 2
    branch = book.branch(chat.id, chat.last)
    answering.send(branch.id, "And a tram?")
    shared = answered(answering, handles, branch.id)
    assert shared > prompt // 2 and branch.last.usage.prompt_tokens > prompt
