"""What the two policies made of one load, ready to be shown: the figures side by side, their verdict in words, the rides of each.

A pure value and pure functions over it; never asks the engine and never paints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from app.dashboard import wording
from app.dashboard.rides import Ride, rides
from app.dashboard.wording import translate
from app.numbers import number
from engine import Policy, PolicyResult

ORDER = (Policy.IN_FLIGHT, Policy.STATIC)


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of both: `values` and their `words` in the order of `ORDER`; `more_is_better` says which of them wins."""

    label: str
    values: tuple[float, float]
    words: tuple[str, str]
    more_is_better: bool

    @property
    def better(self) -> int:
        """The index of the better one, -1 where they read the same."""
        a, b = self.values
        if self.words[0] == self.words[1]:
            return -1
        return 0 if (a > b) is self.more_is_better else 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """`name`: of the recording. `results` and `rides` in the order of `ORDER`."""

    name: str
    results: tuple[PolicyResult, PolicyResult]
    rides: tuple[tuple[Ride, ...], tuple[Ride, ...]]

    @classmethod
    def of(cls, results: Mapping[Policy, PolicyResult], name: str) -> Comparison:
        """Costs a walk over all steps of both."""
        city, tour = (results[policy] for policy in ORDER)
        return cls(name, (city, tour), (rides(city.history), rides(tour.history)))

    @property
    def empty(self) -> bool:
        """Nothing was answered in the recording."""
        return not any(result.steps for result in self.results)

    @property
    def seats(self) -> int:
        """Rows of a timeline."""
        return 1 + max((ride.seat for found in self.rides for ride in found), default=0)

    @property
    def span_s(self) -> float:
        """How long the slower one took."""
        return max(result.makespan_s for result in self.results)

    def lines(self) -> tuple[Line, ...]:
        """The figures, in the order in which they are shown."""
        rate: Callable[[float], str] = wording.rate
        seconds: Callable[[float], str] = wording.seconds

        def whole(value: float) -> str:
            return wording.count(round(value))

        return (
            self._line(translate("Dashboard", "Speed, tok/s"), lambda result: result.tok_s, rate, True),
            self._line(translate("Dashboard", "Time to first token, p50"), lambda result: result.ttft_p50_s, seconds, False),
            self._line(translate("Dashboard", "Time to first token, p95"), lambda result: result.ttft_p95_s, seconds, False),
            self._line(translate("Dashboard", "All done after"), lambda result: result.makespan_s, seconds, False),
            self._line(
                translate("Dashboard", "Empty seat-steps"),
                lambda result: result.idle_seat_steps,
                lambda value: number(value, ",.0f"),
                False,
            ),
        )

    def verdict(self) -> str:
        """The lesson in one sentence."""
        city, tour = self.results
        speed = _ratio(city.tok_s, tour.tok_s)
        first = _ratio(tour.ttft_p95_s, city.ttft_p95_s)
        parts = [
            translate("Dashboard", "{0} times the speed").format(number(speed, ".1f"))
            if speed >= 1.05
            else translate("Dashboard", "the same speed")
            if speed > 0.95
            else translate("Dashboard", "{0} of the speed").format(wording.share(speed, 1.0)),
            translate("Dashboard", "the first token {0} times sooner (p95)").format(number(first, ".1f"))
            if first >= 1.05
            else translate("Dashboard", "the first token as soon (p95)")
            if first > 0.95
            else translate("Dashboard", "the first token {0} times later (p95)").format(number(1 / first, ".1f")),
            translate("Dashboard", "{0} empty seat-steps instead of {1}").format(
                wording.count(city.idle_seat_steps), wording.count(tour.idle_seat_steps)
            ),
        ]
        return translate("Dashboard", "City bus against tour bus: {0}.").format(", ".join(parts))

    def caption(self, index: int) -> str:
        """What stands over a timeline."""
        result = self.results[index]
        return translate("Dashboard", "{0}: {1} steps, done after {2}, {3} seat-steps empty").format(
            wording.policy(result.policy),
            wording.count(result.steps),
            wording.seconds(result.makespan_s),
            wording.count(result.idle_seat_steps),
        )

    def summary(self) -> str:
        """All of it, to be read out."""
        names = [wording.policy(policy) for policy in ORDER]
        told = [f"{line.label}: {names[0]} {line.words[0]}, {names[1]} {line.words[1]}." for line in self.lines()]
        return " ".join([self.verdict(), *told])

    def to_json(self) -> str:
        """`{"kind": "omnibus-comparison", "recording": name, "policies": {policy: {figures…, "history": [record, …]}}}`; in seconds."""
        document = {
            "kind": "omnibus-comparison",
            "recording": self.name,
            "policies": {str(result.policy): asdict(result) for result in self.results},
        }
        return json.dumps(document, ensure_ascii=False, indent=1)

    def _line(self, label: str, of: Callable[[PolicyResult], float], words: Callable[[float], str], more_is_better: bool) -> Line:
        a, b = (of(result) for result in self.results)
        return Line(label, (a, b), (words(a), words(b)), more_is_better)


def _ratio(a: float, b: float) -> float:
    return a / b if a > 0 and b > 0 else 1.0
