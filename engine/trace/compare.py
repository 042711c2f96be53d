"""The same arrivals under both policies, played in the simulator with the costs that this machine showed in the recording."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace

import numpy as np

from engine.measures import percentile
from engine.sim import CostModel, Sim
from engine.trace.replay import replay
from engine.trace.trace import Trace, params_from_json
from engine.types import EngineConfig, FinishedEvent, Phase, Policy, Priority, RequestRefused, StepRecord


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """What one policy made of the load. Times in seconds."""

    policy: Policy
    steps: int
    makespan_s: float
    tok_s: float
    ttft_p50_s: float
    ttft_p95_s: float
    idle_seat_steps: int
    history: tuple[StepRecord, ...]


@dataclass(frozen=True, slots=True)
class _Arrival:
    at: float
    id: str
    chat: str
    title: str
    priority: Priority
    tokens: list[int]
    answer: int


def fit_cost(records: list[StepRecord]) -> CostModel:
    """Least squares of step durations over the positions of decodes, guessed ones too, and of prefills; what cannot be told apart keeps
    its default."""
    if len(records) < 8:
        return CostModel()
    decodes = np.array([sum(row.tokens for row in record.rows if row.phase is Phase.DECODE) for record in records], float)
    prefill = np.array([sum(row.tokens for row in record.rows if row.phase is not Phase.DECODE) for record in records], float)
    durations = np.array([record.duration for record in records])
    system = np.stack([np.ones_like(decodes), decodes, prefill], axis=1)
    step, row, token = np.linalg.lstsq(system, durations, rcond=None)[0]
    smallest = 1e-6
    return CostModel(max(float(step), smallest), max(float(row), smallest), max(float(token), smallest))


def compare_policies(
    trace: Trace, config: EngineConfig | None = None, cancelled: Callable[[], bool] = lambda: False
) -> dict[Policy, PolicyResult]:
    """Replay the recorded arrivals under each policy. Answers have the lengths that they had; those cut short by a cancel keep theirs.

    Raises Divergence when the trace cannot be replayed at all, CancelledError when `cancelled` says so.
    """
    lengths: dict[str, int] = {}

    def note(event: object) -> None:
        if isinstance(event, FinishedEvent):
            lengths[event.request_id] = event.usage.completion_tokens

    records = replay(trace, note, cancelled)
    cost = fit_cost(records)
    arrivals = _arrivals(trace, records, lengths)
    base = config or trace.engine_config()
    return {policy: _run(trace, arrivals, replace(base, policy=policy), cost, cancelled) for policy in (Policy.STATIC, Policy.IN_FLIGHT)}


def _arrivals(trace: Trace, records: list[StepRecord], lengths: dict[str, int]) -> list[_Arrival]:
    tokens_out: dict[str, int] = dict(lengths)
    for entry in trace.entries:  # requests still open at the end of the recording: what they had said by then
        if entry["k"] == "step":
            for request_id, outcome in entry["out"].items():
                if request_id not in lengths and isinstance(outcome, (int, list)):
                    said = len(outcome) if isinstance(outcome, list) else 1  # with what was guessed and came true
                    tokens_out[request_id] = tokens_out.get(request_id, 0) + said
    submits = [entry for entry in trace.entries if entry["k"] == "submit"]
    start = min((entry["t"][0] for entry in submits if entry["t"]), default=0.0)
    return [
        _Arrival(
            at=max(0.0, entry["t"][0] - start),
            id=entry["id"],
            chat=entry["chat"],
            title=entry["title"],
            priority=Priority(entry["priority"]),
            tokens=entry["tokens"],
            answer=tokens_out[entry["id"]],
        )
        for entry in submits
        if tokens_out.get(entry["id"], 0) > 0
    ]


def _run(trace: Trace, arrivals: list[_Arrival], config: EngineConfig, cost: CostModel, cancelled: Callable[[], bool]) -> PolicyResult:
    config = replace(config, draft_tokens=0)  # made-up answers repeat nothing of what real ones do
    sim = Sim(config, blocks=trace.blocks, block_size=trace.block_size, context=trace.context, cost=cost)
    waiting = sorted(arrivals, key=lambda arrival: arrival.at)
    records: list[StepRecord] = []
    while waiting or sim.core.busy:
        if cancelled():
            raise CancelledError
        while waiting and (waiting[0].at <= sim.clock.now or not sim.core.busy):
            arrival = waiting.pop(0)
            sim.clock.now = max(sim.clock.now, arrival.at)
            params = params_from_json({"max_tokens": arrival.answer, "min_tokens": arrival.answer, "ignore_eos": True})
            try:
                sim.core.submit(
                    arrival.id,
                    arrival.tokens,
                    params,
                    chat_id=arrival.chat,
                    title=arrival.title,
                    priority=arrival.priority,
                    seed=0,
                )
            except RequestRefused:
                continue
        record = sim.core.step()
        if record is not None:
            records.append(record)
    first = [end.time.ttft for end in map(sim.end, sim.events) if end is not None and end.time.ttft is not None]
    ttft = sorted(first)
    makespan = records[-1].time + records[-1].duration - records[0].time if records else 0.0
    return PolicyResult(
        policy=config.policy,
        steps=sim.core.totals.steps,
        makespan_s=makespan,
        tok_s=sim.core.totals.output_tokens / makespan if makespan else 0.0,
        ttft_p50_s=percentile(ttft, 0.50),
        ttft_p95_s=percentile(ttft, 0.95),
        idle_seat_steps=sim.core.totals.idle_seat_steps,
        history=tuple(records),
    )
