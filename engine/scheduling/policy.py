"""City bus and tour bus: when may a waiting request board? All else is the same code path."""

from __future__ import annotations

from typing import Protocol

from engine.types import Policy, Sentence, WaitReason


class BoardingPolicy(Protocol):
    name: Policy
    closed: WaitReason  # the reason given to those who may not board
    words: Sentence

    def open(self, seated: int, boarded_now: int) -> bool:
        """May one more board, with `seated` requests in seats, `boarded_now` of which boarded in this very step?"""


class InFlight:
    """A seat that comes free is taken at the next step."""

    name = Policy.IN_FLIGHT
    closed = WaitReason.SEATS
    words = Sentence("no free seat")

    def open(self, seated: int, boarded_now: int) -> bool:
        return True


class Static:
    """The next group boards when the last of this one is done; seats of those who got off early stay empty."""

    name = Policy.STATIC
    closed = WaitReason.GROUP
    words = Sentence("the present group is still riding")

    def open(self, seated: int, boarded_now: int) -> bool:
        return seated == boarded_now


def make_policy(policy: Policy) -> BoardingPolicy:
    return Static() if policy is Policy.STATIC else InFlight()
