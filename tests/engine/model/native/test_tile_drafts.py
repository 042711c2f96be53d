"""Guessing ahead on our own kernels, where it is on by default: the answers, to the last bit, that are given without.

Riders come and go, lose seats and blocks, share beginnings, and ride whatever changes meanwhile; a recording begun in the middle replays.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.core import Core
from engine.kv.pool import BlockPool
from engine.model.cache import KVStore
from engine.model.checked import CheckedRunner
from engine.model.native import library
from engine.model.native.lane import make_tile_lane, tile_geometry
from engine.model.runner import TorchRunner
from engine.trace.recorder import Recorder
from engine.trace.replay import Replay
from engine.types import EngineConfig, Event, FinishedEvent, FinishReason, Priority, SamplingParams, TokensEvent
from tests.engine.model.native.test_tile_lane import CONTEXT, SIZE, packed
from tests.engine.model.test_drafts import POISON, guess_poison
from tests.engine.model.tiny import make_prompts

pytestmark = pytest.mark.skipif(library.fault() is not None, reason=str(library.fault()))

BLOCKS = 12
FEW = tuple((token, 100.0) for token in range(3, 9))  # so few tokens that every run of them comes again
KINDS = (
    SamplingParams(temperature=0.0, max_tokens=50, logit_bias=FEW),
    SamplingParams(temperature=0.9, top_p=0.9, max_tokens=40, logit_bias=FEW),
    SamplingParams(temperature=0.8, top_k=5, min_tokens=20, stop_token_ids=(3,), max_tokens=60, logit_bias=FEW),
    SamplingParams(temperature=0.0, max_tokens=70),
)


def make_runner(family: str, in_eight: bool, slots: int) -> TorchRunner:
    model, geometry = packed(family, **({"sliding_window": 40} if slots else {}))
    tiles = tile_geometry(model, geometry.in_eight_bits() if in_eight else geometry, SIZE)
    assert tiles is not None
    store = KVStore(replace(tiles, slotted=slots > 0), BLOCKS, SIZE, slots)
    runner = TorchRunner(model, store, frozenset(), CONTEXT)
    runner.ride(make_tile_lane(model, store))
    assert runner.drafts
    return runner


class Ride:
    """A core over a runner that believes nothing."""

    def __init__(self, runner: TorchRunner, **rules: Any) -> None:
        self.told: dict[str, list[int]] = {}
        self.ends: dict[str, FinishReason] = {}
        ticks = iter(range(1 << 40))
        runner.resize(BLOCKS)
        settings = EngineConfig(**{"token_budget": 64, "chunk": 16, "adapt_chunk": False, "debug_audit": True, **rules})
        self.core = Core(CheckedRunner(runner), BlockPool(BLOCKS, SIZE), settings, clock=lambda: float(next(ticks)), emit=self._note)

    def submit(self, number: int, job: tuple[list[int], SamplingParams], priority: Priority = Priority.API) -> None:
        name = f"r{number}"
        self.core.submit(name, job[0], job[1], chat_id=name, title="", priority=priority, seed=number)

    def _note(self, event: Event) -> None:
        if isinstance(event, TokensEvent):
            self.told.setdefault(event.request_id, []).extend(event.token_ids)
        elif isinstance(event, FinishedEvent):
            self.ends[event.request_id] = event.reason


def make_jobs(rnd: random.Random) -> list[tuple[list[int], SamplingParams]]:
    """Prompts that repeat themselves, and some that begin as another does."""
    jobs: list[tuple[list[int], SamplingParams]] = []
    for number, prompt in enumerate(make_prompts(9, seed=5, shortest=5, longest=40)):
        text = (prompt * 3)[: rnd.randint(4, 90)]
        if number % 3 == 2:
            text = jobs[-1][0] + text[:7]
        jobs.append((text, KINDS[number % len(KINDS)]))
    return jobs


def disturb(core: Core, rnd: random.Random, cancelled: set[str]) -> None:
    """Something that may happen between two steps; nothing, mostly."""
    chance, live = rnd.random(), list(core.requests)
    if chance < 0.02 and live:
        cancelled.add(name := rnd.choice(live))
        core.cancel(name)
    elif chance < 0.04:
        core.rebuild()
    elif chance < 0.08:
        core.configure(seats=rnd.randint(1, 5), token_budget=rnd.choice((8, 64, 200)))
    elif chance < 0.11:
        core.resize(rnd.randint(9, BLOCKS))
    elif chance < 0.14:
        core.clear_cache()
    elif chance < 0.18 and live:
        core.set_priority(rnd.choice(live), Priority(rnd.randrange(4)))


@pytest.mark.parametrize(("family", "in_eight", "slots"), [("llama", True, 0), ("gemma3", False, 14), ("mistral", False, 0)])
def test_answers_are_the_same_to_the_last_bit(family: str, in_eight: bool, slots: int) -> None:
    rnd, runner = random.Random(3), make_runner(family, in_eight, slots)
    jobs = make_jobs(rnd)
    alone = Ride(runner, draft_tokens=0, seats=1)
    for number, job in enumerate(jobs):
        alone.submit(number, job)
        while alone.core.busy:
            alone.core.step()
    assert not alone.core.counters.drafted_tokens
    accepted = preempted = 0
    for draft in (None, 16):
        ride, cancelled, waiting, steps = Ride(runner, draft_tokens=draft, seats=3), set[str](), list(range(len(jobs))), 0
        while waiting or ride.core.busy:
            if waiting and (rnd.random() < 0.15 or not ride.core.busy):
                ride.submit(number := waiting.pop(0), jobs[number], Priority(rnd.randrange(4)))
            disturb(ride.core, rnd, cancelled)
            if steps == 25:
                recorder, again = Recorder(ride.core), {name: list(tokens) for name, tokens in ride.told.items()}
            ride.core.step()
            steps += 1
        for name, tokens in alone.told.items():
            told = ride.told.get(name, [])
            assert told == (tokens[: len(told)] if name in cancelled else tokens)
            assert name in cancelled or ride.ends[name] is alone.ends[name]
        accepted, preempted = accepted + ride.core.counters.accepted_tokens, preempted + ride.core.counters.preemptions

        def note(event: Event, again: dict[str, list[int]] = again) -> None:
            if isinstance(event, TokensEvent):
                again.setdefault(event.request_id, []).extend(event.token_ids)

        player = Replay(recorder.stop(), note)
        while player.advance():
            pass
        assert again == ride.told
    assert accepted > 20 and preempted


@pytest.mark.parametrize("in_eight", [False, True])
def test_a_guess_that_is_no_number_ends_nothing(in_eight: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight of 0 does not keep it from the positions before it in the row."""
    runner = make_runner("llama", in_eight, 0)
    with torch.no_grad():
        runner._model.model.embed_tokens.weight[POISON] = float("nan")
    guess_poison(monkeypatch)
    told = {}
    for draft in (0, 5):
        ride = Ride(runner, draft_tokens=draft, seats=2)
        for number in range(3):
            ride.submit(number, ([number + 3] * 8, KINDS[number]))
        while ride.core.busy:
            ride.core.step()
        assert set(ride.ends.values()) <= {FinishReason.LENGTH, FinishReason.STOP}
        told[draft] = ride.told
    assert told[0] == told[5]
    assert ride.core.counters.drafted_tokens > ride.core.counters.accepted_tokens > 0
