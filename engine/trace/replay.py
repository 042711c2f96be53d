"""Plays a trace back through the very same core, scheduler and pool, bit for bit, with the recorded tokens in place of a model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any

from engine.blame import StepFailed
from engine.core import Core
from engine.kv.copies import Move
from engine.kv.pool import BlockPool
from engine.scheduling.plan import CacheRules, Row, Sampled
from engine.scheduling.request import RequestState
from engine.trace.trace import Trace, params_from_json
from engine.types import EngineError, ErrorInfo, Event, Policy, Priority, SamplingParams, StepRecord


class Divergence(RuntimeError):
    """The replay did something else than the recording."""


class _Clock:
    def __init__(self) -> None:
        self.readings: deque[float] = deque()
        self.last = 0.0

    def __call__(self) -> float:
        if not self.readings:
            raise Divergence("the replay asked for the time more often than the recording did")
        self.last = self.readings.popleft()
        return self.last


class _Stream:
    """Stands in for the text side: knows from the recording when a stop string was met."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping
        self.stopped = False

    def push(self, token_id: int) -> str:
        self.stopped = self._stopping()
        return ""

    def flush(self) -> str:
        return ""


class _Runner:
    """Answers with the recorded outcomes of the step that is being replayed."""

    def __init__(self, context: int, rules: CacheRules) -> None:
        self.context = context
        self.rules = rules
        self.drafts = False  # what was in force is in the recorded configuration
        self.outcomes: dict[str, Any] = {}
        self.no_room = False

    def forward(self, rows: Sequence[Row]) -> list[Sampled | None]:
        results: list[Sampled | None] = []
        for row in rows:
            if row.request.id not in self.outcomes:
                raise Divergence(f"the replay planned {row.request.id}, the recording did not")
            outcome = self.outcomes[row.request.id]
            if isinstance(outcome, dict) and "raised" in outcome:
                raise EngineError(*outcome["raised"])
            if isinstance(outcome, dict):
                results.append(Sampled(-1, ErrorInfo(*outcome["error"])))
            elif (outcome is not None) != row.samples:
                raise Divergence(f"the replay and the recording disagree whether {row.request.id} gave a token")
            else:
                tokens = outcome if isinstance(outcome, list) else [outcome]
                results.append(None if outcome is None else Sampled(tokens[-1], accepted=tuple(tokens[:-1])))
        return results

    def forget(self, request: RequestState) -> None:
        """Nothing is kept."""

    def reproduce(self, wanted: bool) -> bool:
        """What a recording holds is what came of that."""
        return True

    def resize(self, num_blocks: int) -> None:
        """Nothing to resize, but a pool that could not be is not."""
        if self.no_room:
            raise MemoryError

    def copy(self, copies: Sequence[Move]) -> None:
        """Nothing to copy."""


class Replay:
    """A trace being played, one entry at a time.

    Attributes:
        core: its state after the entries played so far.
        records: the step records so far.
    """

    def __init__(self, trace: Trace, emit: Callable[[Event], None] = lambda event: None) -> None:
        self._entries = iter(trace.entries)
        self._clock = _Clock()
        self._runner = _Runner(trace.context, CacheRules(**trace.rules))
        self._stopping: dict[str, int] = {}  # tokens that are still to come before a stop string is complete
        self.records: list[StepRecord] = []
        self.core = Core(
            self._runner,
            BlockPool(trace.blocks, trace.block_size),
            trace.engine_config(),
            clock=self._clock,
            emit=emit,
            eos_ids=frozenset(trace.eos_ids),
        )
        self.core.scheduler.growth.typical = trace.typical_answer
        self.core.relief.blocks = trace.asked_blocks or trace.blocks
        self.core.make_request_stream = self._stream_of

    def _stream_of(self, request_id: str, params: SamplingParams) -> _Stream:
        return _Stream(lambda: self._last_token(request_id))

    def _last_token(self, request_id: str) -> bool:
        """Called with each token: whether the answer stops with it."""
        left = self._stopping.get(request_id, 0)
        self._stopping[request_id] = left - 1
        return left == 1

    @property
    def now(self) -> float:
        """The clock reading that was played last, seconds on the recording's clock."""
        return self._clock.last

    def advance(self) -> bool:
        """Play one entry; False at the end. Raises Divergence."""
        entry = next(self._entries, None)
        if entry is None:
            return False
        self._clock.readings.extend(entry["t"])
        getattr(self, f"_play_{entry['k']}")(entry)
        if self._clock.readings:
            raise Divergence(f"the recording asked for the time more often than the replay in {entry['k']}")
        return True

    def _play_submit(self, entry: dict[str, Any]) -> None:
        params = params_from_json(entry["params"])
        request = self.core.submit(
            entry["id"],
            entry["tokens"],
            params,
            chat_id=entry["chat"],
            title=entry["title"],
            priority=Priority(entry["priority"]),
            seed=entry["seed"],
            salt=bytes.fromhex(entry.get("salt", "")),
        )
        request.tokens += entry["said"]
        if entry.get("held"):
            request.lookup = None  # it followed a form, which shapes tokens and allows no draft, or came while requests rode alone

    def _play_cancel(self, entry: dict[str, Any]) -> None:
        self.core.cancel(entry["id"])

    def _play_fail(self, entry: dict[str, Any]) -> None:
        self.core.fail(entry["id"], ErrorInfo(entry["code"], entry["message"]))

    def _play_forget(self, entry: dict[str, Any]) -> None:
        self.core.forget(entry["id"])

    def _play_priority(self, entry: dict[str, Any]) -> None:
        self.core.set_priority(entry["id"], Priority(entry["priority"]))

    def _play_configure(self, entry: dict[str, Any]) -> None:
        values = {name: entry[name] for name in ("seats", "token_budget", "chunk") if name in entry}
        policy = Policy(entry["policy"]) if "policy" in entry else None
        self.core.configure(**values, policy=policy)

    def _play_resize(self, entry: dict[str, Any]) -> None:
        self.core.resize(entry["blocks"])

    def _play_clear(self, entry: dict[str, Any]) -> None:
        self.core.clear_cache()

    def _play_rebuild(self, entry: dict[str, Any]) -> None:
        self.core.rebuild()

    def _play_step(self, entry: dict[str, Any]) -> None:
        self._runner.outcomes = entry["out"]
        self._runner.no_room = entry.get("no_room", False)
        outs = entry["out"]
        self._stopping = {name: len(outs[name]) if isinstance(outs.get(name), list) else 1 for name in entry["stopped"]}
        try:
            record = self.core.step()
        except StepFailed:
            return
        if record is not None:
            self.records.append(record)
            if {row.request_id for row in record.rows} != set(entry["out"]):
                raise Divergence(f"step {record.step} of the replay served other requests than the recording")


def replay(
    trace: Trace, emit: Callable[[Event], None] = lambda event: None, cancelled: Callable[[], bool] = lambda: False
) -> list[StepRecord]:
    """The step records of the whole trace, played again. Raises Divergence where the replay would differ, CancelledError when asked."""
    player = Replay(trace, emit)
    while player.advance():
        if cancelled():
            raise CancelledError
    return player.records
