"""The form of a program, as program.c reads it: orders, the numbers they work on, and where these lie.

Owns the arena's layout. Knows nothing of graphs.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

ADD, NORM, ROTATE, STORE, FINITE, PACK, LINEAR, ATTEND = range(8)
ROWS, HEADS, TURNED, BOOLS = range(4)  # the last is of results alone: a truth a row
ALIGNED = 16  # floats
WORDS = 32  # of an order
_PLACES, _NUMBERS, _CONSTANTS = 2, 18, 28  # where they begin among these


@dataclass(eq=False, slots=True)
class Buffer:
    """Numbers of every row.

    Attributes:
        width: floats a row; 0 for a tensor that comes in and holds no rows.
        external: the name of the tensor that comes in; "" for what the program makes.
        maker: who made it, for whoever asks.
        shape: as what it goes out: the form, heads, and the size of a head.
        start: its place in the arena.
        output: its number among the results, -1 if it stays inside.
        last: the last stage that reads or writes it.
    """

    width: int
    external: str = ""
    maker: Any = None
    shape: tuple[int, int, int] = (ROWS, 1, 0)
    start: int = 0
    output: int = -1
    last: int = -1


@dataclass(frozen=True, slots=True)
class Val:
    """Columns of a buffer, looked at as ROWS [1, T, width], HEADS [1, T, heads, size] or TURNED [1, heads, T, size]."""

    buffer: Buffer
    offset: int
    width: int
    form: int = ROWS
    size: int = 0

    @property
    def heads(self) -> int:
        return self.width // self.size


@dataclass(slots=True)
class Order:
    """One thing to do.

    Attributes:
        stage: orders of one stage are done together, a few rows after the others.
        places: what it works on.
        numbers: whole ones, fractions, or the names of tensors that come in.
        constants: weights; None or one without elements is none.
    """

    kind: int
    stage: int
    places: list[Val | None]
    numbers: list[int | float | str]
    constants: list[torch.Tensor | None] = field(default_factory=list)


class Program:
    """Orders, one after another.

    Attributes:
        externals: the tensors that come in, by name.
    """

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.externals: dict[str, Buffer] = {}
        self._held: tuple[np.ndarray, ...] = ()

    def add(
        self,
        kind: int,
        places: Sequence[Val | None],
        numbers: Sequence[int | float | str],
        constants: Sequence[torch.Tensor | None] = (),
    ) -> None:
        stage = self._next_stage(kind)
        for val in places:
            if val is not None:
                val.buffer.last = max(val.buffer.last, stage)
        self.orders.append(Order(kind, stage, list(places), list(numbers), list(constants)))

    def _next_stage(self, kind: int) -> int:
        """What is done a row at a time shares a stage with what came before, up to the packing of rows for a product."""
        if not self.orders:
            return 0
        last = self.orders[-1]
        return last.stage + (kind in (LINEAR, ATTEND) or last.kind in (PACK, LINEAR, ATTEND))

    def encode(self, outputs: Sequence[Buffer]) -> int:
        """The address of the program as program.c reads it; it lives as long as this object."""
        for number, buffer in enumerate(outputs):
            buffer.output = number
        floats = self._arrange()
        names = list(self.externals)
        words = np.zeros((len(self.orders), WORDS), dtype=np.int64)
        for row, order in zip(words, self.orders, strict=True):
            row[0], row[1] = order.kind, order.stage
            for number, val in enumerate(order.places):
                if val is not None:
                    row[_PLACES + 4 * number : _PLACES + 4 * number + 4] = _place(val, names)
            for number, item in enumerate(order.numbers):
                whole = names.index(item) if isinstance(item, str) else item
                row[_NUMBERS + number] = struct.unpack("q", struct.pack("d", whole))[0] if isinstance(whole, float) else whole
            for number, tensor in enumerate(order.constants):
                row[_CONSTANTS + number] = tensor.data_ptr() if tensor is not None and tensor.numel() else 0
        widths = np.array([buffer.width for buffer in self.externals.values()], dtype=np.int64)
        shapes = np.array([(*buffer.shape, 0) for buffer in outputs], dtype=np.int64)
        first = int(np.flatnonzero(widths)[0])
        numbers = [len(self.orders), self.orders[-1].stage + 1, len(names), len(outputs), floats, first]
        head = np.array([*numbers, *(array.ctypes.data for array in (widths, shapes, words))], dtype=np.int64)
        self._held = head, widths, shapes, words
        return int(head.ctypes.data)

    def _arrange(self) -> int:
        """Places in the arena: a buffer's are free again from the stage on that follows the last to use it. Returns the floats a row."""
        taken: list[Buffer] = []
        most = 0
        seen: set[int] = set()
        for order in self.orders:
            taken = [buffer for buffer in taken if buffer.last >= order.stage]
            for val in order.places:
                if val is None or id(val.buffer) in seen or val.buffer.external or val.buffer.output >= 0:
                    continue
                seen.add(id(val.buffer))
                val.buffer.start = 0
                for other in sorted(taken, key=lambda buffer: buffer.start):
                    if val.buffer.start + val.buffer.width <= other.start:
                        break
                    val.buffer.start = max(val.buffer.start, _end(other))
                taken.append(val.buffer)
                most = max(most, _end(val.buffer))
        return most


def _end(buffer: Buffer) -> int:
    return buffer.start + -(-buffer.width // ALIGNED) * ALIGNED


def _place(val: Val, names: list[str]) -> tuple[int, int, int, int]:
    buffer = val.buffer
    external = names.index(buffer.external) if buffer.external else len(names) + buffer.output if buffer.output >= 0 else -1
    return external, buffer.start, buffer.width, val.offset
