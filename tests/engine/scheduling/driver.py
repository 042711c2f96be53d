"""The fast driver: the same operations as the Hypothesis machine, drawn by a plain seeded generator, by the hundred thousand."""

from __future__ import annotations

import random

from engine.types import Policy, Priority, SamplingParams
from tests.engine.scheduling.world import VOCAB, World, WorldConfig

EPISODE = 400  # operations in one world, before it is drained

# Beginnings that requests share: the seed of prefix hits, and of twins that compute the same thing at once.
STEMS = [[1 + (stem * 5 + place * 3) % (VOCAB - 1) for place in range(60)] for stem in range(3)]
CHATS = "abcd"


def random_config(rnd: random.Random) -> WorldConfig:
    block_size = rnd.randint(1, 4)
    slot_window = rnd.choice((*[0] * 8, 1, 3, 6, 20))  # goes with neither of the next two
    return WorldConfig(
        blocks=rnd.choice((1, 2, 3, 4, 6, 8, 10, 12, 12, 12)),
        block_size=block_size,
        seats=rnd.randint(1, 4),
        token_budget=rnd.choice((1, 2, 4, 8, 16, 64)),
        chunk=rnd.choice((1, 2, 3, 8, 32)),
        adapt_chunk=rnd.random() < 0.2,
        policy=Policy.STATIC if rnd.random() < 0.25 else Policy.IN_FLIGHT,
        overtake_limit=rnd.choice((0, 1, 2, 8)),
        aging_s=rnd.choice((0.02, 0.3, 1e9, 1e9)),
        max_waiting=rnd.choice((2, 6, 12)),
        tier_tokens=0 if slot_window else rnd.choice((0, 0, 4, 20)),
        restored_block=rnd.choice((0.0, 0.001, 0.012)),
        resumable=rnd.random() < 0.85,
        window=0 if slot_window else rnd.choice((0, 0, 0, 1, 3, 6, 20)),
        slot_window=slot_window,
        slot_riders=rnd.choice((1, 1, 2, 4)),
        slots_more=rnd.choice((0, 0, 1, 3, 12)),
        draft_tokens=rnd.choice((0, 1, 3, 8)),
        twin_tokens=rnd.choice((1, 4, 64)),
        typical=rnd.choice((0.0, 0.0, 4.0, 64.0)),
        context=rnd.choice((5, 12, 1 << 20, 1 << 20)),
    )


def random_prompt(rnd: random.Random, capacity: int) -> list[int]:
    """Mostly what fits; now and then nothing, or too much."""
    chance = rnd.random()
    if chance < 0.01:
        return []
    longest = capacity + 2 if chance < 0.06 else capacity * 2 // 3 if chance < 0.3 else capacity // 4
    length = rnd.randint(1, max(1, longest))
    shared = rnd.randint(0, length) if rnd.random() < 0.6 else 0
    return (rnd.choice(STEMS)[:shared] + [rnd.randrange(VOCAB) for _ in range(length)])[:length]


def turn_after(rnd: random.Random, world: World) -> list[int]:
    """A chat comes back, or one of its messages was edited, or an answer is asked for again: what was said, or some of it, and more."""
    said = rnd.choice(list(world.book.entries.values()))
    known = said.prompt + said.answer
    kept = known[: rnd.randint(0, len(known))] if rnd.random() < 0.4 else known
    return kept + [rnd.randrange(VOCAB) for _ in range(rnd.randint(0, 4))]


def random_params(rnd: random.Random) -> SamplingParams:
    longest = rnd.choice((1, 2, 4, 8, 16, None))
    return SamplingParams(
        max_tokens=longest,
        min_tokens=rnd.randint(0, longest or 4) if rnd.random() < 0.2 else 0,
        stop_token_ids=(rnd.randrange(VOCAB),) if rnd.random() < 0.1 else (),
        ignore_eos=rnd.random() < 0.3,
    )


def operate(world: World, rnd: random.Random) -> None:
    """One random operation."""
    chance = rnd.random()
    pool = world.core.pool
    if chance < 0.66 and (world.core.busy or chance < 0.02):
        world.step()
    elif chance < 0.86:
        prompt, priority = random_prompt(rnd, pool.capacity), Priority(rnd.choice((0, 0, 0, 1, 1, 2, 3)))
        if world.book.entries and rnd.random() < 0.3:
            prompt = turn_after(rnd, world)
        for _ in range(rnd.choice((1, 1, 1, 1, 1, 1, 2, 3))):  # twins come at the same moment
            world.submit(prompt, random_params(rnd), rnd.choice(CHATS), priority)
    elif chance < 0.90:
        live = list(world.book.live)
        world.cancel(int(rnd.choice(live)[1:]) if live and rnd.random() < 0.8 else rnd.randrange(1 << 30))
    elif chance < 0.905:
        world.cancel_unknown()
    elif chance < 0.925:
        live = list(world.book.live)
        world.reprioritise(int(rnd.choice(live)[1:]) if live else 0, Priority(rnd.randrange(4)))
    elif chance < 0.94:
        rule = rnd.choice(("seats", "token_budget", "chunk", "policy"))
        values = {
            "seats": rnd.randint(1, 4),
            "token_budget": rnd.randint(1, 16),
            "chunk": rnd.randint(1, 8),
            "policy": rnd.choice(list(Policy)),
        }
        world.configure(**{rule: values[rule]})
    elif chance < 0.942:
        world.configure_badly(**{rnd.choice(("seats", "token_budget", "chunk")): rnd.choice((0, -1))})
    elif chance < 0.95:
        world.resize(rnd.randint(1, 12))
    elif chance < 0.955:
        world.clear_cache()
    elif chance < 0.97:
        world.gap(rnd.choice((0.01, 0.1, 1.0, 100.0)))
    elif chance < 0.98:
        world.fail_one(rnd.randrange(4), nan=rnd.random() < 0.5)
    elif chance < 0.983:
        world.fail_all()
    elif chance < 0.987:
        world.run_short(rnd.randint(1, 6), rnd.randint(1, 8))
    else:
        world.compare_snapshot()


def blast(seed: int, operations: int, audit_every: int = 8) -> int:
    """Worlds one after another, until so many operations were carried out; returns how many. A failure names the world's seed."""
    done, number = 0, 0
    while done < operations:
        world_seed = seed * 1_000_003 + number
        rnd = random.Random(world_seed)
        world = World(random_config(rnd), audit_every)
        try:
            while world.ops < EPISODE:
                operate(world, rnd)
            world.drain()
        except BaseException as error:
            error.add_note(f"world seed {world_seed}, {world.config}, after {world.ops} operations")
            raise
        done += world.ops
        number += 1
    return done
