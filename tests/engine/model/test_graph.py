"""Recordings of plain functions: what is fixed in them, what is done once, and what they write to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from engine.model.graph import Recording, record, weights_of


def make_numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def make_recording(function: Callable[..., Any], *sizes: int, model: nn.Module | None = None, owners: Sequence[str] = ()) -> Recording:
    """Recorded from one [size, 8] tensor a size; `owners` are paths of modules in `model`."""
    weights = weights_of(model) if model is not None else {}
    own = {path: model.get_submodule(path) for path in owners} if model is not None else {}
    return record(function, own, weights, [(make_numbers(size, 8),) for size in sizes])


def kinds(recording: Recording) -> list[str]:
    return [node.kind() for node in recording._function.graph.nodes()]


def test_a_recording_serves_other_sizes() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor]:
        rows, columns = x.shape
        return (x.reshape(rows * 2, columns // 2).softmax(-1).view(rows, columns),)

    recording = make_recording(function, 3, 5)
    for rows in (1, 2, 3, 17):
        x = make_numbers(rows, 8)
        assert torch.equal(recording(x)[0], function(x)[0])


def test_sizes_that_never_change_cost_nothing() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x[:, : x.shape[1] // 2] * x.shape[0],)

    recording = make_recording(function, 3, 5)
    assert kinds(recording).count("aten::size") == 1  # rows; columns are known
    assert "aten::floor_divide" not in kinds(recording)


def test_one_example_is_refused() -> None:
    with pytest.raises(ValueError, match="one example"):
        make_recording(lambda x: (x,), 3)


def test_what_is_computed_from_inputs_alone_is_computed_once() -> None:
    def function(cache: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor]:
        total = cache
        for layer in range(3):
            cache.index_copy_(0, places[:, None].add(1).view(-1), torch.full((places.shape[0], 4), float(layer)))
            total = total + cache
        return (total,)

    examples = [(torch.zeros(9, 4), torch.arange(3)), (torch.zeros(11, 4), torch.arange(5))]
    recording = record(function, {}, {}, examples, mutable=1)
    assert kinds(recording).count("aten::unsqueeze") == 1
    ours, theirs = torch.zeros(8, 4), torch.zeros(8, 4)
    places = torch.tensor([2, 5])
    assert torch.equal(recording(ours, places)[0], function(theirs, places)[0])
    assert torch.equal(ours, theirs)
    assert ours[3, 0] == 2.0


def test_inputs_that_are_written_to_are_read_again() -> None:
    def function(numbers: torch.Tensor) -> tuple[torch.Tensor]:
        before = numbers[0] + 1
        numbers[0].mul_(3)
        after = numbers[0] + 1
        return (torch.cat((before[None], after[None])),)

    def make(rows: int) -> torch.Tensor:
        return torch.ones(rows, 2)

    for mutable in (0, 1):  # even when the caller did not say so
        recording = record(function, {}, {}, [(make(2),), (make(3),)], mutable)
        assert recording(make(4))[0].tolist() == [[2.0, 2.0], [4.0, 4.0]]


def test_needless_casts_and_slices_go_and_needed_ones_stay() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x.float()[:, None].to(torch.bfloat16).float() + x[:],)

    recording = make_recording(function, 3, 5)
    assert kinds(recording).count("aten::to") == 2
    assert kinds(recording).count("aten::slice") == 0
    x = make_numbers(4, 8)
    assert torch.equal(recording(x)[0], function(x)[0])


def test_a_cast_that_copies_stays() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x.to(torch.float32, copy=True).mul_(2.0),)

    recording = make_recording(function, 3, 5)
    x = make_numbers(4, 8)
    before = x.clone()
    assert torch.equal(recording(x)[0], before * 2)
    assert torch.equal(x, before)


def test_a_product_with_one_goes_unless_it_changes_the_dtype_or_is_written_to() -> None:
    one, two = torch.tensor(1.0), torch.tensor(2.0)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 1.0 + x * one, x.long() * 1.0, x * two

    def writes(x: torch.Tensor) -> tuple[torch.Tensor]:
        return ((x * 1.0).mul_(3.0),)

    recording, x = make_recording(function, 3, 5), make_numbers(4, 8)
    assert kinds(recording).count("aten::mul") == 2
    for mine, theirs in zip(recording(x), function(x), strict=True):
        assert mine.dtype == theirs.dtype and torch.equal(mine, theirs)
    before = x.clone()
    assert torch.equal(make_recording(writes, 3, 5)(x)[0], before * 3)
    assert torch.equal(x, before)


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.full((1,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class Scales(nn.Module):
    """One module that a recording owns, one that it does not, and a tensor that is no weight."""

    def __init__(self, extra: int = 1) -> None:
        super().__init__()
        self.owned, self.other = Scale(), Scale()
        self.extra = [torch.ones(extra)]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.other(self.owned(x)) + self.extra[0].sum(),)


def test_weights_are_shared_with_the_model() -> None:
    model = Scales()
    recording = make_recording(model, 3, 5, model=model, owners=["owned"])
    assert set(recording.names) == {"owned.factor", "other.factor"}
    x = make_numbers(2, 8)
    model.other.factor.fill_(4.0)
    model.owned.factor.fill_(8.0)
    assert torch.equal(recording(x)[0], x * 32.0 + 1.0)


def test_a_recording_is_kept_without_its_weights() -> None:
    model = Scales()
    recording = make_recording(model, 3, 5, model=model, owners=["owned"])
    assert recording.portable
    kept = recording.to_bytes()
    twin = Scales()
    twin.owned.factor.fill_(16.0)
    again = Recording.of_bytes(kept, weights_of(twin))
    x = make_numbers(4, 8)
    assert torch.equal(again(x)[0], x * 32.0 + 1.0)
    assert again.operations == recording.operations


def test_what_holds_numbers_of_a_model_is_not_kept() -> None:
    model = Scales(extra=1000)
    assert not make_recording(model, 3, 5, model=model, owners=["owned"]).portable


def test_what_is_damaged_or_foreign_is_told() -> None:
    model = Scales()
    recording = make_recording(model, 3, 5, model=model, owners=["owned"])
    kept = recording.to_bytes()
    with pytest.raises(KeyError):
        Recording.of_bytes(kept, {"owned.factor": model.owned.factor})
    with pytest.raises(RuntimeError):
        Recording.of_bytes(kept[:-100], weights_of(model))


def test_what_torch_cannot_record_is_raised() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (object(),)  # type: ignore[return-value]

    with pytest.raises(RuntimeError):
        make_recording(function, 3, 5)
