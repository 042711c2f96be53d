"""All that the views draw, as rows of plain values: what the table twin shows, and what is exported as JSON. No Qt widgets, no state.

Each cell is the value itself (it sorts and exports as what it is); `shown` turns it into words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from app.dashboard import wording
from app.dashboard.comparison import ORDER, Comparison
from app.dashboard.kv_cells import KvCells
from app.dashboard.untold import owners_told
from app.dashboard.wording import translate
from app.numbers import number, said
from engine import OWNER_CACHED, OWNER_FREE, OWNER_SEAT0, OWNER_SHARED, Counters, Rates, Snapshot, StepRecord

Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table: column titles and rows of the same length."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


def shown(value: Value) -> str:
    """A cell in words."""
    if value is None:
        return wording.DASH
    if isinstance(value, float):
        return number(value, ",.3f")
    return wording.count(value) if isinstance(value, int) else value


def seat_sheet(snapshot: Snapshot) -> Sheet:
    rows: list[tuple[Value, ...]] = []
    for seat, view in enumerate(snapshot.seats, start=1):
        if view is None:
            rows.append((seat, translate("Dashboard", "empty"), "", *([None] * 10)))
            continue
        left = max(0, view.max_output_tokens - view.output_tokens) if view.max_output_tokens else None
        rows.append(
            (
                seat,
                view.title,
                wording.phase(view.phase),
                view.prompt_tokens,
                view.computed_tokens,
                view.output_tokens,
                left,
                view.blocks,
                view.tok_s,
                wording.priority(view.priority),
                view.cached_tokens,
                view.preemptions,
                view.boarded_step,
            )
        )
    return Sheet(
        (
            translate("Dashboard", "Seat"),
            translate("Dashboard", "Chat"),
            translate("Dashboard", "Phase"),
            translate("Dashboard", "Prompt"),
            translate("Dashboard", "Computed"),
            translate("Dashboard", "Answer"),
            translate("Dashboard", "At most left"),
            translate("Dashboard", "Blocks"),
            translate("Dashboard", "tok/s"),
            translate("Dashboard", "Priority"),
            translate("Dashboard", "From cache"),
            translate("Dashboard", "Stepped aside"),
            translate("Dashboard", "Boarded at"),
        ),
        tuple(rows),
    )


def queue_sheet(snapshot: Snapshot) -> Sheet:
    rows = tuple(
        (
            view.place,
            view.title,
            wording.wait_reason(view.reason),
            said(view.detail),
            wording.priority(view.priority),
            view.prompt_tokens,
            view.needed_blocks,
            view.waited_s,
            view.expected_start_s,
        )
        for view in snapshot.line
    )
    return Sheet(
        (
            translate("Dashboard", "Place"),
            translate("Dashboard", "Chat"),
            translate("Dashboard", "Reason"),
            translate("Dashboard", "In numbers"),
            translate("Dashboard", "Priority"),
            translate("Dashboard", "Prompt"),
            translate("Dashboard", "Blocks needed"),
            translate("Dashboard", "Waited s"),
            translate("Dashboard", "Expected in s"),
        ),
        rows,
    )


def block_sheet(snapshot: Snapshot, cells: KvCells) -> Sheet:
    """Blocks by owner; the rows sum to the pool."""
    plain = {
        OWNER_FREE: translate("Dashboard", "free"),
        OWNER_CACHED: translate("Dashboard", "cached"),
        OWNER_SHARED: translate("Dashboard", "shared") if owners_told(snapshot) else translate("Dashboard", "in use"),
    }
    rows: list[tuple[Value, ...]] = []
    for code, blocks in enumerate(cells.counts.tolist()):
        if code >= OWNER_SEAT0 and not blocks:
            continue
        seat = code - OWNER_SEAT0
        view = snapshot.seats[seat] if 0 <= seat < len(snapshot.seats) else None
        owner = plain.get(code) or translate("Dashboard", "seat {0}").format(seat + 1)
        rows.append((owner, view.title if view else "", blocks, 100 * blocks / max(1, snapshot.kv.total), blocks * snapshot.kv.block_size))
    return Sheet(
        (
            translate("Dashboard", "Owner"),
            translate("Dashboard", "Chat"),
            translate("Dashboard", "Blocks"),
            translate("Dashboard", "Share %"),
            translate("Dashboard", "Positions"),
        ),
        tuple(rows),
    )


def step_sheet(records: Sequence[StepRecord]) -> Sheet:
    """The timeline, the newest step first."""
    rows = []
    for record in reversed(records):
        taken = len(record.rows) + len(record.held)
        empty = max(0, record.seats_total - taken)
        rows.append(
            (
                record.step,
                len(record.rows),
                len(record.held),
                empty,
                empty if record.waiting else 0,
                record.waiting,
                sum(row.tokens for row in record.rows),
                record.duration,
                record.free_blocks,
                len(record.decisions),
            )
        )
    return Sheet(
        (
            translate("Dashboard", "Step"),
            translate("Dashboard", "Rode"),
            translate("Dashboard", "Held"),
            translate("Dashboard", "Empty seats"),
            translate("Dashboard", "Empty while somebody waited"),
            translate("Dashboard", "Waiting"),
            translate("Dashboard", "Positions"),
            translate("Dashboard", "Seconds"),
            translate("Dashboard", "Free blocks"),
            translate("Dashboard", "Decisions"),
        ),
        tuple(rows),
    )


def figure_sheet(snapshot: Snapshot) -> Sheet:
    """Every other number of the snapshot, by its own name."""
    rows: list[tuple[Value, ...]] = [
        ("step", snapshot.step),
        ("time", snapshot.time),
        ("state", str(snapshot.state)),
        ("policy", str(snapshot.policy)),
        ("token_budget", snapshot.token_budget),
        ("waiting", snapshot.waiting),
    ]
    parts: tuple[tuple[str, Rates | Counters], ...] = (("rates", snapshot.rates), ("counters", snapshot.counters))
    for name, part in parts:
        rows += [(f"{name}.{field}", value) for field, value in part._asdict().items()]
    rows += [(f"model.{field.name}", getattr(snapshot.model, field.name)) for field in fields(snapshot.model)]
    for name in ("total", "free", "cached", "referenced", "block_size", "bytes_per_block", "slots", "slots_claimed"):
        rows.append((f"kv.{name}", getattr(snapshot.kv, name)))
    return Sheet((translate("Dashboard", "Name"), translate("Dashboard", "Value")), tuple(rows))


def compare_sheet(comparison: Comparison | None) -> Sheet:
    """Both policies on the same load, a figure a row. Before there is a comparison: one row that says how to make one."""
    columns = (translate("Dashboard", "Figure"), *(wording.policy(policy) for policy in ORDER))
    if comparison is None:
        return Sheet(columns, ((translate("Dashboard", "Nothing is compared yet: press Record, then Compare policies"), None, None),))
    rows: list[tuple[Value, ...]] = [(line.label, *line.values) for line in comparison.lines()]
    rows.append((translate("Dashboard", "Steps"), *(result.steps for result in comparison.results)))
    return Sheet(columns, tuple(rows))
