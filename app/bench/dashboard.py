"""`omnibus bench dashboard`: what watching costs.

Three figures, by the cost rule of the dashboard (at most 2 % of a core with eight seats; a monitor that slows what it watches is a
defect): the share of a core that the window's thread uses while eight chats are answered by the real engine, the time to paint a map
of 65,536 blocks that have all changed, and the engine's speed with the dashboard open against closed, in many short turns, so that a
machine that warms up or is busy with something else weighs on both alike. A turn's speed is taken from step to step by the engine's own
clock: by the wall clock, a turn of sixteen steps would be known to one step in sixteen.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import statistics
import sys
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from app.bench.document import add_json_option, write_json
from app.bench.stage import LONG_ANSWER, PROMPT, SEATS, offscreen, real_engine
from engine import OWNER_CACHED, OWNER_FREE, OWNER_SEAT0, OWNER_SHARED, Engine, KvView, SamplingParams, Snapshot

if TYPE_CHECKING:
    from app.dashboard import DashboardPage

BLOCKS = 65_536
PAINTS = 200
SETTLE_S = 0.15  # a look at once when it opens, which is not the steady state
TURNS = ("closed", "open", "open", "closed")  # whatever grows steadily meanwhile weighs on both alike

Spin = Callable[[float], None]


class Watched(Protocol):
    @property
    def snapshot(self) -> Snapshot: ...


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("dashboard", help="what the dashboard costs the window's thread, and the engine's speed")
    parser.add_argument("--seconds", type=float, default=0.75, help="how long one turn with the dashboard open or closed lasts")
    parser.add_argument("--rounds", type=int, default=14, help="rounds of four turns")
    parser.add_argument("--model", default="starter")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Measure on the real engine. Raises EngineError when there is no model."""
    if not 0 < args.seconds < math.inf or args.rounds < 1:
        print("omnibus bench dashboard: --seconds and --rounds must be more than 0.", file=sys.stderr)
        return 2
    app = offscreen()
    from app.dashboard import DashboardPage
    from app.loop import let_go, make_loop
    from app.theme import Theme

    with real_engine(args.model) as engine:
        page = DashboardPage(engine, Theme.dark())
        page.resize(1200, 1300)
        with make_loop(app) as loop:
            fill(engine)

            def spin(seconds: float) -> None:
                loop.run_until_complete(asyncio.sleep(seconds))

            cost = watch(engine, page, spin, args.seconds, args.rounds)
            figures = {
                "cpu_share_8_seats": round(cost.cpu_share, 4),
                "paint_65536_ms_p99": round(paint_ms(page, engine.snapshot), 3),
                "tok_s_open_over_closed": round(cost.speed_kept, 4),
            }
            page.close()
            page.shut_down()
            page.deleteLater()
    let_go(app)
    lines = (
        f"{100 * cost.cpu_share:6.2f} %   of a core for the window's thread, with {SEATS} chats being answered (at most 2 %)",
        f"{figures['paint_65536_ms_p99']:6.2f} ms  to paint a map of {BLOCKS:,} blocks that have all changed (p99 of {PAINTS})",
        f"{100 * cost.speed_kept:6.1f} %   of the engine's speed is kept with it open ({cost.tok_s:.1f} tok/s closed; at least 98 %; "
        f"half of the {args.rounds} rounds between {100 * cost.low:.1f} and {100 * cost.high:.1f} %)",
    )
    print("\n".join(lines), file=sys.stderr if args.json == "-" else sys.stdout)
    return write_json(args.json, figures)


@dataclass(frozen=True, slots=True)
class Cost:
    """`cpu_share`: of a core, 0 to 1. `kept`: tok/s open over closed, of each round. `tok_s`: closed."""

    cpu_share: float
    kept: tuple[float, ...]
    tok_s: float

    @property
    def speed_kept(self) -> float:
        return statistics.median(self.kept) if self.kept else 0.0

    @property
    def low(self) -> float:
        """A quarter of the rounds lies below."""
        return sorted(self.kept)[len(self.kept) // 4] if self.kept else 0.0

    @property
    def high(self) -> float:
        """A quarter of the rounds lies above."""
        return sorted(self.kept)[-1 - len(self.kept) // 4] if self.kept else 0.0


class Speed:
    """Tokens over time, from one published step to another."""

    def __init__(self) -> None:
        self.tokens, self.seconds = 0, 0.0

    def add(self, begin: Snapshot, end: Snapshot) -> None:
        self.tokens += end.counters.output_tokens - begin.counters.output_tokens
        self.seconds += end.time - begin.time

    @property
    def tok_s(self) -> float:
        return self.tokens / self.seconds if self.seconds > 0 else 0.0


def fill(engine: Engine) -> None:
    """A chat in every seat that talks until the measurement is over; wait until all have read their prompts."""
    params = SamplingParams(max_tokens=LONG_ANSWER, temperature=0.8, ignore_eos=True)
    handles = [engine.submit(PROMPT.format(number), params, chat_id=f"bench-{number}", title=f"Part {number}") for number in range(SEATS)]
    for handle in handles:
        handle.wait(120)


def watch(engine: Watched, page: DashboardPage, spin: Spin, seconds: float, rounds: int) -> Cost:
    """Open and close the dashboard in turns while the engine works. `spin` runs the window's loop for so many seconds."""
    page.show()  # made and painted once: what is measured is looking, not opening
    spin(seconds / 4)
    page.hide()
    spin(seconds / 4)
    shares: list[float] = []
    kept: list[float] = []
    closed: list[float] = []
    for _ in range(rounds):
        speed = {"open": Speed(), "closed": Speed()}
        for turn in TURNS:
            page.setVisible(turn == "open")
            spin(min(SETTLE_S, seconds / 4))
            begin, cpu, begun = engine.snapshot, time.thread_time(), time.monotonic()
            spin(seconds)
            if turn == "open":
                shares.append((time.thread_time() - cpu) / (time.monotonic() - begun))
            speed[turn].add(begin, engine.snapshot)
        closed.append(speed["closed"].tok_s)
        if closed[-1]:
            kept.append(speed["open"].tok_s / closed[-1])
    page.show()
    return Cost(statistics.median(shares), tuple(kept), statistics.median(closed))


def paint_ms(page: DashboardPage, snapshot: Snapshot, paints: int = PAINTS) -> float:
    """CPU milliseconds to take in and paint a map in which every block has another owner than before; the 99th percentile."""
    dice = random.Random(1)
    kinds = (OWNER_FREE, OWNER_CACHED, OWNER_SHARED, *(OWNER_SEAT0 + seat for seat in range(SEATS)))
    owner_of = bytes(kinds[byte % len(kinds)] for byte in range(256))
    page.kvmap.setVisible(True)
    costs = []
    for _ in range(paints):
        owners = array("H", dice.randbytes(BLOCKS).translate(owner_of))
        counts = [owners.count(OWNER_FREE), owners.count(OWNER_CACHED)]
        kv = KvView(BLOCKS, counts[0], counts[1], BLOCKS - sum(counts), snapshot.kv.block_size, owners.tobytes(), BLOCKS)
        shown = replace(snapshot, kv=kv)
        begun = time.thread_time()
        page.kvmap.show_snapshot(shown)
        page.kvmap.repaint()
        costs.append(1000 * (time.thread_time() - begun))
    return sorted(costs)[min(len(costs) - 1, int(0.99 * len(costs)))]
