"""Numbers on their way to a device and back; and a sampler that asks the device for nothing before its tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from engine.model import sampler as sampler_module
from engine.model.sampler import Sampler
from engine.model.upload import Download, put, upload
from engine.scheduling.plan import Row
from engine.types import SamplingParams
from tests.engine.model.tiny import make_request

CPU = torch.device("cpu")

# Operations for whose result the host must wait: a number, or a shape that depends on numbers.
WAITS = {"_local_scalar_dense", "item", "nonzero", "is_nonzero", "equal", "masked_select", "_unique2", "unique_dim", "allclose"}


class Watch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        masks = [index for index in args[1] if index is not None and index.dtype == torch.bool] if name.startswith("index_put") else []
        if name in WAITS or masks:
            self.waits.append(name)
        return function(*args, **(kwargs or {}))


def test_the_watch_sees_a_wait() -> None:
    with Watch() as watch:
        bool(torch.ones(3).all())
        torch.ones(3)[torch.ones(3) > 0] = 2.0
    assert watch.waits == ["_local_scalar_dense", "index_put_"]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.8, top_p=0.9, top_k=20, min_p=0.05),
        SamplingParams(temperature=1.0, top_p=1.0, top_k=0),
        SamplingParams(repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.1, logit_bias=((3, 2.0),), min_tokens=9),
    ],
)
def test_the_sampler_waits_for_nothing(params: SamplingParams, monkeypatch: pytest.MonkeyPatch) -> None:
    """And whatever it sends to the device goes through `upload`, which does not wait either."""
    sent: list[torch.Tensor] = []

    def noted(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        sent.append(tensor)
        return upload(tensor, device)

    monkeypatch.setattr(sampler_module, "upload", noted)
    monkeypatch.setattr(sampler_module, "put", lambda values, device, dtype=None: noted(torch.tensor(values, dtype=dtype), device))
    rows = []
    for number, each in enumerate((params, SamplingParams(temperature=0.7, top_p=0.95), SamplingParams(temperature=0.0), params)):
        request = make_request([5, 6, 7, 8], each, seed=number, name=str(number))
        rows.append(Row(request, 3, 1, True))
    logits = torch.randn(4, 2048, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode(), Watch() as watch:
        drawn = Sampler([2]).sample(logits.clone(), rows)
    assert watch.waits == []
    assert sent and all(item.error is None for item in drawn)
    assert [item.token for item in drawn] == [item.token for item in Sampler([2]).sample(logits.clone(), rows)]


def test_on_the_cpu_nothing_is_copied() -> None:
    tensor = torch.arange(3)
    assert upload(tensor, CPU) is tensor and Download(tensor).get() is tensor
    assert put([[1], [2]], CPU).shape == (2, 1) and put([1.5], CPU, torch.float64).dtype == torch.float64


def test_to_another_device() -> None:
    assert upload(torch.arange(3), torch.device("meta")).device.type == "meta"
