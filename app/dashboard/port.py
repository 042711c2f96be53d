"""What the dashboard needs of an engine. `engine.Engine` has it; so may a remote engine, a replay or a scripted one.

Snapshots come out, commands go in; what was asked is never shown, only what the next snapshot says was done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine import Policy, Priority, Snapshot, StepRecord


class EnginePort(Protocol):
    """The engine's public calls that the dashboard uses. All return at once."""

    @property
    def snapshot(self) -> Snapshot: ...

    def history(self, since_step: int = 0) -> tuple[StepRecord, ...]: ...

    def configure(
        self, *, seats: int | None = None, token_budget: int | None = None, policy: Policy | None = None, chunk: int | None = None
    ) -> None: ...

    def set_priority(self, request_id: str, priority: Priority) -> None: ...

    def set_chat_priority(self, chat_id: str, priority: Priority) -> None: ...

    def cancel(self, request_id: str) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def clear_cache(self) -> None: ...

    def restart(self) -> None: ...

    def add_listener(self, listener: Callable[..., None]) -> Callable[[], None]: ...
