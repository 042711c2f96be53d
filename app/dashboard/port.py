"""What the dashboard needs of an engine. `engine.Engine` has it; so may a remote or a scripted one. To be looked at, a playback does.

Snapshots come out, commands go in; what was asked is never shown, only what the next snapshot says was done.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from engine import Policy, Priority, Snapshot, StepRecord, Trace


class SnapshotSource(Protocol):
    """What the views are fed from: an engine, or the playback of a recording."""

    @property
    def snapshot(self) -> Snapshot: ...

    def history(self, since_step: int = 0) -> tuple[StepRecord, ...]: ...

    def add_listener(self, listener: Callable[..., None]) -> Callable[[], None]: ...


class EnginePort(SnapshotSource, Protocol):
    """The engine's public calls that the dashboard uses. All return at once."""

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

    def start_recording(self) -> Future[None]: ...

    def stop_recording(self) -> Future[Trace]: ...
