"""Reproducible answers: the same prompt and seed give the same answer to the last bit, whoever rides along; and without the switch, on
torch's kernels, they do not, or this would show nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.bench.small_models import write_small_model
from engine.core import Core
from engine.kv.pool import BlockPool
from engine.model.native import library
from engine.model.native.company import same_in_company
from engine.model.runner import EVERYTHING
from engine.model.sampler import _sum
from engine.opened import OpenModel, open_real_model
from engine.types import EngineConfig, Event, FinishedEvent, Policy, Priority, SamplingParams, TokenLogprob, TokensEvent
from tests.engine.model.tiny import make_lane, make_model, make_prompts

DRAWN = SamplingParams(max_tokens=16, temperature=0.9, top_p=0.9, ignore_eos=True, logprobs=2)
OWN_KERNELS = library.fault() is None
Answer = tuple[tuple[int, ...], tuple[TokenLogprob, ...]]


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Every third begins as the one before it."""
    made = make_prompts(14, seed=4, shortest=30, longest=90)
    made = [[token % 250 for token in prompt] for prompt in made]
    for number in range(2, len(made), 3):
        made[number] = made[number - 1][:64] + made[number][:10]
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_model(tmp_path_factory.mktemp("small") / "model", 5)


def opened(folder: Path, dtype: str) -> OpenModel:
    config = EngineConfig(model=str(folder), device="cpu", dtype=dtype, kv_tokens=512, threads=1)
    return open_real_model(config, lambda share, stage: None, lambda: False)


class Ride:
    """Requests on a core over a real lane, with what came of each."""

    def __init__(self, model: OpenModel, reproducible: bool, **rules: Any) -> None:
        ticks = iter(range(1 << 40))
        config = EngineConfig(reproducible=reproducible, **{"token_budget": 64, "adapt_chunk": False, **rules})
        pool = BlockPool(model.num_blocks, model.block_size)
        self.core = Core(model.runner, pool, config, clock=lambda: float(next(ticks)), emit=self._note)
        self.answers: dict[str, Answer] = {}
        self.cached = 0

    def _note(self, event: Event) -> None:
        if isinstance(event, TokensEvent):
            tokens, told = self.answers.get(event.request_id, ((), ()))
            self.answers[event.request_id] = (*tokens, *event.token_ids), (*told, *event.logprobs)
        elif isinstance(event, FinishedEvent):
            self.cached += event.usage.cached_tokens

    def submit(self, name: str, prompt: Sequence[int], seed: int, priority: Priority = Priority.FOREGROUND) -> None:
        self.core.submit(name, list(prompt), DRAWN, chat_id=name, title="", priority=priority, seed=seed)

    def run(self) -> dict[str, Answer]:
        while self.core.busy:
            self.core.step()
        return self.answers


def alone(model: OpenModel, prompts: Sequence[Sequence[int]]) -> list[Answer]:
    """With the switch on, each on a core of its own."""
    found = []
    for seed, prompt in enumerate(prompts):
        ride = Ride(model, True)
        ride.submit("it", prompt, seed)
        found.append(ride.run()["it"])
    return found


def in_company(model: OpenModel, prompts: Sequence[Sequence[int]], reproducible: bool, **rules: Any) -> tuple[list[Answer], Ride]:
    """All of them, arriving while others ride, some of a lower class; some of their neighbours leave in the middle."""
    rnd = random.Random(7)
    ride = Ride(model, reproducible, **rules)
    for number, prompt in enumerate(prompts):
        ride.submit(f"it{number}", prompt, number, Priority.BACKGROUND if number % 3 == 1 else Priority.FOREGROUND)
        if number % 4 == 0:
            ride.submit(f"gone{number}", prompt[:-3], number)
        for _ in range(rnd.randrange(6)):
            ride.core.step()
        if number % 4 == 2:
            ride.core.cancel(f"gone{number - 2}")
    found = ride.run()
    return [found[f"it{number}"] for number in range(len(prompts))], ride


