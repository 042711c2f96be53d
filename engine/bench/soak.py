"""`omnibus bench soak`: a long run of random arrivals, cancels and faults. Does anything stay behind?

With `--minutes` on the real engine, see soak_real.py. With `--sim` the core runs over the simulator, whose cache is checked at every read.
Counted are blocks that are still held when everyone has left, requests that did not end exactly once, and the growth of this process's
memory, fitted over the run.
"""

from __future__ import annotations

import argparse
import gc
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.bench.output import NotWritable, add_json_option, check_writable, human_stream, write_document
from engine.blame import StepFailed
from engine.scheduling.plan import CacheRules, Row
from engine.sim import Sim
from engine.types import EngineConfig, Event, FinishedEvent, Policy, Priority, RequestRefused, SamplingParams, TokensEvent

BLOCKS, BLOCK, VOCAB = 96, 8, 97
SEATS = 6
AUDIT_EVERY = 500  # steps
SAMPLE_EVERY = 500
SETTLED = 0.25  # of the run: caches and rings fill up before memory can be flat
CHATS = 40


@dataclass(slots=True)
class Tally:
    """What came out, counted from the events alone."""

    requests: int = 0
    tokens: int = 0
    refused: int = 0
    rebuilds: int = 0
    live: dict[str, int] = field(default_factory=dict)  # tokens so far
    reasons: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)  # ended twice, or spoke after the end

    def note(self, event: Event) -> None:
        if event.request_id not in self.live:
            self.broken.append(event.request_id)
        elif isinstance(event, FinishedEvent):
            del self.live[event.request_id]
            self.reasons[event.reason] += 1
        elif isinstance(event, TokensEvent):
            self.live[event.request_id] += event.tokens
            self.tokens += event.tokens


