"""What a chat is: plain data, free of Qt and of the engine's inside.

A chat is a title, a list of messages, and what the person was about to write. Widgets mirror these objects; only `ChatBook` changes them,
so that everything that changes can also be stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from app.chats.tree import MessageTree
from engine import ErrorInfo, FinishReason, Message, SamplingParams, TimeSplit, Usage


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"


class AnswerState(StrEnum):
    """How far a message is. Messages of the person are DONE from the start."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"  # by the person
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # the program ended while it was being written


class Overflow(StrEnum):
    """What happens when a chat no longer fits into the model's context."""

    STOP = "stop"  # say so, and ask nothing
    DROP_OLDEST = "drop"  # leave the oldest turns out of the prompt; the system prompt stays


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file, or a long paste, that goes along with a message as text. `kind`: "text", "code", "pdf" or "paste"."""

    name: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """What the person wrote, on its way: a queued message, or one that is sent."""

    text: str
    attachments: tuple[Attachment, ...] = ()

    @property
    def blank(self) -> bool:
        return not self.text.strip() and not self.attachments


@dataclass(frozen=True, slots=True)
class ScrollPlace:
    """Where a reader stands in a chat: the message at the top of the view, and how far above the view it begins, in pixels."""

    message_id: str
    offset: int


@dataclass(slots=True, eq=False)
class ChatMessage:
    """One message. `created` in seconds since the epoch; usage, time and reason are known once an answer has ended.

    Attributes:
        parent: the message before it; None for a first one. place: its number in the order of writing, within its chat.
        thought: seconds the model reasoned before it answered. model: the name of the model that wrote it.
    """

    id: str
    role: Role
    text: str = ""
    created: float = 0.0
    state: AnswerState = AnswerState.DONE
    reason: FinishReason | None = None
    usage: Usage | None = None
    time: TimeSplit | None = None
    error: ErrorInfo | None = None
    parent: str | None = None
    place: int = 0
    attachments: tuple[Attachment, ...] = ()
    thought: float | None = None
    model: str = ""

    @property
    def running(self) -> bool:
        return self.state is AnswerState.RUNNING

    @property
    def cut_short(self) -> bool:
        """Whether an answer with words in it ended before it was complete, so that going on makes sense."""
        return self.role is Role.ASSISTANT and bool(self.text) and not self.running and self.reason is not FinishReason.STOP

    @property
    def searchable(self) -> str:
        """What a search finds of it: the text, then each file's name and text."""
        return "\n".join([self.text, *(part for file in self.attachments for part in (file.name, file.text))])

    @property
    def content(self) -> str:
        """What a model is given: the attachments, each under its name, then the text."""
        if not self.attachments:
            return self.text
        files = [f"<file name={attachment.name!r}>\n{attachment.text}\n</file>" for attachment in self.attachments]
        return "\n\n".join([*files, self.text] if self.text else files)


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """What a person may set for one chat."""

    system_prompt: str = ""
    temperature: float = 0.7
    top_p: float = 0.95
    max_tokens: int = 1024
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    overflow: str = Overflow.STOP.value
    model: str = ""  # as the engine is told to load it; "" is whichever is loaded

    def sampling(self) -> SamplingParams:
        return SamplingParams(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            seed=self.seed,
        )


@dataclass(slots=True, eq=False)
class Chat:
    """A conversation.

    Attributes:
        named: the title was given by the person and is not to be replaced by a guess.
        tree: all that was said, in all its versions; `messages` is the path in view.
        draft, draft_files: what stands in the composer. follow_ups: messages queued while an answer is being written.
        unread: an answer ended while the chat was not in view. scroll: where the reader stood; None at the end.
        pinned: stands above all days. folder: the name of the folder it is in, "" for none.
    """

    id: str
    title: str = ""
    named: bool = False
    created: float = 0.0
    updated: float = 0.0
    tree: MessageTree = field(default_factory=MessageTree)
    draft: str = ""
    draft_files: tuple[Attachment, ...] = ()
    follow_ups: list[Said] = field(default_factory=list)
    settings: ChatSettings = field(default_factory=ChatSettings)
    unread: bool = False
    scroll: ScrollPlace | None = None
    pinned: bool = False
    folder: str = ""

    @property
    def messages(self) -> list[ChatMessage]:
        """The messages in view, first to last. Only the tree changes them."""
        return self.tree.path

    @property
    def drafted(self) -> bool:
        """Whether something waits in the composer."""
        return bool(self.draft or self.draft_files)

    @property
    def empty(self) -> bool:
        return self.tree.empty

    @property
    def last(self) -> ChatMessage | None:
        return self.messages[-1] if self.messages else None

    @property
    def tokens_used(self) -> int:
        """Tokens of the chat in its model's context, as the last answer in view found it; 0 before the first."""
        usage = next((message.usage for message in reversed(self.messages) if message.usage), None)
        return usage.prompt_tokens + usage.completion_tokens if usage else 0

    @property
    def display_title(self) -> str:
        return self.title or "New chat"

    def prompt(self) -> list[Message]:
        """The turns a model is given: the system prompt, then what was said, without the answer that is still empty.

        Neighbouring turns of one role are joined, because many chat templates insist on alternation; that happens when an answer
        was stopped before its first token.
        """
        turns: list[Message] = []
        if self.settings.system_prompt.strip():
            turns.append(Message("system", self.settings.system_prompt))
        for message in self.messages:
            content = message.content
            if not content:
                continue
            if turns and turns[-1].role == message.role.value:
                turns[-1] = Message(message.role.value, turns[-1].content + "\n\n" + content)
            else:
                turns.append(Message(message.role.value, content))
        return turns
