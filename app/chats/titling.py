"""Titles that the model makes: after the first answer of a chat, at the lowest class, and only while nobody else wants the engine.

Free of Qt. A title is a nicety: it is dropped when anything is asked while it waits or is written, it is never tried twice, and a name that
the person gives always wins. It continues the chat's own prompt, so the engine's prefix cache holds all of it but the question.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from app.chats.answering import Answering, Asks
from app.chats.book import ChatBook
from app.chats.model import AnswerState, Role
from app.chats.title_check import ASK, checked_title
from engine import (
    EngineError,
    FinishedEvent,
    FinishReason,
    Message,
    ModelView,
    Priority,
    RequestHandle,
    SamplingParams,
    TokensEvent,
    split_reasoning,
)

log = logging.getLogger(__name__)

PARAMS = SamplingParams(max_tokens=24, temperature=0.0, stop=("\n\n",))
LEAST_PARAMETERS = 500e6


@dataclass(slots=True)
class _Wish:
    chat_id: str
    guess: str  # the title there was when this one was wished for
    handle: RequestHandle
    text: list[str] = field(default_factory=list)


class Titling:
    """Wishes for titles, at most one at a time.

    `ready` is what the engine calls from its thread, as for answers.

    Attributes:
        enabled: whether titles are wished for at all; off until the program says otherwise.
        wanted: "on", "off", or "auto" for those of models that are strong enough.
    """

    def __init__(self, book: ChatBook, answering: Answering, engine: Asks, ready: Callable[[RequestHandle], None]) -> None:
        self._book = book
        self._answering = answering
        self._engine = engine
        self._ready = ready
        self.enabled = False
        self.wanted = "auto"
        self._wish: _Wish | None = None
        self._tried: set[str] = set()

    @property
    def busy(self) -> bool:
        return self._wish is not None

    def answered(self, chat_id: str) -> bool:
        """An answer of this chat has ended. Returns whether a title is wished for now."""
        if not self.enabled or chat_id not in self._book or chat_id in self._tried or self._wish is not None:
            return False
        chat = self._book[chat_id]
        last = chat.last
        first = len(chat.messages) == 2 and last is not None and last.role is Role.ASSISTANT
        if chat.named or not first or last is None or last.state is not AnswerState.DONE or not last.text.strip():
            return False
        snapshot = self._engine.snapshot
        if self.wanted == "off" or (self.wanted == "auto" and not strong_enough(snapshot.model)):
            return False
        if self._answering.active_chats or snapshot.waiting or any(seat is not None and seat.chat_id != chat_id for seat in snapshot.seats):
            return False  # others want the engine; the first line goes on naming the chat
        self._tried.add(chat_id)
        try:
            handle = self._engine.submit(
                [*chat.prompt(), Message("user", ASK)],
                PARAMS,
                chat_id=f"title:{chat_id}",
                title="Title",
                priority=Priority.IDLE,
                continue_final=False,
                model=chat.settings.model,
                on_ready=self._ready,
            )
        except EngineError as error:
            log.info("no title: %s", error)
            return False
        self._wish = _Wish(chat_id, chat.title, handle)
        return True

    def drop(self, chat_id: str | None = None) -> None:
        """Somebody asks for something (None), or this chat is renamed or goes: give the wish up."""
        wish = self._wish
        if wish is not None and chat_id in (None, wish.chat_id):
            self._wish = None
            wish.handle.cancel()

    def deliver(self, handles: Iterable[RequestHandle]) -> str | None:
        """Take what a title's request says. Returns the id of a chat that has a new title now."""
        wish = self._wish
        if wish is None or wish.handle not in list(handles):
            return None
        for event in wish.handle.poll():
            if isinstance(event, TokensEvent):
                wish.text.append(event.text)
            elif isinstance(event, FinishedEvent):
                self._wish = None
                if event.reason in (FinishReason.STOP, FinishReason.LENGTH):
                    return self._give(wish)
        return None

    def _give(self, wish: _Wish) -> str | None:
        if wish.chat_id not in self._book:
            return None
        chat = self._book[wish.chat_id]
        title = checked_title("".join(wish.text), "\n".join(split_reasoning(message.text)[1] for message in chat.messages))
        if not title:
            return None
        if chat.named or chat.title != wish.guess:
            return None
        self._book.set_guess(wish.chat_id, title)
        return wish.chat_id


def strong_enough(model: ModelView) -> bool:
    """Whether a model's titles are likely to be better than first lines. One elsewhere, whose size is not known, is."""
    if not model.weight_bytes:
        return True
    bits = re.search(r"\d+", model.dtype)
    return model.weight_bytes * 8 / (int(bits[0]) if bits else 16) >= LEAST_PARAMETERS
