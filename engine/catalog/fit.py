"""Does a model fit this machine? An answer with numbers, from the files' headers, before anything is loaded.

Owns the verdict and the suggestion of seats and context. The arithmetic is `engine.model.demand`'s, so that what is promised here is what
the engine plans with. Imports torch when asked, since which weights will really be loaded depends on the kernels this machine can run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from engine.types import EngineConfig

MIB = 1 << 20
COMFORT = 0.85  # of the free memory; more than that is tight
CONTEXT_COMMON = 4096  # suggested at first; conversations rarely grow longer
SEATS_MOST = 16
CONTEXT_LEAST = 256


class Verdict(StrEnum):
    YES = "yes"
    TIGHT = "tight"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Machine:
    """What counts here. `precision` is the class that weights will have by default; sizes in bytes. `tiles`: our own CPU kernels run here,
    which keep the cache in 16 bits. `eight`: the cache is asked for in 8 bits. `grids`: weights that lie on a 4-bit grid stay
    there. `slots`: nothing that was asked for keeps windowed layers from having them (see `engine/model/slots.py`)."""

    device: str
    precision: str
    free: int
    reserve: int
    block_size: int
    tiles: bool = False
    eight: bool = False
    grids: bool = False
    slots: bool = True


@dataclass(frozen=True, slots=True)
class Fit:
    """Bytes, and what they mean here.

    Attributes:
        work: the largest step, the tokenizer, and what the libraries bring in with a first model.
        scoring: what comes on top while somebody asks how likely a prompt is; not in `total`.
        loading: the most that is held while loading; it may be more than all the rest.
        reserve: left alone for the window and the system; not in `total`.
        context: positions a request, at most the model's own.
        suggested: seats and context that this machine has room for; None if not even one short chat fits.
    """

    verdict: Verdict
    weights: int
    kv: int
    work: int
    scoring: int
    loading: int
    reserve: int
    free: int
    device: str
    precision: str
    seats: int
    context: int
    suggested: tuple[int, int] | None

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.work

    @property
    def most(self) -> int:
        """At any moment."""
        return max(self.total + self.scoring, self.loading)

    @property
    def sentence(self) -> str:
        """The verdict for a person, with the numbers."""
        need, have = _size(self.most + self.reserve), _size(self.free)
        place = "memory" if self.device == "cpu" else f"memory on {self.device}"
        if self.verdict is Verdict.YES:
            return f"Fits: {_size(self.total)} for {self.seats} × {self.context:,} positions, {have} of {place} free."
        if self.verdict is Verdict.TIGHT:
            return f"Tight: it needs {need} of the {have} of {place} that are free."
        why = " while it loads" if self.most == self.loading else ""
        return f"Does not fit: it needs {need}{why}, and {have} of {place} are free."

    def as_json(self) -> dict[str, object]:
        """The numbers as programs read them, in MiB."""
        sizes = {"weights_mib": self.weights, "kv_mib": self.kv, "work_mib": self.work, "total_mib": self.total}
        return {"fits": str(self.verdict)} | {name: round(size / MIB, 1) for name, size in sizes.items()}


def this_machine(device: str = "auto", dtype: str = "auto", kv_class: str = "auto") -> Machine:
    """What loading with these settings would find. Takes seconds the first time, for the import of torch.

    Raises:
        ModelError: "no_device", "bad_dtype".
    """
    from engine.model.libraries import LIBRARIES

    with LIBRARIES:
        return replace(_look_at_machine(device, dtype), eight=kv_class == "8-bit")


def _look_at_machine(device: str, dtype: str) -> Machine:
    import torch

    from engine.model.devices import choose_device, choose_dtype
    from engine.model.lane import PRECISION
    from engine.model.linear import choose, keeps_grids
    from engine.model.memory import BLOCK_CPU, BLOCK_OTHER, RESERVE_DEVICE, RESERVE_RAM, free_bytes
    from engine.model.native import library

    device = choose_device(device)
    free = sum(free_bytes(torch.device(name)) for name in device.split(","))
    if device != "cpu":
        precision = str(choose_dtype(dtype, device)).removeprefix("torch.")
        return Machine(device, precision, free, RESERVE_DEVICE + free // 20, BLOCK_OTHER)
    asked = PRECISION.get(dtype, "auto")
    precision = "4-bit" if asked == "4-bit" else choose(asked)[0].precision
    grids = asked == "auto" and keeps_grids()
    return Machine(device, precision, free, RESERVE_RAM, BLOCK_CPU, tiles=library.fault() is None, grids=grids)


def fit(path: Path, machine: Machine, seats: int | None = None, context: int | None = None) -> Fit:
    """How a model folder or GGUF file would fit. What is not given is what this machine is suggested.

    Raises:
        ModelError: the files are damaged, incomplete or of an unknown kind.
    """
    from engine.model.demand import Demand, demand
    from engine.model.packed.grid import GRID_SHARE
    from engine.model.packed.on_disk import share_on_grid
    from engine.model.shape import read_files, shape_of

    files = read_files(path)
    shape = shape_of(files)
    precision = "4-bit" if machine.grids and share_on_grid(files) >= GRID_SHARE else machine.precision
    own = shape.context or CONTEXT_COMMON

    def needed(seats: int, context: int) -> Demand:
        return demand(
            shape,
            device=machine.device,
            precision=precision,
            seats=seats,
            context=min(context, own),
            block_size=machine.block_size,
            token_budget=EngineConfig().token_budget,
            tiles=machine.tiles,
            eight=machine.eight,
            slots=machine.slots,
        )

    def verdict(need: Demand) -> Verdict:
        most = need.most + machine.reserve
        if most > machine.free:
            return Verdict.NO
        return Verdict.YES if most <= COMFORT * machine.free else Verdict.TIGHT

    suggested = next((pair for pair in _pairs(own) if verdict(needed(*pair)) is Verdict.YES), None)
    likely = suggested or (1, min(own, CONTEXT_COMMON))
    seats, context = seats or likely[0], min(context or likely[1], own)
    need = needed(seats, context)
    return Fit(
        verdict=verdict(need),
        weights=need.weights,
        kv=need.kv,
        work=need.work,
        scoring=need.scoring,
        loading=need.loading,
        reserve=machine.reserve,
        free=machine.free,
        device=machine.device,
        precision=precision,
        seats=seats,
        context=context,
        suggested=suggested,
    )


def _pairs(own: int) -> list[tuple[int, int]]:
    """(seats, context) to suggest, the most useful first: a common length for several, then fewer seats, then shorter chats."""
    contexts = [min(own, CONTEXT_COMMON)]
    while contexts[-1] > CONTEXT_LEAST:
        contexts.append(contexts[-1] // 2)
    several = [(seats, contexts[0]) for seats in (SEATS_MOST, 8, 4, 2)]
    return several + [(seats, length) for length in contexts[:2] for seats in (2, 1)] + [(1, length) for length in contexts[2:]]


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
