"""Which kernels read the cache: every candidate is tried on the GPU against the textbook, those that are right are timed, the fastest wins.

Owns the table of candidates, the trial and the choice, block size included. Tries nothing twice that took the process down the last time:
a fault in a kernel can cost the whole process its GPU, so a mark is left on the disk while one is being tried.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.model.cache import KVStore
from engine.model.cuda.cache import run_paged
from engine.model.cuda.paged import PackedChunks, PackedKeys, PagedBuilder, PagedIndex
from engine.model.cuda.readers import FlashAttention3, FlashInfer, Gathered, Ours, PackedVarlen, Reader, Unfit, Varlen, use_flash
from engine.model.cuda.reference import Need, make_case, probe_cases
from engine.model.geometry import Geometry
from engine.model.rehearsal import made_up
from engine.scheduling.plan import Row

log = logging.getLogger(__name__)

SINGLES: tuple[type[Reader], ...] = (Ours, Varlen, FlashInfer, FlashAttention3, Gathered)
CHUNKS: tuple[type[PackedVarlen], ...] = (PackedVarlen,)
BLOCK_SIZES = (16, 256)
GRAIN = 1.3  # so much faster must large blocks be: beginnings of prompts are shared by whole blocks, and half of a last one is empty
TOLERANCE = {
    torch.float32: 1e-4,
    torch.float16: 4e-3,
    torch.bfloat16: 2e-2,
}  # of the largest result; an error of method is of the order of 1
TIMED_ROWS, TIMED_LENGTH = 8, 1024

Stopwatch = Callable[[Callable[[], Any]], float]


class Marks:
    """Remembers on the disk what is being tried; what a process did not come back from is not tried again until `forget`."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.lost: frozenset[str] = frozenset(self._read())

    def _read(self) -> list[str]:
        try:
            found = json.loads(self._file.read_text(encoding="utf-8")) if self._file else []
        except (OSError, ValueError):
            return []
        return [str(item) for item in found] if isinstance(found, list) else []

    def _write(self, marks: Sequence[str]) -> None:
        if self._file:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._file.write_text(json.dumps(sorted(marks)), encoding="utf-8")
            except OSError as error:
                log.info("what is tried on the GPU could not be noted in %s: %s", self._file, error)

    @contextmanager
    def trying(self, label: str) -> Iterator[None]:
        """The mark stays if the block does not end, or ends with a fault of the GPU itself."""
        self._write([*self.lost, label])
        yield
        self._write([*self.lost])

    def forget(self) -> None:
        self.lost = frozenset()
        self._write([])


def fault(kind: type[Reader] | type[PackedVarlen], need: Need, device: torch.device, marks: Marks) -> str | None:
    """Why `kind` cannot serve `need` on this device, or None. Raises torch.AcceleratorError when trying it cost the process its GPU."""
    if kind.label in marks.lost:
        return "the process did not come back from trying it"
    try:
        with marks.trying(kind.label):
            return _try(kind, need, device)
    except torch.AcceleratorError:
        raise
    except Unfit as reason:
        return str(reason)


def _try(kind: type[Reader] | type[PackedVarlen], need: Need, device: torch.device) -> str | None:
    decode, prefill = (case.on(device) for case in probe_cases(need))
    try:
        reader = kind(need, device)
        if isinstance(reader, Reader):
            case = decode
            got = reader.read(case.query, case.keys, case.values, case.index, case.sinks)
        else:
            case = prefill
            got = reader.read(case.query, case.keys, case.values, case.chunks, case.chunks.keys[0], case.sinks)
        found = got.double().cpu()
    except (Unfit, torch.AcceleratorError):
        raise
    except Exception as reason:  # whatever a package of any version does with arguments that it does not like
        return (str(reason).strip().splitlines() or [type(reason).__name__])[0][:200]
    if found.shape != case.want.shape:
        return f"its result has the shape {tuple(found.shape)}, not {tuple(case.want.shape)}"
    worst = float((found - case.want).abs().max() / case.want.abs().max())
    return None if worst <= TOLERANCE[need.dtype] else f"its result is off by {worst:.1e}"


