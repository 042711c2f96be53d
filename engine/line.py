"""Everyone who waits, at one step boundary, however many: place, reason and expected start of each.

A step hands over what is frozen or copied at once (some tens of microseconds for four thousand); the order and the starts are worked out
when somebody first looks, on the thread that looks, once. Immutable to the reader; any thread may look.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

from engine.scheduling.forecast import Forecast
from engine.scheduling.standing import Standing, boarding_order
from engine.types import QueueView, WaitReason
from engine.types.views import WholeQueue

Why = Callable[[int, int], tuple[WaitReason, str]]


@dataclass(frozen=True, slots=True)
class Told:
    """What a step tells of whoever waits, besides their order.

    Attributes:
        noted: of those whom the last plan looked at, by request: reason, its numbers, blocks needed.
        why: the reason of any other, by its place and how many of a higher class stand before it.
        block_size: of the pool. now: on the engine's clock.
    """

    noted: Mapping[str, tuple[WaitReason, str, int]]
    why: Why
    forecast: Forecast | None
    block_size: int
    now: float

    def starts(self, line: Sequence[Standing]) -> Sequence[float | None]:
        """Of the first in line, as many as are given."""
        return [None] * len(line) if self.forecast is None else self.forecast.starts(line)

    def view(self, place: int, standing: Standing, before: int, start: float | None) -> QueueView:
        reason, detail, need = self.noted.get(standing.request_id) or (*self.why(place, before), 0)
        return QueueView(
            place,
            standing.request_id,
            standing.chat_id,
            standing.title,
            standing.priority,
            reason,
            detail,
            standing.prompt_tokens,
            need or -(-standing.known // self.block_size),
            max(0.0, self.now - standing.since),
            start,
        )


NOTHING_TOLD = Told({}, lambda place, before: (WaitReason.TURN, ""), None, 1, 0.0)


def before_each_class(order: Sequence[Standing]) -> dict[int, int]:
    """By class: how many of higher ones stand before its first."""
    before: dict[int, int] = {}
    for at, standing in enumerate(order):
        before.setdefault(standing.level, at)
    return before


class Line(WholeQueue):
    """All who wait, in boarding order.

    Args:
        served: by class, each chat's virtual counter.
        first: the first views, where they are made already. last: of those who wait for another model, behind all others.
    """

    def __init__(
        self,
        told: Told,
        standings: Sequence[Standing],
        served: Sequence[Mapping[str, float]],
        first: tuple[QueueView, ...] = (),
        last: tuple[QueueView, ...] = (),
    ) -> None:
        self._told, self._standings, self._served = told, standings, served
        self._first, self._last = first, last
        self._lock = threading.Lock()
        self._known: tuple[list[Standing], Sequence[float | None], dict[int, int]] | None = None

    @classmethod
    def of(cls, views: tuple[QueueView, ...]) -> Line:
        """A line of which everything is known."""
        return cls(NOTHING_TOLD, (), (), (), views)

    def followed_by(self, last: tuple[QueueView, ...]) -> Line:
        """The same, and those of another model behind them."""
        return Line(self._told, self._standings, self._served, self._first, last)

    def __len__(self) -> int:
        return len(self._standings) + len(self._last)

    @overload
    def __getitem__(self, index: int) -> QueueView: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[QueueView, ...]: ...
    def __getitem__(self, index: int | slice) -> QueueView | tuple[QueueView, ...]:
        if isinstance(index, slice):
            return tuple(map(self._view, range(*index.indices(len(self)))))
        return self._view(range(len(self))[index])

    def __iter__(self) -> Iterator[QueueView]:
        return map(self._view, range(len(self)))

    def of_chats(self, chats: Collection[str]) -> list[QueueView]:
        """As above; no other views are made."""
        ours = [at for at, standing in enumerate(self._worked_out()[0]) if standing.chat_id in chats]
        return [*map(self._view, ours), *(view for view in self._last if view.chat_id in chats)]

    def _view(self, at: int) -> QueueView:
        if at < len(self._first):
            return self._first[at]
        if at >= len(self._standings):
            return self._last[at - len(self._standings)]
        order, starts, before = self._worked_out()
        return self._told.view(at + 1, order[at], before[order[at].level], starts[at])

    def _worked_out(self) -> tuple[list[Standing], Sequence[float | None], dict[int, int]]:
        """Everyone in order, the start of each, and how many stand before each class."""
        with self._lock:  # whoever comes second waits for the first
            if self._known is None:
                order = boarding_order(self._standings, self._served)
                self._known = order, self._told.starts(order), before_each_class(order)
            return self._known
