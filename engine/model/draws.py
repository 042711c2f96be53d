"""What a draw depends on besides the logits, as numbers; and the draws by our own kernel, whose settings stay while the riders do.

Between two steps the weights push all else out of the processor's caches. So a step in which the same requests are drawn for as in the last
one must touch little: the settings are kept, and the noise's keys, which tell positions, are written over. Owns those, and no logits.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from engine.scheduling.plan import Row
from engine.scheduling.request import RequestState

_MASK64 = (1 << 64) - 1


def settings_of(rows: Sequence[Row]) -> np.ndarray:
    """[R, 4] float32: temperature, 0 for greedy; top-p; log of min-p; top-k, 0 for none."""
    chosen: list[tuple[float, float, float, int]] = []
    for row in rows:
        params = row.request.params
        if params.greedy:
            chosen.append((0.0, 1.0, -math.inf, 0))
        else:
            least = math.log(params.min_p) if params.min_p else -math.inf
            chosen.append((max(params.temperature, 1e-5), params.top_p, least, params.top_k))
    return np.array(chosen, dtype=np.float32)


def keys_of(rows: Sequence[Row]) -> array[int]:
    """Two unsigned 32-bit words a row, the keys of the noise: of the position that is drawn, and 0 for greedy rows. A plain array: numpy's
    way to make one takes 60 us between two steps."""
    words: list[int] = []
    for row in rows:
        words += (0, 0) if row.request.params.greedy else noise_key(row.request.seed, row.start + row.count)
    return array("I", words)


def as_tensor(keys: array[int]) -> torch.Tensor:
    """The same memory as [R, 2] int32."""
    return torch.frombuffer(keys, dtype=torch.int32).view(-1, 2)


def noise_key(seed: int, position: int) -> tuple[int, int]:
    """Two 32-bit words from (seed, position), well mixed (SplitMix64's finaliser; Steele et al., 2014)."""
    word = (seed + 0x9E3779B97F4A7C15 * (position + 1)) & _MASK64
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK64
    word ^= word >> 31
    return word & 0xFFFFFFFF, word >> 32


class NativeDraws:
    """Draws by `native/draw.c`: a sixth of the time that torch's operations take for eight rows that cut, and none is ever drawn again."""

    def __init__(self) -> None:
        self._riders: list[RequestState] = []
        self._settings = torch.empty(0)
        self._keys = torch.empty(0)
        self._key_words = array("I")
        self._greedy = False  # all of them
        self._draw: Any = None  # found when it is first called, as the library that holds it may not be there

    def forget(self) -> None:
        """One of the riders is no more."""
        self._riders = []

    def __call__(self, logits: torch.Tensor, rows: Sequence[Row]) -> list[int]:
        """Tokens for `logits` [R, vocabulary] float32; -1 where they are not numbers."""
        riders = [row.request for row in rows]
        if riders != self._riders:
            self._take(rows, riders)
        elif not self._greedy:
            self._key_words[:] = keys_of(rows)
        tokens: list[int] = self._draw(logits.contiguous(), self._settings, self._keys).tolist()
        return tokens

    def _take(self, rows: Sequence[Row], riders: list[RequestState]) -> None:
        self._key_words = keys_of(rows)
        self._settings, self._keys = torch.from_numpy(settings_of(rows)), as_tensor(self._key_words)
        self._greedy = all(rider.params.greedy for rider in riders)
        self._draw = torch.ops.omnibus.draw.default  # by its name alone it would be looked up in each step
        self._riders = riders
