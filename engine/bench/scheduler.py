"""`omnibus bench scheduler`: what deciding costs. Planning, committing and recording a step in Python, with a model that takes no time.

All seats decode or read, and the queue is kept full: whoever ends is followed by a newcomer. Step times are CPU time of the thread, of
the quietest of several stretches: what other programs do to the caches and clocks of a shared machine can only add. The times of all
stretches and the clock's stand beside them. The snapshot, which the engine publishes after a step, is measured apart, and so is what a
reader pays, on a thread of its own, who wants the places of all that wait.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from engine.bench.output import NotWritable, add_json_option, check_writable, human_stream, write_document
from engine.core import Core
from engine.kv.copies import Move
from engine.kv.pool import BlockPool
from engine.measures import percentile
from engine.scheduling.plan import CacheRules, Row, Sampled
from engine.scheduling.request import RequestState
from engine.snapshot import SnapshotBuilder
from engine.types import EngineConfig, EngineState, ModelView, Priority, SamplingParams

BLOCK = 16
LONGEST_PROMPT, LONGEST_ANSWER = 400, 400
CHATS = 700
WARM_UP = 50
STRETCHES = 5
SNAPSHOTS = 100
LIMIT_MS = 2.0  # what a step may cost


class _Parrot:
    """A model that says the same at once."""

    context = 1 << 20
    rules = CacheRules()
    drafts = False

    def forward(self, rows: Sequence[Row]) -> list[Sampled | None]:
        said = Sampled(1)
        return [said if row.samples else None for row in rows]

    def forget(self, request: RequestState) -> None: ...

    def reproduce(self, wanted: bool) -> bool:
        return True

    def resize(self, num_blocks: int) -> None: ...

    def copy(self, copies: Sequence[Move]) -> None: ...


class _FullHouse:
    """A core whose queue never empties."""

    def __init__(self, seats: int, waiting: int, seed: int) -> None:
        self._rnd = random.Random(seed)
        self._waiting = waiting
        self._names = itertools.count()
        blocks = seats * (LONGEST_PROMPT + LONGEST_ANSWER) // BLOCK + seats
        config = EngineConfig(seats=seats, token_budget=max(2048, 2 * seats), chunk=512, max_waiting=waiting + seats)
        self.core = Core(_Parrot(), BlockPool(blocks, BLOCK), config, clock=time.monotonic, emit=lambda event: None)
        for _ in range(seats):
            self._submit()

    def refill(self) -> None:
        while len(self.core.scheduler.queue) < self._waiting:
            self._submit()

    def _submit(self) -> None:
        rnd, name = self._rnd, f"r{next(self._names)}"
        self.core.submit(
            name,
            [rnd.randrange(32000) for _ in range(rnd.randint(20, LONGEST_PROMPT))],
            SamplingParams(max_tokens=rnd.randint(50, LONGEST_ANSWER)),
            chat_id=f"c{rnd.randrange(CHATS)}",
            title=name,
            priority=Priority(rnd.randrange(4)),
            seed=1,
        )


def cpu_clock() -> Callable[[], float]:
    """This thread's CPU time in seconds, where the system tells it finely enough; else the clock's."""
    fine = time.get_clock_info("thread_time").resolution < 1e-5
    return time.thread_time if fine else time.perf_counter


def measure(seats: int, waiting: int, steps: int, seed: int = 1) -> dict[str, Any]:
    """Times in milliseconds: of the quietest of several stretches of steps, and (all_…) of all of them together."""
    gc.collect()
    gc.freeze()  # as the engine does once its model is loaded
    try:
        house, cpu = _FullHouse(seats, waiting, seed), cpu_clock()
        costs, clock_costs = _time_steps(house, cpu, WARM_UP + steps)
        snapshot_costs, line_costs = _time_snapshots(house, cpu, SNAPSHOTS)
    finally:
        gc.unfreeze()
    length = max(1, steps // STRETCHES)
    stretches = [sorted(costs[start : start + length]) for start in range(0, length * STRETCHES, length) if start < steps]
    quietest = min(stretches, key=lambda stretch: percentile(stretch, 0.50))
    figures: dict[str, Any] = {"seats": seats, "waiting": waiting, "steps": steps}
    parts = {"step": quietest, "all_step": sorted(costs), "clock": sorted(clock_costs), "snapshot": snapshot_costs, "line": line_costs}
    for name, ordered in parts.items():
        figures[f"{name}_ms_p50"] = round(percentile(ordered, 0.50), 4)
        figures[f"{name}_ms_p99"] = round(percentile(ordered, 0.99), 4)
    return figures


def _time_steps(house: _FullHouse, cpu: Callable[[], float], count: int) -> tuple[list[float], list[float]]:
    """CPU and clock time of each step after the warm-up, in milliseconds."""
    costs, clock_costs = [], []
    for number in range(count):
        house.refill()
        wall, start = time.perf_counter(), cpu()
        house.core.step()
        spent, took = cpu() - start, time.perf_counter() - wall
        if number >= WARM_UP:
            costs.append(1e3 * spent)
            clock_costs.append(1e3 * took)
    return costs, clock_costs


def _time_snapshots(house: _FullHouse, cpu: Callable[[], float], count: int) -> tuple[list[float], list[float]]:
    """CPU time of building a snapshot after a step, and of finding the last of all that wait, in milliseconds, sorted."""
    builder, costs, line_costs = SnapshotBuilder(), [], []
    for _ in range(count):
        house.core.step()
        house.refill()
        start = cpu()
        snapshot = builder.build(house.core, EngineState.READY, ModelView(), time.monotonic())
        built = cpu()
        last = snapshot.line[-1]
        line_costs.append(1e3 * (cpu() - built))
        costs.append(1e3 * (built - start))
        assert last.place == snapshot.waiting
    return sorted(costs), sorted(line_costs)


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("scheduler", help="what planning and committing a step costs in Python")
    parser.add_argument("--seats", type=int, default=256)
    parser.add_argument("--waiting", type=int, default=4096, help="requests that wait all the time")
    parser.add_argument("--steps", type=int, default=1000)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """0 done, 1 the document could not be written, 2 asked for in a wrong way."""
    if min(args.seats, args.waiting, args.steps) < 1:
        print("seats, waiting and steps must be at least 1.", file=sys.stderr)
        return 2
    try:
        check_writable(args.json)
        figures = measure(args.seats, args.waiting, args.steps)
        write_document(args.json, figures)
    except NotWritable as error:
        print(error, file=sys.stderr)
        return 1
    out = human_stream(args.json)
    print(f"{figures['seats']} seats, {figures['waiting']} waiting, {figures['steps']} steps", file=out)
    print(f"{'milliseconds':<26}{'half':>8}{'99 %':>8}", file=out)
    lines = {"step": "plan, commit, record", "all_step": "  in all stretches", "clock": "  by the clock", "snapshot": "snapshot"}
    lines["line"] = "  all places, by a reader"
    for name, words in lines.items():
        print(f"{words:<26}{figures[f'{name}_ms_p50']:8.2f}{figures[f'{name}_ms_p99']:8.2f}", file=out)
    verdict = "within" if figures["step_ms_p50"] <= LIMIT_MS else "more than"
    print(f"Half of all steps cost {verdict} {LIMIT_MS:.0f} ms of Python.", file=out)
    return 0
