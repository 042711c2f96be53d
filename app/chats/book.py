"""The book of all chats: the only place that changes them, and the place that tells the store.

Free of Qt and of any engine. Every method takes a chat's id, never a tab: an answer finds its chat wherever that is shown.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from app.chats.model import AnswerState, Attachment, Chat, ChatMessage, ChatSettings, Role, Said, ScrollPlace
from app.chats.search import LIMIT, Hit, search_chats
from app.chats.titles import title_from
from app.chats.tree import Removed
from engine import ErrorInfo, FinishedEvent, FinishReason, TimeSplit, Usage


class Store(Protocol):
    """Where a book keeps its chats. Calls take what they are given as it is then, and return at once; they are made durable in order,
    soon, or by `commit`."""

    def load(self) -> list[Chat]: ...
    def save_chat(self, chat: Chat) -> None: ...
    def save_draft_files(self, chat_id: str, files: tuple[Attachment, ...]) -> None: ...
    def save_whole(self, chat: Chat) -> None: ...
    def save_message(self, chat_id: str, place: int, message: ChatMessage) -> None: ...
    def append_text(self, message_id: str, text: str) -> None: ...
    def delete_message(self, message_id: str) -> None: ...
    def delete_chat(self, chat_id: str) -> None: ...
    def commit(self, timeout: float) -> bool: ...
    def search(self, words: str, limit: int) -> list[Hit]: ...


def new_id() -> str:
    return uuid.uuid4().hex


class ChatBook:
    """All chats by id. Raises KeyError for an id that is not in it."""

    def __init__(self, store: Store | None = None, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._chats: dict[str, Chat] = {chat.id: chat for chat in store.load()} if store else {}

    # ------------------------------------------------------------------------------------------------------ reading

    def __contains__(self, chat_id: str) -> bool:
        return chat_id in self._chats

    def __getitem__(self, chat_id: str) -> Chat:
        return self._chats[chat_id]

    def listed(self) -> list[Chat]:
        """Chats worth showing in a list (something was said or drafted), newest first."""
        return sorted(
            (chat for chat in self._chats.values() if not chat.empty or chat.drafted), key=lambda chat: chat.updated, reverse=True
        )

    def unread(self) -> list[str]:
        """Chats with an answer that ended while nobody looked."""
        return [chat.id for chat in self._chats.values() if chat.unread]

    def search_everything(self, words: str, limit: int = LIMIT) -> list[Hit]:
        """Titles and messages of every chat. May be called from any thread."""
        return self._store.search(words, limit) if self._store else search_chats(self.listed(), words, limit)

    # ------------------------------------------------------------------------------------------------------- chats

    def new_chat(self) -> Chat:
        now = self._clock()
        chat = Chat(new_id(), created=now, updated=now)
        self._chats[chat.id] = chat
        return chat

    def rename(self, chat_id: str, title: str) -> None:
        """Give a title; an empty one goes back to a guess from the first message."""
        chat = self._chats[chat_id]
        chat.named = bool(title.strip())
        chat.title = title.strip() or (title_from(chat.messages[0].text) if chat.messages else "")
        self._save_chat(chat)

    def set_guess(self, chat_id: str, title: str) -> None:
        """A better guess at a title; the chat keeps its place among the others."""
        chat = self._chats[chat_id]
        if not chat.named and title:
            chat.title = title
            self._save_chat(chat)

    def delete(self, chat_id: str) -> Chat:
        """Take a chat out of the book and return it, so that it can be put back."""
        chat = self._chats.pop(chat_id)
        chat.tree.everything()  # while it can still be read
        if self._store:
            self._store.delete_chat(chat_id)
        return chat

    def restore(self, chat: Chat) -> None:
        """Put a deleted chat back as it was."""
        self.adopt(chat)

    def adopt(self, chat: Chat) -> bool:
        """Take a chat in as it is, stored in one piece. False where one of its id is here already, which is left alone."""
        if chat.id in self._chats:
            return False
        self._chats[chat.id] = chat
        if self._store:
            self._store.save_whole(chat)
        return True

    def set_draft(self, chat_id: str, text: str) -> None:
        chat = self._chats[chat_id]
        if chat.draft != text:
            chat.draft = text
            self._save_chat(chat)

    def set_draft_files(self, chat_id: str, files: tuple[Attachment, ...]) -> None:
        chat = self._chats[chat_id]
        if chat.draft_files != files:
            chat.draft_files = files
            if self._store:
                self._save_chat(chat)  # its row may not be there yet
                self._store.save_draft_files(chat_id, files)

    def set_scroll(self, chat_id: str, place: ScrollPlace | None) -> None:
        """Where the reader of a chat stands; None: at its end."""
        chat = self._chats[chat_id]
        if chat.scroll != place:
            chat.scroll = place
            if not chat.empty:
                self._save_chat(chat)

    def set_settings(self, chat_id: str, settings: ChatSettings) -> None:
        chat = self._chats[chat_id]
        if chat.settings != settings:
            chat.settings = settings
            self._save_chat(chat)

    def set_unread(self, chat_id: str, unread: bool) -> None:
        chat = self._chats[chat_id]
        if chat.unread != unread:
            chat.unread = unread
            self._save_chat(chat)

    def set_pinned(self, chat_id: str, pinned: bool) -> None:
        chat = self._chats[chat_id]
        if chat.pinned != pinned:
            chat.pinned = pinned
            self._save_chat(chat)

    def set_folder(self, chat_id: str, folder: str) -> None:
        """Put a chat into a folder; "" takes it out. A folder is there as long as a chat is in it."""
        chat = self._chats[chat_id]
        if chat.folder != folder:
            chat.folder = folder
            self._save_chat(chat)

    def folders(self) -> list[str]:
        return sorted({chat.folder for chat in self._chats.values() if chat.folder}, key=str.casefold)

    def add_follow_up(self, chat_id: str, said: Said) -> None:
        chat = self._chats[chat_id]
        chat.follow_ups.append(said)
        self._save_chat(chat)

    def take_follow_up(self, chat_id: str, place: int = 0) -> Said:
        """Remove a queued message and return it. Raises IndexError where there is none."""
        chat = self._chats[chat_id]
        said = chat.follow_ups.pop(place)
        self._save_chat(chat)
        return said

    def clear_follow_ups(self, chat_id: str) -> None:
        chat = self._chats[chat_id]
        if chat.follow_ups:
            chat.follow_ups.clear()
            self._save_chat(chat)

    def branch(self, chat_id: str, message: ChatMessage) -> Chat:
        """A new chat that begins with everything up to and with this message. The old one stays as it is."""
        source = self._chats[chat_id]
        chat = self.new_chat()
        chat.settings = source.settings
        chat.title, chat.named = source.title, source.named
        self._save_chat(chat)
        for original in (*source.tree.before(message), message):
            state = AnswerState.STOPPED if original.running else original.state
            chat.tree.add(replace(original, id=new_id(), state=state), chat.last)
            self._save_message(chat.id, chat.messages[-1])
        return chat

    # ---------------------------------------------------------------------------------------------------- messages

    def add_user(self, chat_id: str, text: str, attachments: tuple[Attachment, ...] = ()) -> ChatMessage:
        """Append what the person said. The first one names the chat."""
        chat = self._chats[chat_id]
        message = self._add(chat, ChatMessage(new_id(), Role.USER, text, attachments=attachments), chat.last)
        if not chat.title:
            chat.title = title_from(text) or (attachments[0].name if attachments else "")
        self._save_chat(chat)
        return message

    def begin_answer(self, chat_id: str, instead_of: ChatMessage | None = None) -> ChatMessage:
        """An empty answer that is being written: behind the last message, or as one more version of another answer."""
        chat = self._chats[chat_id]
        after = chat.last if instead_of is None else self._parent(chat, instead_of)
        return self._add(chat, ChatMessage(new_id(), Role.ASSISTANT, state=AnswerState.RUNNING), after)

    def edit(self, chat_id: str, message: ChatMessage, text: str, attachments: tuple[Attachment, ...] | None = None) -> ChatMessage:
        """Another version of a message, with other words. The old one stays, with all that followed it."""
        chat = self._chats[chat_id]
        files = message.attachments if attachments is None else attachments
        version = ChatMessage(new_id(), message.role, text, attachments=files, model=message.model)
        return self._add(chat, version, self._parent(chat, message))

    def show_version(self, chat_id: str, message: ChatMessage, step: int) -> ChatMessage | None:
        """Bring the version `step` places beside a message into view; None where there is none."""
        chat = self._chats[chat_id]
        versions = chat.tree.versions(message)
        place = versions.index(message) + step
        if not 0 <= place < len(versions):
            return None
        chat.tree.show(versions[place])
        self._save_chat(chat)
        return versions[place]

    def delete_message(self, chat_id: str, message: ChatMessage) -> Removed:
        """Take a message out (see `MessageTree.remove`) and return what is needed to put it back."""
        chat = self._chats[chat_id]
        removed = chat.tree.remove(message)
        if self._store:
            for gone in removed.messages:
                self._store.delete_message(gone.id)
        self._save_moved(chat, removed)
        self._save_chat(chat)
        return removed

    def restore_message(self, chat_id: str, removed: Removed) -> None:
        """Put back what `delete_message` took away."""
        chat = self._chats[chat_id]
        chat.tree.put_back(removed)
        for message in removed.messages:
            self._save_message(chat_id, message)
        self._save_moved(chat, removed)
        self._save_chat(chat)

    def resume_answer(self, chat_id: str) -> ChatMessage | None:
        """Open the last answer again, so that more is written to it; None if the last message is no ended answer with words in it."""
        message = self._chats[chat_id].last
        if message is None or message.role is not Role.ASSISTANT or message.running or not message.text:
            return None
        message.state, message.reason, message.error = AnswerState.RUNNING, None, None
        self._save_message(chat_id, message)
        return message

    def append(self, message: ChatMessage, text: str) -> None:
        """More text of an answer."""
        message.text += text
        if self._store and text:
            self._store.append_text(message.id, text)

    def stop(self, chat_id: str, message: ChatMessage) -> None:
        """The person stopped an answer; what the engine has to say about it still comes with `finish`."""
        message.state = AnswerState.STOPPED
        message.reason = FinishReason.CANCELLED
        self._save_message(chat_id, message)

    def finish(self, chat_id: str, message: ChatMessage, event: FinishedEvent) -> None:
        """An answer ended: keep why, and where its time went. What a resumed answer took before is added."""
        message.reason = event.reason
        message.usage = _both_usages(message.usage, event.usage)
        message.time = _both_times(message.time, event.time)
        message.error = event.error
        message.state = {
            FinishReason.CANCELLED: AnswerState.STOPPED,
            FinishReason.ERROR: AnswerState.FAILED,
        }.get(event.reason, AnswerState.DONE)
        self._close(chat_id, message)

    def fail(self, chat_id: str, message: ChatMessage, error: ErrorInfo) -> None:
        """An answer could not even be asked for."""
        message.state = AnswerState.FAILED
        message.reason = FinishReason.ERROR
        message.error = error
        self._close(chat_id, message)

    def commit(self, timeout: float = 0.25) -> bool:
        """Wait until everything so far is durable; False when that took longer than `timeout` seconds (it still happens)."""
        return self._store.commit(timeout) if self._store else True

    # ------------------------------------------------------------------------------------------------------ private

    def _add(self, chat: Chat, message: ChatMessage, after: ChatMessage | None) -> ChatMessage:
        message.created = chat.updated = self._clock()
        chat.tree.add(message, after)
        # The chat's row comes first: a message belongs to it.
        self._save_chat(chat)
        self._save_message(chat.id, message)
        return message

    @staticmethod
    def _parent(chat: Chat, message: ChatMessage) -> ChatMessage | None:
        return chat.tree.get(message.parent) if message.parent is not None else None

    def _close(self, chat_id: str, message: ChatMessage) -> None:
        chat = self._chats.get(chat_id)
        if chat is None or message not in chat.tree:
            return  # deleted meanwhile
        chat.updated = self._clock()
        self._save_message(chat_id, message)
        self._save_chat(chat)

    def _save_chat(self, chat: Chat) -> None:
        if self._store:
            self._store.save_chat(chat)

    def _save_message(self, chat_id: str, message: ChatMessage) -> None:
        chat = self._chats.get(chat_id)
        if self._store and chat is not None and message in chat.tree:
            self._store.save_message(chat_id, message.place, message)

    def _save_moved(self, chat: Chat, removed: Removed) -> None:
        for child_id in removed.moved:
            if (child := chat.tree.get(child_id)) is not None:
                self._save_message(chat.id, child)


def _both_usages(before: Usage | None, more: Usage) -> Usage:
    """Tokens of an answer written in two goes; the prompt is the first go's."""
    if before is None:
        return more
    return replace(before, completion_tokens=before.completion_tokens + more.completion_tokens)


def _both_times(before: TimeSplit | None, more: TimeSplit) -> TimeSplit:
    """Where the time of an answer in two goes went."""
    if before is None:
        return more
    return TimeSplit(
        waited=before.waited + more.waited,
        prefill=before.prefill + more.prefill,
        decode=before.decode + more.decode,
        preempted=before.preempted + more.preempted,
        ttft=before.ttft if before.ttft is not None else more.ttft,
    )
