"""The second tier: what gives way on the device comes back instead of being computed again, and no answer changes."""

from __future__ import annotations

import random

import pytest

from engine.kv.copies import Copy
from engine.kv.tier import HostTier
from engine.sim import Sim, expected_answer
from engine.types import EngineConfig, Priority, SamplingParams


def make_sim(tier_tokens: int, blocks: int = 12, seats: int = 3) -> Sim:
    return Sim(EngineConfig(seats=seats, token_budget=32, chunk=16, debug_audit=True, tier_tokens=tier_tokens), blocks=blocks, block_size=4)


def ask(sim: Sim, name: str, prompt: list[int], length: int) -> None:
    params = SamplingParams(max_tokens=length, ignore_eos=True)
    sim.core.submit(name, prompt, params, chat_id=name, title="", priority=Priority.FOREGROUND, seed=1)


def test_a_block_that_gave_way_comes_back() -> None:
    sim = make_sim(tier_tokens=200)
    prompt = list(range(20))
    ask(sim, "first", prompt, 4)
    sim.run()
    ask(sim, "crowd", [40 + n % 9 for n in range(40)], 4)  # takes nearly the whole pool
    sim.run()
    assert sim.core.tier is not None and sim.core.tier.saved > 0
    ask(sim, "back", [*prompt, *sim.tokens("first"), 7], 4)
    sim.run()
    assert sim.core.tier.restored >= 4
    assert sim.tokens("back") == expected_answer([*prompt, *sim.tokens("first"), 7], 1, 4)
    end = sim.end("back")
    assert end is not None and end.usage.cached_tokens >= 16


def test_restoring_only_when_it_pays() -> None:
    sim = make_sim(tier_tokens=200)
    sim.core.scheduler.prefixes.restore_pays = lambda blocks: False
    ask(sim, "first", list(range(20)), 4)
    sim.run()
    ask(sim, "crowd", [40 + n % 9 for n in range(40)], 4)
    sim.run()
    ask(sim, "back", [*range(20), 7], 4)
    sim.run()
    assert sim.core.tier is not None and sim.core.tier.restored == 0
    assert sim.tokens("back") == expected_answer([*range(20), 7], 1, 4)


@pytest.mark.parametrize("seed", range(40))
def test_answers_are_the_same_under_any_pressure(seed: int) -> None:
    """The simulator refuses to read a slot that holds another sequence's values, so every restore is checked."""
    rnd = random.Random(seed)
    sim = make_sim(tier_tokens=rnd.choice((4, 12, 60, 400)), blocks=rnd.randint(8, 14), seats=rnd.randint(1, 4))
    prompts: dict[str, tuple[list[int], int]] = {}
    chats: list[list[int]] = [[number] * 5 for number in range(4)]
    for number in range(60):
        chat = rnd.randrange(4)
        if len(chats[chat]) > 24:
            chats[chat] = [chat] * rnd.randint(1, 9)
        prompts[f"r{number}"] = (list(chats[chat]), rnd.randint(1, 6))
        ask(sim, f"r{number}", *prompts[f"r{number}"])
        for _ in range(rnd.randrange(6)):
            sim.core.step()
            assert sim.core.tier is not None
            sim.core.tier.audit()
        if rnd.random() < 0.05:
            sim.core.clear_cache()
        if rnd.random() < 0.05:
            sim.core.rebuild()
        if rnd.random() < 0.1 and sim.core.requests:
            victim = rnd.choice(list(sim.core.requests))
            sim.core.cancel(victim)
            del prompts[victim]
        chats[chat] = [*chats[chat], *sim.tokens(f"r{number}"), 50 + number % 5]
    sim.run()
    for name, (prompt, length) in prompts.items():
        assert sim.tokens(name) == expected_answer(prompt, 1, length)
    assert sim.core.pool.referenced == 0


def test_ledger() -> None:
    tier = HostTier(2)
    tier.save(5, b"a")
    tier.save(6, b"b")
    tier.save(7, b"a")  # the same content again: kept where it is
    assert tier.used == 2
    tier.save(8, b"c")  # b was saved longest ago
    assert b"b" not in tier and b"a" in tier
    slots = tier.claim([b"a"])
    tier.save(9, b"d")  # may not touch the claimed slot
    tier.restore(slots, [3])
    tier.audit()
    copies = tier.copies
    assert copies[-1] == Copy(3, slots[0], save=False)
    assert all(isinstance(copy, Copy) and copy.slot != slots[0] for copy in copies[-2:-1])
    tier.clear()
    assert tier.used == 0 and not tier.copies and b"c" not in tier
    with pytest.raises(ValueError, match="slot"):
        HostTier(0)
