"""Requests that wait for another model than the one that is loaded, first come first served.

Owns their order, and the rule when to change: as soon as nothing rides, for the one that waits longest; all others for the same model
go along. While someone waits here, later requests for the present model wait here, too, behind them, so that nobody waits for ever. Not
locked: the engine's lock guards it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class _Order(Protocol):
    model: str


Order = TypeVar("Order", bound=_Order)


class Elsewhere(Generic[Order]):
    """By request id, in order of arrival."""

    def __init__(self) -> None:
        self._orders: dict[str, Order] = {}

    def __len__(self) -> int:
        return len(self._orders)

    def __iter__(self) -> Iterator[Order]:
        return iter(self._orders.values())

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._orders

    def add(self, request_id: str, order: Order) -> None:
        self._orders[request_id] = order

    def take(self, request_id: str) -> Order | None:
        return self._orders.pop(request_id, None)

    @property
    def next_model(self) -> str | None:
        """The model that the first in line waits for."""
        return next((order.model for order in self), None)

    @property
    def models(self) -> set[str]:
        """Every model that somebody here waits for."""
        return {order.model for order in self}

    def take_all_for(self, model: str) -> list[Order]:
        """Those that can ride now that `model` is loaded."""
        found = {request_id: order for request_id, order in self._orders.items() if order.model == model}
        for request_id in found:
            del self._orders[request_id]
        return list(found.values())
