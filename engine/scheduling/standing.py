"""A waiting request as it stands at the stop: what decides when it boards, frozen, so that the whole line can be looked at later.

A step only copies references to these and the counters of fairness; whoever wants to know the order of thousands works it out then, on
a thread of their own (see engine/line.py). Nothing here changes while the request waits; where something does, a new one is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from engine.types import Priority

if TYPE_CHECKING:
    from engine.scheduling.request import RequestState

PROMPT_WEIGHT = 1.0


class Standing(NamedTuple):
    """Attributes: returned (it lost a seat, and goes before newcomers of its class), since (when it was asked, on the engine's clock),
    bound (tokens that it may still add), goes_on (it goes to its bound whatever it says), least (tokens that it must still add).
    """

    arrival: int
    level: int
    returned: bool
    request_id: str
    chat_id: str
    title: str
    priority: Priority
    since: float
    prompt_tokens: int
    known: int
    bound: int
    goes_on: bool
    least: int


def standing_of(request: RequestState) -> Standing:
    params, known = request.params, len(request.tokens)
    return Standing(
        request.arrival,
        request.level,
        request.preemptions > 0,
        request.id,
        request.chat_id,
        request.title,
        request.priority,
        request.ledger.start,
        request.prompt_len,
        known,
        request.limit - known,
        params.ignore_eos and not params.stop,
        params.min_tokens - (known - request.prompt_len),
    )


def boarding_order(standings: Iterable[Standing], served: Sequence[Mapping[str, float]]) -> list[Standing]:
    """Everyone as they would board one after another if each fitted: every boarding charges its chat's prompt.

    Within a chat the counter only grows, so one sort by the counter at which each one's turn comes is the order of turns.

    Args:
        served: by class, the virtual counter of each chat.
    """
    keyed = []
    counters: list[dict[str, float]] = [{} for _ in served]  # of a chat, once those of it that were looked at have boarded
    for standing in sorted(standings):
        arrival, level, returned, _, chat_id, *_ = standing
        if returned:
            keyed.append((level, -1.0, arrival, standing))
            continue
        counter = counters[level].get(chat_id)
        if counter is None:
            counter = served[level].get(chat_id, 0.0)
        keyed.append((level, counter, arrival, standing))
        counters[level][chat_id] = counter + PROMPT_WEIGHT * standing.known
    keyed.sort()
    return list(map(itemgetter(3), keyed))
