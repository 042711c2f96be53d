"""What the bus shows, as plain values: one cell a seat, one chip a waiting request; a pure function of the snapshot.

Must never paint, ask the engine, or remember an earlier snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.dashboard import wording
from app.dashboard.wording import translate
from engine import Phase, Priority, QueueView, SeatView, Snapshot, WaitReason


@dataclass(frozen=True, slots=True)
class SeatCell:
    """A taken seat. `level` (0..1) is how much of the KV it may come to need is in the cache; `lines` says it in words, longest first."""

    seat: int
    request_id: str
    chat_id: str
    title: str
    phase: Phase
    priority: Priority
    level: float
    lines: tuple[str, ...]
    marks: str
    tip: str

    @property
    def number(self) -> int:
        return self.seat + 1


@dataclass(frozen=True, slots=True)
class ChipCell:
    """A waiting request: its place, why it waits, and when it is expected to board ("" where nothing is known)."""

    place: int
    request_id: str
    chat_id: str
    title: str
    priority: Priority
    reason: WaitReason
    why: str
    when: str
    tip: str


@dataclass(frozen=True, slots=True)
class BusCells:
    """The whole bus: `seats` has one entry a seat (None: empty); `chips` the first of `waiting`."""

    seats: tuple[SeatCell | None, ...]
    chips: tuple[ChipCell, ...]
    waiting: int

    @property
    def taken(self) -> int:
        return sum(cell is not None for cell in self.seats)


EMPTY = BusCells((), (), 0)


def bus_cells(snapshot: Snapshot) -> BusCells:
    return BusCells(
        tuple(None if view is None else seat_cell(view) for view in snapshot.seats),
        tuple(chip_cell(view) for view in snapshot.queue),
        snapshot.waiting,
    )


def seat_cell(view: SeatView) -> SeatCell:
    bound = view.prompt_tokens + view.max_output_tokens
    level = min(1.0, view.computed_tokens / bound) if bound else 0.0
    return SeatCell(
        view.seat,
        view.request_id,
        view.chat_id,
        _title(view.title),
        view.phase,
        view.priority,
        level,
        _lines(view),
        _marks(view),
        _seat_tip(view),
    )


def chip_cell(view: QueueView) -> ChipCell:
    why = view.detail or wording.wait_reason(view.reason)
    when = wording.expected(view.expected_start_s)
    tip = [
        _title(view.title),
        translate("Dashboard", "Place {0}, {1}: {2}").format(view.place, wording.wait_reason(view.reason), why),
        translate("Dashboard", "{0} prompt tokens, needs {1} blocks, waiting for {2}").format(
            wording.count(view.prompt_tokens), wording.count(view.needed_blocks), wording.seconds(view.waited_s)
        ),
        translate("Dashboard", "Priority: {0}").format(wording.priority(view.priority)),
    ]
    return ChipCell(view.place, view.request_id, view.chat_id, _title(view.title), view.priority, view.reason, why, when, "\n".join(tip))


def _title(title: str) -> str:
    return " ".join(title.split()) or translate("Dashboard", "Untitled chat")


def _lines(view: SeatView) -> tuple[str, ...]:
    if view.phase is Phase.PREFILL:
        known, done = wording.count(view.known_tokens), wording.count(view.computed_tokens)
        return (
            translate("Dashboard", "reading {0} of {1} tokens").format(done, known),
            translate("Dashboard", "reading {0} of {1}").format(done, known),
            translate("Dashboard", "{0} of {1}").format(done, known),
        )
    out, left = wording.count(view.output_tokens), wording.count(max(0, view.max_output_tokens - view.output_tokens))
    short = translate("Dashboard", "{0}, {1} left").format(out, left)
    if not view.tok_s:
        return (translate("Dashboard", "{0} tokens, {1} left").format(out, left), short, out)
    speed = wording.rate(view.tok_s)
    return (
        translate("Dashboard", "{0} tokens, {1} left · {2} tok/s").format(out, left, speed),
        translate("Dashboard", "{0}, {1} left · {2} tok/s").format(out, left, speed),
        translate("Dashboard", "{0}, {1} left · {2}/s").format(out, left, speed),
        short,
        out,
    )


def _marks(view: SeatView) -> str:
    """Small signs after the title: what came from the prefix cache, and how often it had to step aside."""
    marks = []
    if view.cached_tokens:
        marks.append(f"⧉ {wording.count(view.cached_tokens)}")
    if view.preemptions:
        marks.append(f"↻ {view.preemptions}")
    return "  ".join(marks)


def _seat_tip(view: SeatView) -> str:
    lines = [
        translate("Dashboard", "Seat {0}: {1}").format(view.seat + 1, _title(view.title)),
        translate("Dashboard", "{0}; prompt {1}, answer {2} of at most {3} tokens").format(
            wording.phase(view.phase),
            wording.count(view.prompt_tokens),
            wording.count(view.output_tokens),
            wording.count(view.max_output_tokens),
        ),
        translate("Dashboard", "{0} blocks hold {1} positions").format(wording.count(view.blocks), wording.count(view.computed_tokens)),
    ]
    if view.cached_tokens:
        lines.append(translate("Dashboard", "⧉ {0} prompt tokens came from the prefix cache").format(wording.count(view.cached_tokens)))
    if view.preemptions:
        lines.append(translate("Dashboard", "↻ stepped aside {0} times for want of blocks").format(view.preemptions))
    lines.append(
        translate("Dashboard", "Boarded at step {0}; priority: {1}").format(
            wording.count(view.boarded_step), wording.priority(view.priority)
        )
    )
    return "\n".join(lines)
