"""`omnibus bench eviction`: how soon do returning chats get their first token when the pool is too small for all of them?

Plain least-recently-used against the tail-optimised order, on the same seeded multi-turn load, in the simulator with the virtual
clock: the figures are of the policy, not of this machine. The tail-optimised order (first evict what is computed again before a person
would notice) follows the idea of T-LRU in SGLang's cache policies.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass
from typing import TextIO

from engine.bench.output import NotWritable, add_json_option, check_writable, human_stream, write_document
from engine.measures import percentile
from engine.sim import CostModel, Sim
from engine.types import EngineConfig, Priority, SamplingParams

COST = CostModel(step=0.010, decode_row=0.001, prefill_token=0.001)  # about this project's small CPU


@dataclass(frozen=True, slots=True)
class Load:
    """Chats that come back: each has a system prompt of its own, turns, and pauses between them."""

    chats: int = 24
    turns: int = 6
    system: int = 400
    question: int = 40
    answer: int = 120
    pause_s: float = 20.0
    pool_share: float = 0.5  # of what all chats need at their end


def measure(unnoticed_s: float, load: Load, seed: int) -> dict[str, float]:
    """First-token times of later turns, in seconds, and the share of prompt positions that were cached."""
    block = 32
    whole = load.chats * (load.system + load.turns * (load.question + load.answer))
    config = EngineConfig(seats=8, token_budget=512, chunk=128)
    sim = Sim(config, blocks=int(whole * load.pool_share) // block, block_size=block, vocab=997, cost=COST)
    sim.core.unnoticed_s = unnoticed_s
    # One source of chance a chat, so that both orders meet the very same questions, answer lengths and pauses.
    chances = [random.Random(1000 * seed + chat) for chat in range(load.chats)]
    history = [[rnd.randrange(997) for _ in range(load.system)] for rnd in chances]
    due = [(rnd.uniform(0, load.pause_s), chat, 0) for chat, rnd in enumerate(chances)]
    riding: dict[str, tuple[int, int]] = {}
    later: list[float] = []
    prompt_tokens = cached_tokens = 0
    while due or riding:
        due.sort()
        while due and (due[0][0] <= sim.clock.now or not riding):
            at, chat, turn = due.pop(0)
            sim.clock.now = max(sim.clock.now, at)
            rnd = chances[chat]
            history[chat] += [rnd.randrange(997) for _ in range(load.question)]
            name = f"{chat}.{turn}"
            params = SamplingParams(max_tokens=max(1, int(rnd.expovariate(1 / load.answer))), ignore_eos=True)
            sim.core.submit(name, history[chat], params, chat_id=str(chat), title="", priority=Priority.BACKGROUND, seed=seed)
            riding[name] = (chat, turn)
        sim.core.step()
        for name in [name for name in riding if sim.end(name) is not None]:
            chat, turn = riding.pop(name)
            end = sim.end(name)
            assert end is not None and end.time.ttft is not None
            history[chat] += sim.tokens(name)
            prompt_tokens += end.usage.prompt_tokens
            cached_tokens += end.usage.cached_tokens
            if turn:
                later.append(end.time.ttft)
            if turn + 1 < load.turns:
                due.append((sim.clock.now + chances[chat].expovariate(1 / load.pause_s), chat, turn + 1))
    later.sort()
    return {
        "ttft_p50_s": round(percentile(later, 0.5), 4),
        "ttft_p95_s": round(percentile(later, 0.95), 4),
        "ttft_mean_s": round(sum(later) / len(later), 4),
        "cached_share": round(cached_tokens / prompt_tokens, 4),
    }


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("eviction", help="plain LRU against the tail-optimised order, for returning chats under pressure")
    parser.add_argument("--seeds", type=int, default=5, help="loads to run; figures are their means")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """0 done, 1 the document could not be written, 2 asked for in a wrong way."""
    if args.seeds < 1:
        print("omnibus bench eviction: --seeds must be at least 1.", file=sys.stderr)
        return 2
    try:
        check_writable(args.json)
        orders = compare(args.seeds, human_stream(args.json))
        write_document(args.json, {"orders": orders})
    except NotWritable as error:
        print(f"omnibus bench eviction: {error}", file=sys.stderr)
        return 1
    return 0


def compare(seeds: int, out: TextIO) -> dict[str, dict[str, float]]:
    """The figures of each order, as means over so many loads; a line of each is told."""
    results = {}
    for name, unnoticed in (("lru", 0.0), ("tail_optimised", 0.15)):
        runs = [measure(unnoticed, Load(), seed) for seed in range(seeds)]
        results[name] = {key: round(sum(item[key] for item in runs) / len(runs), 4) for key in runs[0]}
        print(f"{name:15} " + "  ".join(f"{key} {value:.3f}" for key, value in results[name].items()), file=out)
    return results
