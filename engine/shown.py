"""One engine out of several, for whoever looks at one at a time: the dashboard.

Follows the engine that is in use, until somebody picks one of those that are loaded; back to following when that one is let go. Everything
that is not said here is the shown engine's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.types import Snapshot, StepRecord

if TYPE_CHECKING:
    from engine.engines import Engines


class Shown:
    """Attributes: picked (the source of the model that was picked; "" follows)."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self.picked = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def _engine(self) -> Any:
        return self._engines.having(self.picked) or self._engines.present

    @property
    def snapshot(self) -> Snapshot:
        snapshot: Snapshot = self._engine.snapshot
        return snapshot

    @property
    def choices(self) -> tuple[Snapshot, ...]:
        """What may be picked: a snapshot of each engine that has a model, in the order in which they came. None, and nobody is asked,
        while there is a single engine.
        """
        return self._engines.loaded if len(self._engines.here.engines) > 1 else ()

    def history(self, since_step: int = 0) -> tuple[StepRecord, ...]:
        records: tuple[StepRecord, ...] = self._engine.history(since_step)
        return records

    def add_listener(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Hears of every engine: which one is shown may change."""
        return self._engines.add_listener(listener)

    def pick(self, source: str) -> None:
        """Show the engine of this model."""
        self.picked = source
