"""What a chat is doing, read out of one engine snapshot: for its tab, its line in the sidebar and under its answer. Knows no widget."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from PySide6.QtCore import QCoreApplication

from app.chats.model import AnswerState, Chat
from app.numbers import fill, number, said
from app.transcript.wording import ordinal, seconds, tokens
from app.translations import begun, in_words
from engine import EngineState, Phase, QueueView, SeatView, Snapshot, WaitReason

translate = QCoreApplication.translate


class Stage(StrEnum):
    IDLE = "idle"
    QUEUED = "queued"
    PREFILL = "prefill"
    DECODE = "decode"
    UNREAD = "unread"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class ChatState:
    """A chat at one moment.

    Attributes:
        seat: 0-based, while it rides. place: in the queue, from 1; None while it is not known.
        share: of the prompt that is computed, 0..1. tok_s, tokens: of the answer.
        words: the same as a sentence.
    """

    stage: Stage = Stage.IDLE
    seat: int | None = None
    place: int | None = None
    share: float = 0.0
    tok_s: float = 0.0
    tokens: int = 0
    words: str = ""

    @property
    def busy(self) -> bool:
        return self.stage in (Stage.QUEUED, Stage.PREFILL, Stage.DECODE)


IDLE = ChatState()


def stage_words(stage: Stage) -> str:
    """A stage in a word, for a screen reader; "" for none."""
    return {
        Stage.IDLE: "",
        Stage.QUEUED: translate("States", "queued"),
        Stage.PREFILL: translate("States", "prefill"),
        Stage.DECODE: translate("States", "decode"),
        Stage.UNREAD: translate("States", "new answer"),
        Stage.ERROR: translate("States", "failed"),
    }[stage]


def riding(snapshot: Snapshot, ours: Collection[str] = ()) -> dict[str, ChatState]:
    """The state of every chat that rides or stands among the first in line, and of those of `ours` that stand further back; one that
    rides counts more than one that waits. Those on other loaded models are among them."""
    states: dict[str, ChatState] = {}
    for other in snapshot.others:
        states |= riding(other, ours)
    if snapshot.whole_queue is not None and (far := set(ours) - {view.chat_id for view in (*snapshot.queue, *snapshot.seats) if view}):
        states |= {view.chat_id: _waiting(view, snapshot) for view in reversed(snapshot.waiting_of(far))}
    states |= {view.chat_id: _waiting(view, snapshot) for view in reversed(snapshot.queue)}
    states |= {view.chat_id: _seated(view) for view in reversed(snapshot.seats) if view is not None}
    return states


def state_of(chat: Chat, active: bool, known: Mapping[str, ChatState]) -> ChatState:
    """The state of one of our chats. `active`: an answer of it is under way, whether or not the engine has met it yet."""
    if active:
        return known.get(chat.id) or ChatState(Stage.QUEUED, words=translate("States", "Queued"))
    if chat.unread:
        failed = chat.last is not None and chat.last.state is AnswerState.FAILED
        if failed:
            return ChatState(Stage.ERROR, words=translate("States", "Failed"))
        return ChatState(Stage.UNREAD, words=translate("States", "New answer"))
    return IDLE


def _waiting(view: QueueView, snapshot: Snapshot) -> ChatState:
    if view.reason is WaitReason.LOADING or snapshot.state in (EngineState.STARTING, EngineState.LOADING):
        return ChatState(
            Stage.QUEUED, place=view.place, words=translate("States", "Waits for the model: {0}").format(loading_words(snapshot))
        )
    words = translate("States", "Queued, {0} in line").format(ordinal(view.place))
    if view.detail:
        words += f": {said(view.detail)}"
    if view.expected_start_s is not None:
        words += "  ·  " + translate("States", "starts in about {0}").format(seconds(max(0.1, view.expected_start_s)))
    return ChatState(Stage.QUEUED, place=view.place, words=words)


def _seated(view: SeatView) -> ChatState:
    if view.phase is Phase.DECODE:
        speed = fill(translate("Answer", "{0:.1f} tok/s"), view.tok_s) + "  ·  " if view.tok_s > 0 else ""
        seat = translate("States", "Seat {0}").format(view.seat + 1)
        return ChatState(
            Stage.DECODE,
            seat=view.seat,
            share=1.0,
            tok_s=view.tok_s,
            tokens=view.output_tokens,
            words=f"{seat}  ·  {speed}{tokens(view.output_tokens)}",
        )
    share = min(1.0, view.computed_tokens / max(1, view.known_tokens))
    words = fill(translate("States", "Seat {0}  ·  reading {1:,} tokens, {2:.0%}"), view.seat + 1, view.known_tokens, share)
    return ChatState(Stage.PREFILL, seat=view.seat, share=share, tokens=view.output_tokens, words=words)


def loading_words(snapshot: Snapshot) -> str:
    """How far the model is, e.g. "reading weights, 45 %"."""
    stage = in_words(snapshot.model.stage or "starting")
    return f"{stage}, {number(snapshot.model.progress, '.0%')}" if 0 < snapshot.model.progress < 1 else stage


def model_words(snapshot: Snapshot) -> str:
    """The model's line in the sidebar."""
    match snapshot.state:
        case EngineState.STARTING | EngineState.LOADING:
            return begun(loading_words(snapshot))
        case EngineState.EMPTY:
            return translate("States", "Not loaded; the next message loads it")
        case EngineState.FAILED:
            return translate("States", "The engine has stopped")
        case EngineState.PAUSED:
            return translate("States", "Paused")
        case EngineState.CLOSED:
            return translate("States", "Closed")
    parts = (snapshot.model.device, snapshot.model.dtype.removeprefix("torch."))
    return "  ·  ".join(part for part in parts if part) or translate("States", "Ready")
