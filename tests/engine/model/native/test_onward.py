"""Inputs made from the last step's are those that a builder makes anew, whatever became of the riders and their blocks meanwhile."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.inputs import Batch
from engine.model.native.paged import TileBuilder
from engine.scheduling.plan import Row
from engine.scheduling.request import RequestState
from engine.types import SamplingParams
from tests.engine.model.tiny import make_request

SIZE, WINDOW = 4, 6


class Riders:
    """Requests that a scheduler, and all that may go on between two steps, might leave like this."""

    def __init__(self, seed: int, slotted: bool) -> None:
        self.rng = random.Random(seed)
        self.slotted = slotted
        self.seated: list[RequestState] = []
        self.made = 0
        for _ in range(self.rng.randint(1, 4)):
            self.join()

    def join(self) -> None:
        """Somebody whose prompt is computed, and whose answer has begun."""
        self.made += 1
        params = SamplingParams(prompt_logprobs=0 if self.rng.random() < 0.2 else None)
        request = make_request([self.rng.randrange(90) for _ in range(self.rng.randint(1, 9))], params, name=str(self.made))
        request.tokens += [self.rng.randrange(90) for _ in range(self.rng.randint(1, 6))]
        self.seated.insert(self.rng.randint(0, len(self.seated)), request)
        self.provide(request)

    def provide(self, request: RequestState) -> None:
        """Blocks for what is known, and perhaps some more, as a request has that just boarded."""
        while len(request.blocks) * SIZE < len(request.tokens) or self.rng.random() < 0.1:
            request.blocks.append(self.rng.randint(1, 99))
            if self.slotted:
                request.slots.append(self.rng.randint(1, 99))

    def go_on(self) -> None:
        for request in self.seated:
            request.tokens.append(self.rng.randrange(90))
            self.provide(request)

    def leave(self) -> None:
        if len(self.seated) > 1:
            self.seated.remove(self.rng.choice(self.seated))

    def change_places(self) -> None:
        self.rng.shuffle(self.seated)

    def replace(self) -> None:
        self.leave()
        self.join()

    def move_a_block(self) -> None:
        request = self.rng.choice(self.seated)
        held = self.rng.choice([request.blocks, request.slots]) if self.slotted else request.blocks
        held[self.rng.randrange(len(held))] = self.rng.randint(1, 99)

    def give_back(self) -> None:
        """What lies behind the window of the last positions is gone."""
        for request in self.seated:
            for place in range(max(0, len(request.tokens) - WINDOW - 3) // SIZE):
                if self.slotted:
                    request.slots[place] = 0
                else:
                    request.blocks[place] = 0

    def preempt(self) -> None:
        """It boards again in other blocks, with everything computed that was."""
        request = self.rng.choice(self.seated)
        request.start_over()
        self.provide(request)

    def rows(self, kind: str) -> list[Row]:
        rows = [Row(request, len(request.tokens) - 1, 1, True) for request in self.seated]
        at = self.rng.randrange(len(rows))
        request = rows[at].request
        if kind == "chunk":
            rows[at] = Row(request, max(0, len(request.tokens) - 3), min(3, len(request.tokens)), True)
        elif kind == "draft":
            room = len(request.blocks) * SIZE - len(request.tokens)
            rows[at] = Row(request, rows[at].start, 1 + min(2, room), True, tuple(range(min(2, room))))
        elif kind == "prompt" and 0 not in request.slots:  # the last position of a prompt, or one in its midst
            rows[at] = Row(request, self.rng.randrange(request.prompt_len), 1, self.rng.random() < 0.5)
        elif kind == "silent":
            rows[at] = Row(request, rows[at].start, 1, False)
        return rows


def the_same(found: Batch, wanted: Batch) -> None:
    assert (found.sampling, found.scoring, found.spans) == (wanted.sampling, wanted.scoring, wanted.spans)
    pairs = list(zip(found.inputs.tensors(), wanted.inputs.tensors(), strict=True))
    assert len(pairs) > 6
    for ours, fresh in pairs:
        assert ours.dtype == fresh.dtype and ours.shape == fresh.shape and ours.is_contiguous() and torch.equal(ours, fresh)


HAPPENINGS = [Riders.leave, Riders.join, Riders.change_places, Riders.replace, Riders.move_a_block, Riders.give_back, Riders.preempt]
KINDS = ["chunk", "draft", "prompt", "silent"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.booleans())
def test_every_step_is_what_a_builder_makes_anew(seed: int, slotted: bool) -> None:
    riders = Riders(seed, slotted)
    rng = riders.rng
    builder = TileBuilder(SIZE, (0, WINDOW), 3, slotted)
    for _ in range(40):
        if rng.random() < 0.9:  # else the same step again, as when it failed
            riders.go_on()
        if rng.random() < 0.4:
            rng.choice(HAPPENINGS)(riders)
        rows = riders.rows(rng.choice(KINDS) if rng.random() < 0.15 else "")
        the_same(builder.build(rows), TileBuilder(SIZE, (0, WINDOW), 3, slotted).build(rows))


def test_a_step_like_the_last_takes_no_tensor_more() -> None:
    """Nor does one whose blocks are others. The first that needs a wider table does, and the one behind it, which makes what is kept."""
    riders = Riders(3, False)
    riders.seated = riders.seated[:1]
    riders.seated[0].tokens = list(range(4 * SIZE))
    riders.provide(riders.seated[0])
    builder = TileBuilder(SIZE, (0,), 3)
    kept: list[bool] = []
    before = builder.build(riders.rows(""))
    for happens in (*[Riders.go_on] * 3, Riders.preempt, Riders.go_on, Riders.go_on):
        happens(riders)
        step = builder.build(riders.rows(""))
        kept.append(step is before)
        before = step
    assert kept == [False, False, True, True, True, False]


@pytest.mark.parametrize("slotted", [False, True])
def test_a_row_that_lacks_something_is_refused_as_ever(slotted: bool) -> None:
    riders = Riders(5, slotted)
    builder = TileBuilder(SIZE, (0, WINDOW), 3, slotted)
    builder.build(riders.rows(""))
    request = riders.seated[-1]
    if slotted:
        whole, request.slots[-1] = request.slots[-1], 0
        request.slots[len(request.tokens) // SIZE :] = [0]
    else:
        whole = request.blocks.pop()
        del request.blocks[(len(request.tokens) - 1) // SIZE :]
    with pytest.raises(ValueError, match="no slot" if slotted else "need"):
        builder.build(riders.rows(""))
    while len(request.slots if slotted else request.blocks) * SIZE < len(request.tokens):
        (request.slots if slotted else request.blocks).append(whole)
    if slotted:
        request.slots[:] = [slot or whole for slot in request.slots]
    the_same(builder.build(riders.rows("")), TileBuilder(SIZE, (0, WINDOW), 3, slotted).build(riders.rows("")))