@pytest.mark.skipif(not OWN_KERNELS, reason=str(library.fault()))
@pytest.mark.parametrize("dtype", ["bfloat16", "8-bit"])
def test_on_our_own_kernels_it_costs_nothing_and_holds(folder: Path, prompts: list[list[int]], dtype: str) -> None:
    """They ride together, lose seats, are cut in other pieces, share beginnings and guess ahead: the same to the last bit."""
    model = opened(folder, dtype)
    try:
        single = alone(model, prompts)
        assert len({answer[0] for answer in single}) == len(prompts)
        preempted = cached = 0
        for seats, chunk, draft in ((3, 7, 0), (6, 64, 0), (5, 33, 3)):
            together, ride = in_company(model, prompts, True, seats=seats, chunk=chunk, draft_tokens=draft)
            core = ride.core
            assert not core.company.alone and core.scheduler.seats == seats and core.scheduler.policy is Policy.IN_FLIGHT
            assert [answer[0] for answer in together] == [answer[0] for answer in single]
            if not draft:  # what a guess came true of is told without its numbers
                assert together == single
            preempted, cached = preempted + core.totals.preemptions, cached + ride.cached
        assert preempted > 0 and cached > 0
    finally:
        model.close()


def test_on_torchs_kernels_they_ride_one_at_a_time_and_it_holds(folder: Path, prompts: list[list[int]]) -> None:
    model = opened(folder, "float32")
    try:
        single = alone(model, prompts)
        loose, _ = in_company(model, prompts, False, seats=6, chunk=7)
        assert loose != single, "company shows in the numbers, or this test shows nothing"
        together, ride = in_company(model, prompts, True, seats=6, chunk=7, draft_tokens=3)
        core = ride.core
        assert core.company.alone and (core.scheduler.seats, core.scheduler.policy) == (1, Policy.STATIC)
        assert together == single
        assert core.totals.preemptions == ride.cached == 0 and core.config.seats == 6
    finally:
        model.close()


def test_it_can_be_switched_while_others_wait(folder: Path, prompts: list[list[int]]) -> None:
    model = opened(folder, "float32")
    try:
        single = alone(model, prompts[:4])
        ride = Ride(model, False, seats=4)
        for number, prompt in enumerate(prompts[4:8]):
            ride.submit(f"before{number}", prompt, number)
        ride.core.step()
        ride.core.configure(reproducible=True)
        for number, prompt in enumerate(prompts[:4]):
            ride.submit(f"it{number}", prompt, number)
        found = ride.run()
        assert [found[f"it{number}"] for number in range(4)] == single
        ride.core.configure(reproducible=False)
        assert (ride.core.scheduler.seats, ride.core.scheduler.policy) == (4, Policy.IN_FLIGHT)
    finally:
        model.close()


def test_how_a_lane_on_torchs_kernels_is_held() -> None:
    runner = make_lane(make_model("llama"))
    before = runner._builder.join
    assert not runner.reproduce(True) and runner._builder.join == EVERYTHING
    assert runner.reproduce(False) and runner._builder.join == before


@pytest.mark.skipif(not OWN_KERNELS, reason=str(library.fault()))
def test_a_model_with_torchs_products_on_our_kernels_is_found_out(folder: Path) -> None:
    """What is asked of the machine is asked of this very model: one whose head is torch's does not pass."""
    model = opened(folder, "bfloat16")
    try:
        runner: Any = model.runner
        assert same_in_company(runner.fast, runner._model, runner.store)

        class Loose(torch.nn.Module):
            """Adds in an order that depends on how many rows there are."""

            def __init__(self, head: torch.nn.Module) -> None:
                super().__init__()
                self.head = head

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.head(x) * (1.0 + 1e-6 * x.shape[-2])

        runner._model.lm_head = Loose(runner._model.lm_head)
        runner.fast._recording = None
        assert not same_in_company(runner.fast, runner._model, runner.store)
    finally:
        model.close()


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_sum_is_the_same_alone_and_in_company(threads: None) -> None:
    numbers = torch.rand(5, 49_152, generator=torch.Generator().manual_seed(1))
    for size in (49_152, 49_000, 40):
        found = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found += [_sum(numbers[:rows, :size].contiguous())[0] for rows in (1, 2, 5)]
        assert all(torch.equal(one, found[0]) for one in found)
        assert torch.allclose(found[0], numbers[0, :size].double().sum().float(), rtol=1e-6)
