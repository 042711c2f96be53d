"""A trace played into snapshots, to be looked at like a running engine: one position after another, forwards and backwards.

Owns the snapshots and the step records of the recording, in bounded memory: when the snapshots become too many or too large, every
other one is dropped and positions lie further apart; records stay whole. Never runs a model, a thread or a clock; whoever looks moves
the position. Playing a long trace takes seconds, so it is done off the window's thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import replace

from engine.snapshot import SnapshotBuilder
from engine.trace.replay import Divergence, Replay
from engine.trace.trace import Trace, TraceError
from engine.types import EngineState, ModelView, Snapshot, StepRecord
from engine.watched import Listeners

MOST_SNAPSHOTS = 4096
MOST_OWNER_BYTES = 64 << 20  # of the block maps, which are all that a snapshot has of any size
MOST_RECORDS = 2048  # given out at a time, as an engine does


class Playback:
    """The snapshots of a trace, and a place among them.

    Raises TraceError when the trace cannot be played or has no step in it, CancelledError when `cancelled` says so.

    Attributes:
        snapshots: after each step that is kept, in order, as the engine published them (times in seconds on the recording's clock).
        records: of every step, in order.
        stride: a snapshot is kept every so many steps.
        position: the index of the snapshot on show.
    """

    def __init__(
        self,
        trace: Trace,
        *,
        most: int = MOST_SNAPSHOTS,
        most_owner_bytes: int = MOST_OWNER_BYTES,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self.trace = trace
        self.stride = 1
        self.position = 0
        self._most = max(2, most)
        self._most_owner_bytes = most_owner_bytes
        self._listeners = Listeners()
        self.snapshots, self.records = self._play(trace, cancelled)
        self._steps = [record.step for record in self.records]
        self._times = [snapshot.time for snapshot in self.snapshots]

    def __len__(self) -> int:
        return len(self.snapshots)

    # ----------------------------------------------------------------------------------- reading, as one reads an engine

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot on show."""
        return self.snapshots[self.position]

    def history(self, since_step: int = 0) -> tuple[StepRecord, ...]:
        """Records after `since_step` up to the snapshot on show, oldest first (the last 2,048 at most)."""
        stop = bisect_right(self._steps, self.snapshot.step)
        start = bisect_right(self._steps, since_step)
        return self.records[max(start, stop - MOST_RECORDS) : stop]

    def add_listener(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called after each move, by whoever moves. Returns the call that removes it."""
        return self._listeners.add(listener)

    # ------------------------------------------------------------------------------------------------------------ moving

    def move(self, position: int) -> None:
        """Show another snapshot; beyond the ends, the last one on that side."""
        position = min(max(0, position), len(self.snapshots) - 1)
        if position != self.position:
            self.position = position
            self._listeners()

    def elapsed(self, position: int | None = None) -> float:
        """Seconds of the recording from its first snapshot to the one at `position` (the one on show)."""
        return self._times[self.position if position is None else position] - self._times[0]

    def at(self, elapsed: float) -> int:
        """The position on show `elapsed` seconds after the first snapshot."""
        return max(0, bisect_right(self._times, self._times[0] + elapsed) - 1)

    def before(self, seconds: float) -> tuple[Snapshot, ...]:
        """The snapshots of the last `seconds` up to the one on show, oldest first."""
        start = self.at(self.elapsed() - seconds)
        return self.snapshots[start : self.position + 1]

    # ----------------------------------------------------------------------------------------------------------- playing

    def _play(self, trace: Trace, cancelled: Callable[[], bool]) -> tuple[tuple[Snapshot, ...], tuple[StepRecord, ...]]:
        try:
            player = Replay(trace)
            snapshots = self._run(player, ModelView(name=trace.model, context=trace.context, progress=1.0), cancelled)
        except (Divergence, ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
            raise TraceError(
                "trace_diverges",
                "The recording cannot be played: it is damaged, or another version of Omnibus made it.",
                f"What went wrong: {error}",
            ) from error
        if not snapshots:
            raise TraceError("trace_empty", "There is no step in the recording.", "Record while chats are being answered.")
        return tuple(snapshots), tuple(player.records)

    def _run(self, player: Replay, model: ModelView, cancelled: Callable[[], bool]) -> list[Snapshot]:
        builder = SnapshotBuilder()
        snapshots: list[Snapshot] = []
        last: Snapshot | None = None
        steps = owner_bytes = 0
        while player.advance():
            if cancelled():
                raise CancelledError
            if len(player.records) == steps:
                continue  # a command, or a step in which nothing could ride
            steps = len(player.records)
            if (steps - 1) % self.stride:
                continue
            last = _sharing(builder.build(player.core, EngineState.READY, model, player.now), last)
            if not snapshots or last.kv.owners is not snapshots[-1].kv.owners:
                owner_bytes += len(last.kv.owners)
            snapshots.append(last)
            if len(snapshots) > self._most or (owner_bytes > self._most_owner_bytes and len(snapshots) > 2):
                del snapshots[1::2]
                self.stride *= 2
                owner_bytes = _owner_bytes(snapshots)
        return snapshots


def _sharing(snapshot: Snapshot, last: Snapshot | None) -> Snapshot:
    """The same snapshot; its block map is the last one's object where it says the same."""
    if last is None or snapshot.kv.owners != last.kv.owners:
        return snapshot
    return replace(snapshot, kv=replace(snapshot.kv, owners=last.kv.owners))


def _owner_bytes(snapshots: list[Snapshot]) -> int:
    return sum(len(owners) for owners in {id(snapshot.kv.owners): snapshot.kv.owners for snapshot in snapshots}.values())
