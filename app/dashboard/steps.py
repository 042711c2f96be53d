"""What every seat did in every step, as arrays: the timeline's memory. NumPy, no Qt.

Fed with the engine's step records; holds the last `CAPACITY` of them, as the engine does. Never derives anything that the records do
not say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from engine import DecisionKind, Phase, StepRecord

CAPACITY = 2048
MOST_SEATS = 256

ABSENT = 0  # there was no such seat
EMPTY = 1  # nobody sat here, and nobody waited
WASTED = 2  # nobody sat here while somebody waited
HELD = 3  # taken, but not in this step's batch
PREFILL = 4
DECODE = 5
STATES = 6

_OF_PHASE = {Phase.PREFILL: PREFILL, Phase.DECODE: DECODE}


@dataclass(frozen=True, slots=True)
class Run:
    """One seat in one state for one request, from column `start` up to, not including, `stop` (columns of the view)."""

    seat: int
    state: int
    start: int
    stop: int
    request: int


@dataclass(frozen=True, slots=True)
class Waste:
    """Seat-steps of a stretch: how many there were, how many stayed empty, how many of those while somebody waited."""

    seat_steps: int
    empty: int
    wasted: int


class StepGrid:
    """A sliding window of steps.

    Columns are counted from the first step ever seen (`first` .. `end` - 1 are still here) and stay theirs for good.

    Attributes:
        states: uint8 [MOST_SEATS, 2 * CAPACITY], the codes above.
        requests: int32 of the same shape, a running number of the request that sits there, 0 for none.
        shades: uint8 of the same shape, 0 and 1 in turn from one request of a seat to the next.
        records: the step records themselves, oldest first.
        marks: (column, words) of every change of a setting.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.states = np.zeros((MOST_SEATS, 2 * CAPACITY), np.uint8)
        self.requests = np.zeros((MOST_SEATS, 2 * CAPACITY), np.int32)
        self.shades = np.zeros((MOST_SEATS, 2 * CAPACITY), np.uint8)
        self.records: deque[StepRecord] = deque(maxlen=CAPACITY)
        self.marks: deque[tuple[int, str]] = deque(maxlen=64)
        self.titles: dict[int, str] = {}
        self.end = 0
        self.version = 0
        self._offset = 0  # column of array index 0
        self._numbers: dict[str, int] = {}
        self._titles: dict[str, str] = {}
        self._count = 0
        self._most = 0  # seats ever seen
        self._sitting: dict[int, int] = {}  # seat → request that sat there last
        self._shade: dict[int, int] = {}

    @property
    def first(self) -> int:
        return self.end - len(self.records)

    @property
    def last_step(self) -> int:
        return self.records[-1].step if self.records else 0

    def record(self, column: int) -> StepRecord | None:
        index = column - self.first
        return self.records[index] if 0 <= index < len(self.records) else None

    def column_of(self, step: int) -> int | None:
        """The column of a step, or None when it is not here."""
        if not self.records:
            return None
        guess = self.end - 1 - (self.last_step - step)  # exact while no step is missing
        record = self.record(guess)
        if record is not None and record.step == step:
            return guess
        return next((self.first + index for index, record in enumerate(self.records) if record.step == step), None)

    def extend(self, records: Iterable[StepRecord]) -> int:
        """Take the records that are newer than what is here; returns how many."""
        added = 0
        for record in records:
            if self.records and record.step <= self.last_step:
                continue
            self._append(record)
            added += 1
        if added:
            self.version += 1
        return added

    def view(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(states, requests, shades) of the columns start..stop-1, each [seats, columns]; `seats`: the most there were in that stretch."""
        start, stop = max(start, self.first), min(stop, self.end)
        if stop <= start:
            return self.states[:0, :0], self.requests[:0, :0], self.shades[:0, :0]
        window = slice(start - self._offset, stop - self._offset)
        states = self.states[: self._most, window]
        seats = self._most
        while seats and not states[seats - 1].any():
            seats -= 1
        return states[:seats], self.requests[:seats, window], self.shades[:seats, window]

    def stretches(self, start: int, stop: int, least: int) -> list[Run]:
        """Like `runs`, but each request's whole time in its seat is one, and only those of at least `least` columns are given.

        `state` is DECODE where the request decodes, with `start` at its first decode, else what the hole is, or HELD or PREFILL.
        """
        states, requests, _ = self.view(start, stop)
        if not states.size:
            return []
        seats, columns = states.shape
        kinds = np.where(states <= WASTED, -1 - states.astype(np.int32), requests)  # who sits there, or which kind of hole
        cuts = np.ones((seats, columns), bool)
        np.not_equal(kinds[:, 1:], kinds[:, :-1], out=cuts[:, 1:])
        begins = np.flatnonzero(cuts)
        lengths = np.diff(np.append(begins, seats * columns))
        found = []
        for begin, length in zip(begins[lengths >= least].tolist(), lengths[lengths >= least].tolist(), strict=True):
            seat, first = divmod(begin, columns)
            row = states[seat, first : first + length]
            decoding = int((row == DECODE).argmax())
            state = int(row[decoding])
            if state == DECODE:
                found.append(Run(seat, DECODE, first + decoding, first + length, int(requests[seat, first])))
            else:
                found.append(Run(seat, int(row[0]), first, first + length, int(requests[seat, first])))
        return found

    def runs(self, start: int, stop: int) -> list[Run]:
        """The stretch as runs of one seat in one state for one request; columns relative to `start`."""
        states, requests, _ = self.view(start, stop)
        found = []
        for seat in range(states.shape[0]):
            row, who = states[seat], requests[seat]
            cuts = np.flatnonzero((row[1:] != row[:-1]) | (who[1:] != who[:-1])) + 1
            edges = [0, *cuts.tolist(), states.shape[1]]
            found += [Run(seat, int(row[a]), a, b, int(who[a])) for a, b in zip(edges, edges[1:], strict=False)]
        return found

    def waste(self, start: int, stop: int) -> Waste:
        tally = np.bincount(self.view(start, stop)[0].ravel(), minlength=STATES)
        return Waste(int(tally[1:].sum()), int(tally[EMPTY] + tally[WASTED]), int(tally[WASTED]))

    def title(self, request: int) -> str:
        return self.titles.get(request, "")

    def _append(self, record: StepRecord) -> None:
        for decision in record.decisions:
            if decision.request_id and decision.kind in (DecisionKind.SUBMIT, DecisionKind.ADMIT):
                self._titles[decision.request_id] = " ".join(decision.title.split())
            elif decision.kind is DecisionKind.CONFIG:
                self.marks.append((self.end, decision.detail))
        index = self._slot()
        seats = min(record.seats_total, MOST_SEATS)
        self._most = max(self._most, seats, *(min(row.seat + 1, MOST_SEATS) for row in record.rows))
        for array in (self.states, self.requests, self.shades):
            array[: self._most, index] = 0
        for row in record.rows:
            if row.seat < MOST_SEATS:
                self._sit(row.seat, index, _OF_PHASE.get(row.phase, HELD), self._number(row.request_id))
        for seat in record.held:
            if seat < MOST_SEATS:
                self._sit(seat, index, HELD, self._sitting.get(seat, 0))
        # While more ride than there are seats by now, the seats that they left are gone, not empty.
        free = max(0, record.seats_total - len(record.rows) - len(record.held))
        empty = np.flatnonzero(self.states[:seats, index] == ABSENT)[:free]
        self.states[empty, index] = WASTED if record.waiting else EMPTY
        self.records.append(record)
        self.end += 1

    def _sit(self, seat: int, index: int, state: int, number: int) -> None:
        if self._sitting.get(seat) != number:
            self._sitting[seat] = number
            self._shade[seat] = 1 - self._shade.get(seat, 1)
        self.states[seat, index] = state
        self.requests[seat, index] = number
        self.shades[seat, index] = self._shade[seat]

    def _slot(self) -> int:
        """The array index of the next column; the arrays slide back by half when they are full."""
        index = self.end - self._offset
        if index < self.states.shape[1]:
            return index
        for array in (self.states, self.requests, self.shades):
            array[:, :CAPACITY] = array[:, CAPACITY:]
        self._offset += CAPACITY
        self._forget()
        return index - CAPACITY

    def _number(self, request_id: str) -> int:
        number = self._numbers.get(request_id)
        if number is None:
            self._count += 1
            number = self._numbers[request_id] = self._count
            self.titles[number] = self._titles.get(request_id, "")
        return number

    def _forget(self) -> None:
        """Drop the names of requests that have left the window."""
        oldest = int(self.requests[self.requests > 0].min(initial=np.iinfo(np.int32).max))
        self._numbers = {name: number for name, number in self._numbers.items() if number >= oldest}
        self.titles = {number: title for number, title in self.titles.items() if number >= oldest}
        self._titles = {name: title for name, title in self._titles.items() if name in self._numbers} | dict(
            list(self._titles.items())[-256:]
        )
