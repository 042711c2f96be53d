"""What one step did and decided, for the timeline, the log and the trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.types.words import Phase


class DecisionKind(StrEnum):
    SUBMIT = "submit"
    ADMIT = "admit"
    PREEMPT = "preempt"
    FINISH = "finish"
    CANCEL = "cancel"
    FAIL = "fail"
    CONFIG = "config"  # seats, budget, policy or pool changed
    EVICT = "evict"  # cached blocks gave way


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing a step decided, and why, in words that fit a log line."""

    step: int
    kind: DecisionKind
    request_id: str = ""
    chat_id: str = ""
    title: str = ""
    seat: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SeatStep:
    """What one seat did in one step."""

    seat: int
    request_id: str
    chat_id: str
    phase: Phase  # what it did in this step
    tokens: int  # positions computed


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step for the timeline and the trace. Seats that did nothing but are taken stand in `held`."""

    step: int
    time: float
    duration: float
    seats_total: int
    rows: tuple[SeatStep, ...]
    held: tuple[int, ...] = ()
    waiting: int = 0
    free_blocks: int = 0
    decisions: tuple[Decision, ...] = field(default=())