class Soak:
    """A sim, and the chance that treats it badly."""

    def __init__(self, seed: int, rules: CacheRules | None = None) -> None:
        self._rnd = random.Random(seed)
        self.tally = Tally()
        tier = 0 if rules is not None and rules.slots else 40 * BLOCK  # where there are window slots, there is no second tier
        config = EngineConfig(seats=SEATS, token_budget=64, chunk=24, aging_s=5.0, max_waiting=24, tier_tokens=tier)
        eos = frozenset({0})
        self.sim = Sim(config, blocks=BLOCKS, block_size=BLOCK, vocab=VOCAB, eos_ids=eos, fault=self._fault, rules=rules)
        self.sim.core.emit = self.tally.note  # in place of the sim's own book, which keeps every event
        self._histories: list[list[int]] = [self._system(chat) for chat in range(CHATS)]
        self._sick = ""
        self._down = False

    def _system(self, chat: int) -> list[int]:
        """A beginning that several chats share."""
        return [chat % 5 + 1] * 24

    def _fault(self, rows: Sequence[Row]) -> None:
        if self._down or any(row.request.id == self._sick for row in rows):
            raise RuntimeError("made-up fault")

    def turn(self) -> None:
        """Whatever may happen between two steps, then a step."""
        rnd, core = self._rnd, self.sim.core
        chance = rnd.random()
        if chance < 0.10:
            self._ask(rnd.randrange(CHATS))
        elif chance < 0.12:
            chat = rnd.randrange(CHATS)
            for _ in range(rnd.randint(2, 3)):  # a fork: the same question again, other seeds
                self._ask(chat)
        elif chance < 0.13 and self.tally.live:
            core.cancel(rnd.choice(list(self.tally.live)))
        elif chance < 0.135 and self.tally.live:
            core.set_priority(rnd.choice(list(self.tally.live)), Priority(rnd.randrange(4)))
        elif chance < 0.137:
            core.configure(seats=rnd.randint(2, SEATS), policy=rnd.choice([Policy.IN_FLIGHT, Policy.IN_FLIGHT, Policy.STATIC]))
        elif chance < 0.138:
            core.resize(rnd.randint(BLOCKS // 2, BLOCKS))
        elif chance < 0.1385:
            core.clear_cache()
        elif chance < 0.139:
            self.sim.clock.advance(rnd.choice((1.0, 60.0, 3600.0)))
        self._step()

    def _ask(self, chat: int) -> None:
        """The chat goes on: what it has is the beginning of the next prompt."""
        rnd, history = self._rnd, self._histories[chat]
        history += [rnd.randrange(1, VOCAB) for _ in range(rnd.randint(1, 30))]
        if len(history) > 250:
            history[:] = self._system(chat)
        name = f"r{self.tally.requests}"
        params = SamplingParams(max_tokens=rnd.randint(1, 60), ignore_eos=rnd.random() < 0.3, min_tokens=0)
        self.tally.live[name] = 0
        try:
            self.sim.core.submit(
                name,
                history,
                params,
                chat_id=f"c{chat}",
                title=name,
                priority=Priority(rnd.choice((0, 0, 1, 1, 2, 3))),
                seed=rnd.randrange(9),
            )
        except RequestRefused:
            del self.tally.live[name]
            self.tally.refused += 1
        else:
            self.tally.requests += 1

    def _step(self) -> None:
        rnd, core = self._rnd, self.sim.core
        chance, seated = rnd.random(), list(core.scheduler.seated.values())
        self._sick = rnd.choice(seated).id if seated and chance < 0.003 else ""
        self._down = 0.003 <= chance < 0.004
        try:
            core.step()
        except StepFailed:
            core.rebuild()
            self.tally.rebuilds += 1
        self._sick, self._down = "", False

    def drain(self) -> None:
        while self.sim.core.busy:
            self.sim.core.step()


def soak(steps: int, seed: int = 1, rules: CacheRules | None = None) -> dict[str, Any]:
    """Run so many steps, let everyone finish, and count what stayed: blocks, and window slots where the rules have those."""
    import psutil

    process, run = psutil.Process(), Soak(seed, rules)
    samples: list[tuple[float, float]] = []
    core = run.sim.core
    while core.totals.steps < steps:
        run.turn()
        step = core.totals.steps
        if step % AUDIT_EVERY == 0:
            core.scheduler.audit()
        if step % SAMPLE_EVERY == 0 and (not samples or samples[-1][0] != step):
            samples.append((step, process.memory_info().rss / 1024))
    taken = core.totals.steps
    run.drain()
    core.scheduler.audit()
    tally = run.tally
    settled = [sample for sample in samples if sample[0] >= SETTLED * steps]
    return {
        "steps": taken,
        "leaked_blocks": core.pool.referenced + (core.pool.slots.claimed if core.pool.slots is not None else 0),
        "rss_slope_kib_per_10k_steps": round(1e4 * slope(settled), 2),
        "requests": tally.requests,
        "ended_once": not tally.broken and not tally.live and tally.requests == sum(tally.reasons.values()),
        "reasons": {str(reason): count for reason, count in sorted(tally.reasons.items())},
        "tokens": tally.tokens,
        "refused": tally.refused,
        "preemptions": core.totals.preemptions,
        "evictions": core.totals.evictions,
        "rebuilds": tally.rebuilds,
    }


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """Least-squares slope of the second over the first; 0 for fewer than two samples."""
    if len(samples) < 2:
        return 0.0
    middle = sum(x for x, _ in samples) / len(samples)
    level = sum(y for _, y in samples) / len(samples)
    spread = sum((x - middle) ** 2 for x, _ in samples)
    return sum((x - middle) * (y - level) for x, y in samples) / spread if spread else 0.0


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("soak", help="a long run of arrivals, cancels and faults: does anything stay behind?")
    parser.add_argument("--minutes", type=float, help="on the real engine: chats, HTTP clients, changes of model and faults together")
    parser.add_argument("--sim", action="store_true", help="over the simulator, without a model")
    parser.add_argument("--steps", type=int, default=200_000, help="of the simulator")
    parser.add_argument("--seed", type=int, default=1)
    add_json_option(parser)


def run(args: argparse.Namespace, keeper: Any = None) -> int:
    """0 nothing stayed, 1 something did or the document could not be written, 2 asked for in a wrong way.

    `keeper` keeps the chats of the soak on the real engine on disk (see `keeping.Keeper`).
    """
    real = args.minutes is not None
    if args.sim == real or args.steps < 1 or (real and not 0 < args.minutes <= 10_000):
        print("Say --minutes with a number above 0, or --sim with a number of steps of at least 1.", file=sys.stderr)
        return 2
    out = human_stream(args.json)
    logging.disable(logging.CRITICAL)  # made-up faults would be logged with their tracebacks
    gc.collect()
    started = time.perf_counter()
    try:
        check_writable(args.json)
        figures = _soak_really(args, out, keeper) if real else soak(args.steps, args.seed)
        write_document(args.json, figures)
    except NotWritable as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        logging.disable(logging.NOTSET)
    for name, value in figures.items():
        print(f"{name:<30}{value}", file=out)
    print(f"{'seconds':<30}{time.perf_counter() - started:.0f}", file=out)
    if real:
        from engine.bench.soak_real import clean

        return 0 if clean(figures) else 1
    return 0 if figures["ended_once"] and figures["leaked_blocks"] == 0 else 1


def _soak_really(args: argparse.Namespace, out: Any, keeper: Any) -> dict[str, Any]:
    from engine.bench import soak_real

    return soak_real.soak(args.minutes, args.seed, lambda words: print(words, file=out, flush=True), keeper)
