"""What the bus shows, as plain values: one cell a seat, one chip a waiting request; a pure function of the snapshot.

Must never paint, ask the engine, or remember an earlier snapshot. Words are made when they are asked for, since most samples change
only a few of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.dashboard import wording
from app.dashboard.wording import translate
from app.numbers import said
from engine import Phase, Priority, QueueView, SeatView, Snapshot, WaitReason


@dataclass(frozen=True, slots=True)
class SeatCell:
    """A taken seat, in words and shares."""

    view: SeatView

    @property
    def seat(self) -> int:
        return self.view.seat

    @property
    def number(self) -> int:
        return self.view.seat + 1

    @property
    def request_id(self) -> str:
        return self.view.request_id

    @property
    def chat_id(self) -> str:
        return self.view.chat_id

    @property
    def priority(self) -> Priority:
        return self.view.priority

    @property
    def title(self) -> str:
        return one_line(self.view.title)

    @property
    def reading(self) -> bool:
        """Still computing its prompt (or, after it had to step aside, what it had)."""
        return self.view.phase is Phase.PREFILL

    @property
    def level(self) -> float:
        """How much of the KV that it may come to need is in the cache, 0..1."""
        bound = self.view.prompt_tokens + self.view.max_output_tokens
        return min(1.0, self.view.computed_tokens / bound) if bound else 0.0

    @property
    def marks(self) -> str:
        """Small signs after the title: how often it had to step aside, and its class where that is not an ordinary tab's."""
        aside = f"↻ {self.view.preemptions}" if self.view.preemptions else ""
        return "  ".join(sign for sign in (aside, wording.class_sign(self.view.priority)) if sign)

    @property
    def lines(self) -> tuple[str, ...]:
        """How far it is, longest wording first."""
        return tuple(self.wordings())

    def wordings(self) -> Iterator[str]:
        """The lines one by one: mostly the first fits, and the others need not be made."""
        view = self.view
        if not view.request_id:  # another client's, of whom a server tells only that they are there
            yield translate("Dashboard", "how far is not told")
            yield wording.DASH
            return
        if self.reading and not view.known_tokens:  # a server does not tell how much of the prompt it has read
            yield wording.phase(view.phase)
            yield wording.DASH
            return
        if self.reading:
            known, done = wording.count(view.known_tokens), wording.count(view.computed_tokens)
            yield translate("Dashboard", "reading {0} of {1} tokens").format(done, known)
            yield translate("Dashboard", "reading {0} of {1}").format(done, known)
            yield translate("Dashboard", "{0} of {1}").format(done, known)
            return
        if not view.max_output_tokens:
            if view.tok_s:
                speed = wording.rate(view.tok_s)
                yield translate("Dashboard", "{0} · {1} tok/s").format(wording.tokens(view.output_tokens), speed)
                yield translate("Dashboard", "{0} · {1} tok/s").format(wording.count(view.output_tokens), speed)
            yield wording.tokens(view.output_tokens)
            yield wording.count(view.output_tokens)
            return
        left = wording.count(max(0, view.max_output_tokens - view.output_tokens))
        if view.tok_s:
            speed = wording.rate(view.tok_s)
            yield translate("Dashboard", "{0}, {1} left · {2} tok/s").format(wording.tokens(view.output_tokens), left, speed)
            out = wording.count(view.output_tokens)
            yield translate("Dashboard", "{0}, {1} left · {2} tok/s").format(out, left, speed)
            yield translate("Dashboard", "{0}, {1} left · {2}/s").format(out, left, speed)
        else:
            yield translate("Dashboard", "{0}, {1} left").format(wording.tokens(view.output_tokens), left)
            out = wording.count(view.output_tokens)
        yield translate("Dashboard", "{0}, {1} left").format(out, left)
        yield out

    @property
    def tip(self) -> str:
        """All that is known, in lines."""
        view = self.view
        lines = [translate("Dashboard", "Seat {0}: {1}").format(self.number, self.title)]
        if not view.boarded_step:  # a server elsewhere: neither its steps nor its blocks are known
            lines.append(f"{wording.phase(view.phase)}; {next(self.wordings())}")
            lines.append(translate("Dashboard", "Priority: {0}").format(wording.priority(view.priority)))
            return "\n".join(lines)
        prompt, out, most = (wording.count(n) for n in (view.prompt_tokens, view.output_tokens, view.max_output_tokens))
        lines += [
            translate("Dashboard", "{0}; prompt {1}, answer {2} of at most {3} tokens").format(
                wording.phase(view.phase), prompt, out, most
            ),
            translate("Dashboard", "{0} blocks hold {1} positions").format(wording.count(view.blocks), wording.count(view.computed_tokens)),
        ]
        if view.cached_tokens:
            lines.append(translate("Dashboard", "{0} prompt tokens came from the prefix cache").format(wording.count(view.cached_tokens)))
        if view.preemptions:
            lines.append(translate("Dashboard", "↻ stepped aside {0} times for want of blocks").format(view.preemptions))
        boarded = translate("Dashboard", "Boarded at step {0}; priority: {1}")
        lines.append(boarded.format(wording.count(view.boarded_step), wording.priority(view.priority)))
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ChipCell:
    """A waiting request, in words."""

    view: QueueView

    @property
    def place(self) -> int:
        return self.view.place

    @property
    def request_id(self) -> str:
        return self.view.request_id

    @property
    def chat_id(self) -> str:
        return self.view.chat_id

    @property
    def priority(self) -> Priority:
        return self.view.priority

    @property
    def title(self) -> str:
        return one_line(self.view.title)

    @property
    def why(self) -> str:
        return said(self.view.detail) or wording.wait_reason(self.view.reason)

    @property
    def when(self) -> str:
        """When it is expected to board; "" where nothing is known, or nobody boards."""
        if self.view.reason is WaitReason.PAUSED:
            return ""
        return wording.expected(self.view.expected_start_s)

    @property
    def marks(self) -> str:
        """What stands at the right: its class where that is not an ordinary tab's, and when it is expected to board."""
        return " · ".join(sign for sign in (wording.class_sign(self.view.priority), self.when) if sign)

    @property
    def face(self) -> tuple[int, str, str, str]:
        """What is painted; a chip whose face stays is not painted again."""
        return self.place, self.title, self.why, self.marks

    @property
    def tip(self) -> str:
        view = self.view
        tokens, blocks, waited = wording.count(view.prompt_tokens), wording.count(view.needed_blocks), wording.seconds(view.waited_s)
        return "\n".join(
            (
                self.title,
                translate("Dashboard", "Place {0}, {1}: {2}").format(view.place, wording.wait_reason(view.reason), self.why),
                translate("Dashboard", "{0} prompt tokens, needs {1} blocks, waiting for {2}").format(tokens, blocks, waited),
                translate("Dashboard", "Priority: {0}").format(wording.priority(view.priority)),
            )
        )


@dataclass(frozen=True, slots=True)
class BusCells:
    """The whole bus: `seats` has one entry a seat (None: empty); `chips` the first of `waiting`."""

    seats: tuple[SeatCell | None, ...]
    chips: tuple[ChipCell, ...]
    waiting: int

    @property
    def people(self) -> list[str]:
        """As `people_of` tells it of the snapshot."""
        return [cell.view.request_id if cell else "" for cell in self.seats] + [chip.view.request_id for chip in self.chips]

    @property
    def taken(self) -> int:
        return sum(cell is not None for cell in self.seats)


EMPTY = BusCells((), (), 0)


def people_of(snapshot: Snapshot) -> list[str]:
    """Who is where: request ids by seat ("" where nobody sits), then by place in the queue."""
    return [view.request_id if view else "" for view in snapshot.seats] + [view.request_id for view in snapshot.queue]


def bus_cells(snapshot: Snapshot) -> BusCells:
    return BusCells(
        tuple(None if view is None else SeatCell(view) for view in snapshot.seats),
        tuple(ChipCell(view) for view in snapshot.queue),
        snapshot.waiting,
    )


def one_line(title: str) -> str:
    return " ".join(title.split()) or translate("Dashboard", "Untitled chat")
