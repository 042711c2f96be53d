"""What a chat is: plain data, free of Qt and of the engine's inside.

A chat is a title, a list of messages, and what the person was about to write. Widgets mirror these objects; only `ChatBook` changes them,
so that everything that changes can also be stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

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


@dataclass(slots=True, eq=False)
class ChatMessage:
    """One message. `created` in seconds since the epoch; usage, time and reason are known once an answer has ended."""

    id: str
    role: Role
    text: str = ""
    created: float = 0.0
    state: AnswerState = AnswerState.DONE
    reason: FinishReason | None = None
    usage: Usage | None = None
    time: TimeSplit | None = None
    error: ErrorInfo | None = None

    @property
    def running(self) -> bool:
        return self.state is AnswerState.RUNNING

    @property
    def cut_short(self) -> bool:
        """Whether an answer with words in it ended before it was complete, so that going on makes sense."""
        return self.role is Role.ASSISTANT and bool(self.text) and not self.running and self.reason is not FinishReason.STOP


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """What a person may set for one chat."""

    system_prompt: str = ""
    temperature: float = 0.7
    top_p: float = 0.95
    max_tokens: int = 1024

    def sampling(self) -> SamplingParams:
        return SamplingParams(max_tokens=self.max_tokens, temperature=self.temperature, top_p=self.top_p)


@dataclass(slots=True, eq=False)
class Chat:
    """A conversation.

    Attributes:
        named: the title was given by the person and is not to be replaced by a guess.
        draft: what stands in the composer. follow_ups: messages queued while an answer is being written.
        unread: an answer ended while the chat was not in view.
    """

    id: str
    title: str = ""
    named: bool = False
    created: float = 0.0
    updated: float = 0.0
    messages: list[ChatMessage] = field(default_factory=list)
    draft: str = ""
    follow_ups: list[str] = field(default_factory=list)
    settings: ChatSettings = field(default_factory=ChatSettings)
    unread: bool = False

    @property
    def empty(self) -> bool:
        return not self.messages

    @property
    def last(self) -> ChatMessage | None:
        return self.messages[-1] if self.messages else None

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
            if not message.text:
                continue
            if turns and turns[-1].role == message.role.value:
                turns[-1] = Message(message.role.value, turns[-1].content + "\n\n" + message.text)
            else:
                turns.append(Message(message.role.value, message.text))
        return turns
