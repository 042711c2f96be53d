"""Factories of small parts for the example tests."""

from __future__ import annotations

import itertools
from typing import Any

from engine.scheduling.queue import Fairness, WaitingQueue
from engine.scheduling.request import RequestState, TimeLedger
from engine.sim import Sim
from engine.types import DecisionKind, EngineConfig, Priority, SamplingParams, StepRecord

_arrivals = itertools.count()


def make_request(
    request_id: str, chat: str = "a", tokens: int = 4, priority: Priority = Priority.FOREGROUND, now: float = 0.0, **params: Any
) -> RequestState:
    """A request of its own content; later calls arrive later."""
    arrival = next(_arrivals)
    return RequestState(
        id=request_id,
        chat_id=chat,
        title=request_id,
        params=SamplingParams(**params),
        priority=priority,
        arrival=arrival,
        tokens=[1000 + arrival] * tokens,
        seed=arrival,
        limit=1000,
        ledger=TimeLedger(now),
    )


def make_queue(aging_s: float = 1e9) -> WaitingQueue:
    return WaitingQueue(Fairness(), aging_s)


def make_sim(blocks: int = 100, block_size: int = 4, **rules: Any) -> Sim:
    """A bus with room, no adaptation and no aging, unless asked for."""
    values: dict[str, Any] = {"seats": 3, "token_budget": 64, "chunk": 16, "adapt_chunk": False, "aging_s": 1e9, **rules}
    return Sim(EngineConfig(**values), blocks=blocks, block_size=block_size)


class Stop:
    """Submits to a sim with few words: every request has content of its own, unless tokens are given."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self._count = itertools.count()

    def __call__(
        self,
        request_id: str,
        prompt: int | list[int] = 4,
        answer: int | None = 4,
        chat: str | None = None,
        priority: Priority = Priority.FOREGROUND,
        **params: Any,
    ) -> RequestState:
        """`prompt`: how many tokens, or which. Answers have exactly `answer` tokens, unless `params` say otherwise."""
        number = next(self._count)
        tokens = [100 + number] * prompt if isinstance(prompt, int) else prompt
        params = {"ignore_eos": True, **params}
        return self.sim.core.submit(
            request_id,
            tokens,
            SamplingParams(max_tokens=answer, **params),
            chat_id=chat or request_id,
            title=request_id,
            priority=priority,
            seed=number,
        )


def admitted(records: list[StepRecord]) -> dict[str, int]:
    """The step at which each request boarded first."""
    steps: dict[str, int] = {}
    for record in records:
        for decision in record.decisions:
            if decision.kind is DecisionKind.ADMIT:
                steps.setdefault(decision.request_id, record.step)
    return steps


def run_all(sim: Sim, most: int = 1000) -> list[StepRecord]:
    """Step to the end; the records."""
    records = []
    while sim.core.busy:
        record = sim.core.step()
        assert record is not None and len(records) < most
        records.append(record)
    return records
