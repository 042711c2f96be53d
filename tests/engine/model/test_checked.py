"""The debugging runner finds a stray write and a block in the wrong hands, and is silent otherwise."""

from __future__ import annotations

import pytest

from engine.core import Core
from engine.kv.pool import BlockPool
from engine.model.checked import CheckedRunner
from engine.sim import CacheCorruption
from engine.types import EngineConfig, Event, Priority, SamplingParams, TokensEvent
from tests.engine.model.tiny import make_lane, make_model, make_prompts


def make_core(blocks: int = 24, tier: int = 0) -> tuple[Core, dict[str, list[int]]]:
    answers: dict[str, list[int]] = {}

    def note(event: Event) -> None:
        if isinstance(event, TokensEvent):
            answers.setdefault(event.request_id, []).extend(event.token_ids)

    lane = make_lane(make_model("llama"), blocks=blocks, block_size=4)
    if tier:
        lane.open_tier(tier, None)
    ticks = iter(range(1 << 20))
    config = EngineConfig(seats=3, token_budget=40, chunk=12, debug_audit=True, tier_tokens=4 * tier)
    return Core(CheckedRunner(lane), BlockPool(blocks, 4), config, clock=lambda: float(next(ticks)), emit=note), answers


def ask(core: Core, name: str, prompt: list[int], length: int = 8) -> None:
    params = SamplingParams(max_tokens=length, temperature=0.0, ignore_eos=True)
    core.submit(name, prompt, params, chat_id=name, title="", priority=Priority.FOREGROUND, seed=0)


def run(core: Core) -> None:
    while core.busy:
        core.step()


@pytest.mark.parametrize("tier", [0, 200])
def test_silent_under_pressure_and_the_tier_changes_no_answer(tier: int) -> None:
    core, answers = make_core(tier=tier)
    prompts = make_prompts(12, seed=4, longest=30)
    for turn in ("first", "again"):
        for number, prompt in enumerate(prompts):
            ask(core, f"{turn}{number}", prompt)
        run(core)
    assert all(answers[f"first{number}"] == answers[f"again{number}"] for number in range(12))
    if tier:
        assert core.tier is not None and core.tier.restored > 0


def test_a_stray_write_is_found() -> None:
    core, _ = make_core()
    ask(core, "a", make_prompts(1, seed=1, shortest=20, longest=20)[0])
    core.step()
    (rider,) = core.requests.values()
    core.runner.store.tensors()[2][rider.blocks[1], 0, 2, 3] += 1e-3  # type: ignore[attr-defined]
    with pytest.raises(CacheCorruption, match="bytes"):
        run(core)


def test_two_values_that_changed_places_are_found() -> None:
    """A copy that went a position astray leaves every sum as it was."""
    core, _ = make_core()
    ask(core, "a", make_prompts(1, seed=1, shortest=20, longest=20)[0])
    core.step()
    (rider,) = core.requests.values()
    block = core.runner.store.tensors()[2][rider.blocks[1]]  # type: ignore[attr-defined]
    block.copy_(block.flip(-1))
    with pytest.raises(CacheCorruption, match="bytes"):
        run(core)


def test_what_changed_in_the_second_tier_is_found_when_it_comes_back() -> None:
    core, _ = make_core(tier=200)
    prompts = make_prompts(12, seed=4, shortest=20, longest=30)
    for number, prompt in enumerate(prompts):
        ask(core, f"r{number}", prompt)
    run(core)
    assert core.tier is not None and core.tier.used
    for _, host in core.runner._tier._layers:  # type: ignore[attr-defined]
        host.neg_()
    for number, prompt in enumerate(prompts):
        ask(core, f"again{number}", prompt)
    with pytest.raises(CacheCorruption, match="bytes"):
        run(core)


def test_a_block_in_two_hands_is_found() -> None:
    core, _ = make_core()
    prompts = make_prompts(2, seed=2, shortest=20, longest=20)
    ask(core, "a", prompts[0])
    ask(core, "b", prompts[1])
    core.step()
    first, second = core.requests.values()
    second.blocks[0] = first.blocks[0]
    with pytest.raises(CacheCorruption, match="something else"):
        core.runner.forward(core.scheduler.plan(0.0).rows)
