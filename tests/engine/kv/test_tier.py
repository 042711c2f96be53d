"""The second tier: what gives way on the device comes back instead of being computed again, and no answer changes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from engine.kv.copies import Copy
from engine.kv.tier import HostTier
from engine.sim import CostModel, Sim, expected_answer
from engine.trace.recorder import Recorder
from engine.trace.replay import Replay
from engine.types import EngineConfig, Priority, SamplingParams


def make_sim(tier_tokens: int, blocks: int = 12, seats: int = 3, cost: CostModel | None = None, **rules: Any) -> Sim:
    config = EngineConfig(seats=seats, token_budget=32, chunk=16, debug_audit=True, tier_tokens=tier_tokens, **rules)
    return Sim(config, blocks=blocks, block_size=4, cost=cost)


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


def forgotten_and_back(sim: Sim, name: str, prompt: list[int]) -> int:
    """Ask, let a crowd take the pool, ask again: how many tokens had not to be computed again."""
    ask(sim, name, prompt, 4)
    sim.run()
    ask(sim, f"{name} crowd", [40 + n % 9 for n in range(40)], 4)
    sim.run()
    ask(sim, f"{name} back", [*prompt, 7], 4)
    sim.run()
    assert sim.tokens(f"{name} back") == expected_answer([*prompt, 7], 1, 4)
    end = sim.end(f"{name} back")
    assert end is not None
    return end.usage.cached_tokens


@pytest.mark.parametrize(("block_s", "pays"), [(0.0001, True), (0.5, False)])
def test_what_is_brought_back_is_what_costs_less_than_computing_it(block_s: float, pays: bool) -> None:
    """A block of four positions takes 2 ms to compute. A tier that turns out slower is left alone from then on, and tried again later."""
    sim = make_sim(tier_tokens=200, cost=CostModel(prefill_token=0.0005, restored_block=block_s))
    tier = sim.core.tier
    assert tier is not None
    forgotten_and_back(sim, "first", list(range(20)))
    assert tier.restored > 0  # nobody knew yet
    known = tier.restored
    for number in range(10):
        assert (forgotten_and_back(sim, f"r{number}", [60 - number, *range(20)]) >= 16) is pays
    assert (tier.restored > known) is pays
    for number in range(300):
        forgotten_and_back(sim, f"s{number}", [70 + number, *range(20)])
        if tier.restored > known:
            break
    assert tier.restored > known


def test_a_long_chat_that_comes_back_holds_nobody_up_for_long() -> None:
    """Bringing all of it back would take four times the target of a step: as much comes back as fits, the rest is computed in chunks."""
    cost = CostModel(step=0.0, decode_row=0.0, prefill_token=0.01, restored_block=0.01)
    sim = make_sim(tier_tokens=400, blocks=60, cost=cost, target_step_s=0.05)
    tier = sim.core.tier
    assert tier is not None
    ask(sim, "long", list(range(100)), 1)
    sim.run()
    ask(sim, "crowd", [40 + n % 9 for n in range(230)], 4)
    sim.run()
    ask(sim, "short", list(range(60, 70)), 1)  # brings a block back and so measures what it takes
    sim.run()
    ask(sim, "probe", [*range(8), 3], 1)
    sim.run()
    before, longest = tier.restored, 0.0
    ask(sim, "rides", [9] * 4, 30)
    sim.core.step()
    ask(sim, "back", [*range(100), 7], 1)
    while sim.core.busy:
        record = sim.core.step()
        assert record is not None
        if any(row.request_id == "rides" for row in record.rows):
            longest = max(longest, record.duration)
    assert 0 < tier.restored - before <= 5
    assert longest < 0.3  # 25 blocks would be 0.25 s on top of a chunk of 16 positions, 0.16 s
    assert sim.tokens("back") == expected_answer([*range(100), 7], 1, 1)


def test_a_replay_brings_back_what_the_recording_did() -> None:
    sim = make_sim(tier_tokens=200, cost=CostModel(prefill_token=0.0005, restored_block=0.004))
    recorder = Recorder(sim.core)
    for number in range(12):
        forgotten_and_back(sim, f"r{number}", [60 - number, *range(20)])
    trace = recorder.stop()
    assert sim.core.tier is not None and sim.core.tier.restored > 0
    player = Replay(trace)
    while player.advance():
        pass
    assert player.core.tier is not None and player.core.tier.restored == sim.core.tier.restored
    assert player.core.swapping.cost.block_s == sim.core.swapping.cost.block_s
    assert player.records == list(sim.core.history)


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
