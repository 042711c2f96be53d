"""Answers on their way: from a message of the person to an engine request, and from its events back into the chat it belongs to.

Free of Qt. Everything here runs on one thread (the window's); the engine calls only the `ready` callable it was given, from its own.
An answer is bound to its chat's id and message; no tab, page or widget is known here, so switching and closing tabs cannot lose text.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from app.chats.book import ChatBook
from app.chats.model import Attachment, Chat, ChatMessage, Role, Said
from app.chats.overflow import fitted, overflow_words
from engine import (
    EngineError,
    ErrorInfo,
    FinishedEvent,
    FinishReason,
    Message,
    Priority,
    ReasoningSplitter,
    RequestHandle,
    SamplingParams,
    Snapshot,
    TokensEvent,
)

log = logging.getLogger(__name__)


class Asks(Protocol):
    """The part of an engine that answering needs."""

    def submit(
        self,
        prompt: list[Message],
        params: SamplingParams,
        *,
        chat_id: str,
        title: str,
        priority: Priority,
        continue_final: bool,
        model: str,
        on_ready: Callable[[RequestHandle], None],
    ) -> RequestHandle: ...

    def set_chat_priority(self, chat_id: str, priority: Priority) -> None: ...

    def count_tokens(self, prompt: list[Message]) -> int | None: ...

    @property
    def snapshot(self) -> Snapshot: ...


@dataclass(slots=True)
class Run:
    """One request of ours that has not ended. `stopped`: the person no longer waits for it, only its last event is awaited."""

    chat_id: str
    message: ChatMessage
    handle: RequestHandle
    tokens: int = 0
    stopped: bool = False
    splitter: ReasoningSplitter | None = field(default_factory=ReasoningSplitter)  # until the reasoning is over
    reasoned: bool = False
    since: float | None = None  # when the first words came


@dataclass(frozen=True, slots=True)
class Progress:
    """What one drain did to one chat: text came, or an answer ended (`finished`)."""

    chat_id: str
    request_id: str
    message: ChatMessage
    finished: bool


class Answering:
    """Starts, stops and feeds the answers of all chats.

    `ready` is called from the engine's thread; it must hand over to this thread's event loop and never deliver by itself.

    Attributes:
        book: the chats. view: the chat in view, which rides in the foreground class.
        on_active: hears which chats wait for an answer, whenever that changes, and before a request leaves this place.
    """

    def __init__(
        self,
        book: ChatBook,
        engine: Asks,
        ready: Callable[[RequestHandle], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.book = book
        self.view: str | None = None
        self.on_active: Callable[[tuple[str, ...]], None] = lambda chats: None
        self._chosen: dict[str, Priority] = {}
        self._engine = engine
        self._ready = ready
        self._clock = clock
        self._runs: dict[str, Run] = {}  # by request
        self._active: dict[str, Run] = {}  # by chat: the one answer that is being written

    # ------------------------------------------------------------------------------------------------------ reading

    def active(self, chat_id: str) -> bool:
        """Whether an answer of this chat is queued or being written (a stopped one is neither)."""
        return chat_id in self._active

    @property
    def active_chats(self) -> tuple[str, ...]:
        return tuple(self._active)

    @property
    def open_requests(self) -> int:
        """Requests whose last event has not come, stopped ones included."""
        return len(self._runs)

    def request_id(self, chat_id: str) -> str | None:
        run = self._active.get(chat_id)
        return run.handle.id if run else None

    # ------------------------------------------------------------------------------------------------------ actions

    def look_at(self, chat_id: str | None) -> None:
        """The person looks at this chat now: it rides first, the one before goes back."""
        before, self.view = self.view, chat_id
        if before == chat_id:
            return
        for chat in (before, chat_id):
            if chat is not None and chat not in self._chosen:
                self._engine.set_chat_priority(chat, self._priority(chat))

    def priority_of(self, chat_id: str) -> Priority | None:
        """The class that the person chose for a chat; None: first while it is in view."""
        return self._chosen.get(chat_id)

    def set_priority(self, chat_id: str, priority: Priority | None) -> None:
        """Choose a class for a chat, for what rides already, too; None goes back to first while it is in view."""
        self._chosen.pop(chat_id, None)
        if priority is not None:
            self._chosen[chat_id] = priority
        self._engine.set_chat_priority(chat_id, self._priority(chat_id))

    def _priority(self, chat_id: str) -> Priority:
        if chat_id in self._chosen:
            return self._chosen[chat_id]
        return Priority.FOREGROUND if chat_id == self.view else Priority.BACKGROUND

    def send(self, chat_id: str, text: str, attachments: tuple[Attachment, ...] = ()) -> bool:
        """Say something in a chat. While its answer is being written it waits its turn as a follow-up.

        Returns True if an answer was started (also one that failed at once), False if it was queued, or there was nothing to say.
        """
        said = Said(text, attachments)
        if said.blank:
            return False
        if self.active(chat_id):
            self.book.add_follow_up(chat_id, said)
            return False
        self.book.add_user(chat_id, text, attachments)
        self._ask(chat_id)
        return True

    def send_follow_up(self, chat_id: str) -> bool:
        """Send the first queued message, if there is one and nothing is being written."""
        if self.active(chat_id) or not self.book[chat_id].follow_ups:
            return False
        said = self.book.take_follow_up(chat_id)
        self.book.add_user(chat_id, said.text, said.attachments)
        self._ask(chat_id)
        return True

    def retry(self, chat_id: str, answer: ChatMessage | None = None) -> bool:
        """Ask again for an answer (by default the last message): a new version, the old one stays; one without words is replaced.

        False while one is being written or there is nothing to answer.
        """
        if self.active(chat_id):
            return False
        chat = self.book[chat_id]
        answer = answer or chat.last
        if answer is None or (answer.role is Role.ASSISTANT and answer.parent is None):
            return False
        if answer.role is Role.USER:
            chat.tree.show(answer)
            if chat.last is not answer:
                return False
            self._ask(chat_id)
        else:
            message = self.book.begin_answer(chat_id, instead_of=answer)
            if not answer.text and len(chat.tree.below(answer)) == 1:
                self.book.delete_message(chat_id, answer)
            self._submit(chat_id, message, continue_final=False)
        return True

    def edit(self, chat_id: str, message: ChatMessage, text: str, attachments: tuple[Attachment, ...] | None = None) -> bool:
        """Say something else in the place of a message, as a new version. A question is asked at once, its present answer stopped.

        Returns whether an answer was started. Blank text changes nothing.
        """
        if not text.strip() and not (message.attachments if attachments is None else attachments):
            return False
        if self.active(chat_id):
            self.stop(chat_id)
        self.book.edit(chat_id, message, text, attachments)
        if message.role is not Role.USER:
            return False
        self._ask(chat_id)
        return True

    def go_on(self, chat_id: str) -> bool:
        """Go on writing an answer that was cut short. False where there is none, or one is being written."""
        if self.active(chat_id):
            return False
        message = self.book.resume_answer(chat_id)
        if message is None:
            return False
        self._submit(chat_id, message, continue_final=True)
        return True

    def stop(self, chat_id: str) -> bool:
        """Stop the answer of a chat in whatever state it is; what was written stays. A second stop drops the queued follow-ups."""
        run = self._active.pop(chat_id, None)
        if run is None:
            self.book.clear_follow_ups(chat_id)
            return False
        run.stopped = True
        self.on_active(self.active_chats)
        self._apply(run)  # what already came out is the person's
        if run.handle.id in self._runs:
            self.book.stop(chat_id, run.message)
            run.handle.cancel()
        return True

    def stop_all(self) -> None:
        for chat_id in self.active_chats:
            self.stop(chat_id)

    # ------------------------------------------------------------------------------------------------------- events

    def deliver(self, handles: Iterable[RequestHandle]) -> list[Progress]:
        """Take what these requests have to say into their chats. Handles that are not ours are passed over."""
        progress: list[Progress] = []
        for handle in handles:
            run = self._runs.get(handle.id)
            if run is None:
                continue
            progress.extend(self._apply(run))
        return progress

    # ------------------------------------------------------------------------------------------------------ private

    def _ask(self, chat_id: str) -> None:
        self._submit(chat_id, self.book.begin_answer(chat_id), continue_final=False)

    def _submit(self, chat_id: str, message: ChatMessage, continue_final: bool) -> None:
        chat = self.book[chat_id]
        # Stored before it is sent: whatever happens from here on, what the person wrote is safe.
        self.on_active((*self._active, chat_id))
        self.book.commit()
        try:
            handle = self._engine.submit(
                fitted(chat, self._engine.count_tokens, self._engine.snapshot.model.context),
                chat.settings.sampling(),
                chat_id=chat_id,
                title=chat.display_title,
                priority=self._priority(chat_id),
                continue_final=continue_final,
                model=chat.settings.model,
                on_ready=self._ready,
            )
        except EngineError as error:
            self.book.fail(chat_id, message, overflow_words(error.info(), chat))
            self.on_active(self.active_chats)
            return
        run = Run(chat_id, message, handle)
        if message.text:  # it goes on; what it thought is measured already
            run.splitter = None
        self._runs[handle.id] = run
        self._active[chat_id] = run

    def _apply(self, run: Run) -> list[Progress]:
        progress: list[Progress] = []
        for event in run.handle.poll():
            if isinstance(event, TokensEvent):
                run.tokens += event.tokens
                self._time_thought(run, event.text)
                self.book.append(run.message, event.text)
                if not progress:
                    progress.append(Progress(run.chat_id, run.handle.id, run.message, finished=False))
            elif isinstance(event, FinishedEvent):
                self._end(run, event)
                progress.append(Progress(run.chat_id, run.handle.id, run.message, finished=True))
        return progress

    def _time_thought(self, run: Run, text: str) -> None:
        """Measure how long a model reasons before it answers."""
        if run.splitter is None:
            return
        run.since = self._clock() if run.since is None else run.since
        pieces = list(run.splitter.push(text))
        run.reasoned = run.reasoned or run.splitter.inside or any(piece.reasoning for piece in pieces)
        if any(not piece.reasoning for piece in pieces) or (run.reasoned and not run.splitter.inside):
            if run.reasoned:
                run.message.thought = self._clock() - run.since
            run.splitter = None

    def _end(self, run: Run, event: FinishedEvent) -> None:
        self._runs.pop(run.handle.id, None)
        if self._active.get(run.chat_id) is run:
            del self._active[run.chat_id]
        if event.reason is FinishReason.ERROR and event.error is None:
            log.error("request %s ended with an error that says nothing", event.request_id)
            event = replace(event, error=ErrorInfo("unknown", "The engine gave up on this answer.", "Try again."))
        if event.error is not None and run.chat_id in self.book:
            event = replace(event, error=overflow_words(event.error, self.book[run.chat_id]))
        self.book.finish(run.chat_id, run.message, event)
        self.on_active(self.active_chats)
        if run.chat_id in self.book:
            chat = self.book[run.chat_id]
            if run.chat_id != self.view and not run.stopped:
                self.book.set_unread(run.chat_id, True)
            if self._goes_on(chat, run, event):
                self.send_follow_up(run.chat_id)

    @staticmethod
    def _goes_on(chat: Chat, run: Run, event: FinishedEvent) -> bool:
        """Whether the next queued message goes out by itself: only after an answer that came to its end."""
        return bool(chat.follow_ups) and not run.stopped and event.reason in (FinishReason.STOP, FinishReason.LENGTH)
