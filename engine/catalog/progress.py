"""Where a download is, for whoever shows it. Apart from the download itself, whose packages a window can open without."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from engine.types import ErrorInfo


class State(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    CHECKING = "checking"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Progress:
    """`note` is a person's word for what it waits for; `path` is where the model lies once it is done."""

    state: State
    done: int
    total: int
    note: str = ""
    path: Path | None = None
    error: ErrorInfo | None = None