# ------------------------------------------------------------------------------------------------------------- choosing


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one candidate for one need: a fault, or a time (None where it was not timed)."""

    label: str
    need: Need
    fault: str | None
    seconds: float | None = None


class Choice:
    """The kernels of a lane; see `cache.Readers`.

    Attributes:
        block_size: that the cache must have.
        packed: whether chunks are read packed.
        fixed: whether all readers of single positions may be captured.
        verdicts: what was tried.
    """

    def __init__(
        self, block_size: int, singles: dict[Need, Reader], packed: dict[Need, PackedVarlen] | None, verdicts: Sequence[Verdict] = ()
    ) -> None:
        self.block_size = block_size
        self.packed = packed is not None
        self.fixed = all(reader.fixed for reader in singles.values())
        self.verdicts = tuple(verdicts)
        self._singles = singles
        self._packed = packed or {}

    @property
    def words(self) -> str:
        names = sorted({reader.label for reader in self._singles.values()} | {reader.label for reader in self._packed.values()})
        return f"blocks of {self.block_size}, read by {', '.join(names)}"

    def singles(
        self, query: Tensor, keys: Tensor, values: Tensor, index: PagedIndex, scale: float, softcap: float | None, sinks: Tensor | None
    ) -> Tensor:
        reader = self._singles[Need.of(query, keys, values, index.window, scale, softcap, sinks)]
        return reader.read(query, keys, values, index, sinks)

    def chunks(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        chunks: PackedChunks,
        seen: PackedKeys,
        scale: float,
        softcap: float | None,
        sinks: Tensor | None,
    ) -> Tensor:
        reader = self._packed[Need.of(query, keys, values, seen.window, scale, softcap, sinks)]
        return reader.read(query, keys, values, chunks, seen, sinks)


def choose(
    needs: Sequence[Need],
    device: torch.device,
    stopwatch: Stopwatch,
    marks: Marks,
    block_size: int | None = None,
    singles: Sequence[type[Reader]] = SINGLES,
    chunks: Sequence[type[PackedVarlen]] = CHUNKS,
) -> Choice | None:
    """The fastest of those that are right, for every need; None where one need has none. `block_size` fixes it."""
    verdicts: list[Verdict] = []
    best: tuple[float, int, dict[Need, Reader]] | None = None
    for size in (block_size,) if block_size else BLOCK_SIZES:
        chosen: dict[Need, Reader] = {}
        total = 0.0
        for need in (replace(need, block_size=size) for need in needs):
            right: list[tuple[float, Reader]] = []
            for kind in singles:
                wrong = fault(kind, need, device, marks)
                seconds = None if wrong else _time(kind(need, device), device, stopwatch)
                verdicts.append(Verdict(kind.label, need, wrong, seconds))
                if seconds is not None:
                    right.append((seconds, kind(need, device)))
            if right:
                seconds, chosen[need] = min(right, key=lambda item: item[0])
                total += seconds
        price = total * (GRAIN if size > BLOCK_SIZES[0] and block_size is None else 1.0)
        if len(chosen) == len(set(needs)) and (best is None or price < best[0]):
            best = price, size, chosen
    if best is None:
        return None
    use_flash("FA3" if any(isinstance(reader, FlashAttention3) for reader in best[2].values()) else None)
    packed: dict[Need, PackedVarlen] | None = {}
    for need in best[2]:
        kind_of_chunks: type[PackedVarlen] | None = None
        for candidate in chunks:
            wrong = fault(candidate, need, device, marks)
            verdicts.append(Verdict(candidate.label, need, wrong))
            kind_of_chunks = kind_of_chunks or (None if wrong else candidate)
        if packed is not None:
            packed = None if kind_of_chunks is None else {**packed, need: kind_of_chunks(need, device)}
    return Choice(best[1], best[2], packed, verdicts)


def _time(reader: Reader, device: torch.device, stopwatch: Stopwatch) -> float:
    case = make_case(reader.need, [TIMED_LENGTH + 7 * row for row in range(TIMED_ROWS)], [1] * TIMED_ROWS).on(device)
    return stopwatch(lambda: reader.read(case.query, case.keys, case.values, case.index, case.sinks))


def cuda_stopwatch(action: Callable[[], Any], warm_ups: int = 3, runs: int = 20) -> float:
    """Seconds an `action` takes on the current GPU, started one after another."""
    for _ in range(warm_ups):
        action()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(runs):
        action()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000 / runs


# --------------------------------------------------------------------------------------------------------------- needs


class _Notes:
    """Stands in for the readers and notes what they would be asked."""

    def __init__(self) -> None:
        self.needs: dict[Need, None] = {}

    def singles(
        self, query: Tensor, keys: Tensor, values: Tensor, index: PagedIndex, scale: float, softcap: float | None, sinks: Tensor | None
    ) -> Tensor:
        need = Need.of(query, keys, values, index.window, scale, softcap, sinks)
        self.needs[need] = None
        return Gathered(need, query.device).read(query, keys, values, index, sinks)

    def chunks(self, *arguments: Any) -> Tensor:
        raise AssertionError("a single position has no chunks")


def needs_of(model: Any, geometry: Geometry) -> tuple[Need, ...]:
    """What the layers of `model` ask, found out by one made-up step of one position."""
    store = KVStore(geometry, 1, BLOCK_SIZES[0])
    request = made_up("made up", [0], [1])
    notes = _Notes()
    inputs = PagedBuilder(BLOCK_SIZES[0], geometry.windows, packed=False).build([Row(request, 0, 1, True)]).inputs
    with torch.inference_mode():
        run_paged(model, geometry, store.keys, store.values, inputs.to(next(model.parameters()).device), notes)
    return tuple(notes.needs)
