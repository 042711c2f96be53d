"""What steps cost, and so how much of a prompt rides beside decodes: a chunk that adapts so that a step takes about its target time.

No decode is ever delayed by more than one chunk; the chunk's length follows the measured cost of steps. A position far into a prompt
costs more than one at its beginning, since it attends to all before it; so a chunk is counted in weight: a position at the very
beginning weighs 1, one after `context` others 1 + slope * context.
"""

from __future__ import annotations

import math

WEIGHT = 0.25  # of a new measurement
WILD = 3.0  # a step may count as so many times what was foreseen: another program took the processor, not the chunk
OUTLIVED = 3  # steps in a row that took so many times less than foreseen: what was measured before them is no measure any more
TRUSTED = 4  # prefill steps, after which costs are foreseen
SPREAD = 0.05  # variance of contexts, as a share of their mean square, below which no slope can be told
APART = 100  # standard deviation of contexts, in positions, below which none can be told either: short prompts differ by noise alone
FULL = 0.5  # of a chunk, from which a step is about full
CAREFUL = 0.0015  # the slope that is reckoned with until it is told: more than most models have
DRAFT_COST = 1 / 16  # of a drafted position, as a share of a step that only decodes, as long as steps do not tell
LEAST_DRAFT_COST = 1 / 256  # nothing is for nothing
RECENT = 1 / 64  # weight of a step that only decodes, for what a drafted position costs
DOUBT = 0.005  # variance of steps' positions, as a share of their mean square, that makes what they tell weigh as much as `DRAFT_COST`


class Line:
    """A straight line through measurements, by least squares, older ones counting less.

    Attributes:
        x, y: means of the recent.
        seen: measurements so far.
    """

    def __init__(self) -> None:
        self.x = self.y = self._xx = self._xy = self._mass = 0.0
        self.seen = 0
        self._low = 0  # measurements in a row far below what was foreseen

    def note(self, x: float, y: float, weight: float, worth: float = 1.0) -> None:
        """Each takes `weight` off those before it. What tells more is worth more."""
        self.seen += 1
        self._mass += worth - weight * self._mass
        share = worth / self._mass
        self.x += share * (x - self.x)
        self.y += share * (y - self.y)
        self._xx += share * (x * x - self._xx)
        self._xy += share * (x * y - self._xy)

    def tells(self, spread: float, apart: float) -> bool:
        """Whether the x lie far enough apart to tell a slope: by their variance's share of their mean square, and by their deviation."""
        return self._xx - self.x * self.x > max(spread * self._xx, apart * apart)

    def slope_beside(self, guess: float, doubt: float, apart: float = 0.0) -> float:
        """What a guess becomes by what was measured: the less the x differ, the more it stays (ridge regression). It weighs as much as what
        is measured where their variance is that share of their mean square, or where `apart` is their deviation."""
        stays = doubt * self._xx + apart * apart
        variance = max(0.0, self._xx - self.x * self.x)
        return (self._xy - self.x * self.y + stays * guess) / (variance + stays) if variance + stays else guess

    def outlived(self, y: float, foreseen: float) -> bool:
        """Whether the world got so much quicker than what was measured that it is better to begin anew. Nothing is quicker than it can
        be for long; but a machine sleeps in a step, or compiles in the first, and is slow for a while."""
        self._low = self._low + 1 if y * WILD < foreseen else 0
        return self._low >= OUTLIVED


class ChunkTuner:
    """Proposes the next chunk from the last step's cost.

    A step costs about base + per_weight x the weight of its prefill positions, or base + per_draft x its drafted ones. `base` and
    `per_draft` are learned from steps that only decode, the others from steps with prefill, by least squares over the recent ones. A
    drafted position is held to cost what one more rider's does. Durations in seconds, lengths in tokens.

    Attributes:
        chunk: weight of the prefill positions that may ride beside decodes.
        slope: what one more position of context adds to a position's weight. Until prompts have told it, chunks are cut as if it were
            steep: the first long one beside decodes costs a step or two more, and none that is far too long.
    """

    SMALLEST = 16
    STEEPEST = 0.01

    def __init__(self, chunk: int, target_s: float, most: int, adapt: bool = True) -> None:
        self.chunk = chunk
        self.target_s = target_s
        self.most = most
        self.adapt = adapt
        self.slope = CAREFUL if adapt else 0.0
        self._told = False
        self._base: float | None = None
        self._per_weight: float | None = None
        self._per_draft = 0.0
        self._costs = Line()  # of a position, by the mean context of its step's
        self._slopes = Line()  # the same, of steps that are about full
        self._steps = Line()  # that only decode, by their positions

    def observe(self, duration: float, prefill: int, pairs: float = 0.0, decodes: int = 1, drafted: int = 0) -> int:
        """Learn from one step; returns the chunk to use next.

        prefill, decodes, drafted: positions of each kind; pairs: the sum over the prefill positions of how many came before each.
        """
        if duration <= 0:
            return self.chunk
        if prefill == 0:
            self._learn_decode(duration, decodes, drafted)
        else:
            full = min(1.0, (prefill + self.slope * pairs) / self.chunk)
            self._learn(max(0.0, duration - full * (self._base or 0.0)) / prefill, pairs / prefill, prefill, full)
        if self.adapt and self._per_weight:
            wanted = (self.target_s - (self._base or 0.0)) / self._per_weight
            self.chunk = int(min(self.most, max(self.SMALLEST, wanted)))
        return self.chunk

    def _learn_decode(self, duration: float, decodes: int, drafted: int) -> None:
        """One step without prompts."""
        steps, positions = self._steps, decodes + drafted
        if self._base is not None:
            if steps.outlived(duration, steps.y + self._per_draft * (positions - steps.x)):
                self._steps = steps = Line()
                self._base = None
            else:
                duration = min(duration, WILD * (self._base + self._per_draft * drafted))
        steps.note(positions, duration, RECENT)
        base = self._base if self._base is not None else duration / (1 + DRAFT_COST * drafted)
        self._per_draft = max(0.0, steps.slope_beside(DRAFT_COST * base, DOUBT))
        plain = max(duration - self._per_draft * drafted, duration / (1 + drafted))  # one costs no more than the step without it
        self._base = base + WEIGHT * (plain - base)

    def _learn(self, cost: float, context: float, positions: int, full: float) -> None:
        """One step's cost a position at a mean context; `full`: its prefill as a share of a chunk.

        Of few positions it is mostly what any step costs: it tells little, and of slopes nothing. How much of that would have been there
        without them is not known either, so only their share of it is taken off: their cost is rather told too high than too low.
        """
        costs = self._costs
        if self._per_weight and costs.seen >= TRUSTED:
            foreseen = self._per_weight * (1 + self.slope * context)
            if costs.outlived(cost, foreseen):
                self._costs = costs = Line()
                self._slopes = Line()
            cost = min(cost, WILD * foreseen)
        costs.note(context, cost, WEIGHT, positions)
        if self.adapt and full >= FULL:
            self._learn_slope(cost, context, positions)
        self._per_weight = costs.y / (1 + self.slope * costs.x)

    def _learn_slope(self, cost: float, context: float, positions: int) -> None:
        line = self._slopes
        line.note(context, cost, WEIGHT, positions)
        if line.tells(SPREAD, APART):
            rise = max(0.0, line.slope_beside(self.slope * line.y / (1 + self.slope * line.x), 0.0, APART))
            level = line.y - rise * line.x
            if level > 0:
                self.slope = min(rise / level, self.STEEPEST)
                self._told = True

    @property
    def prefill_rate(self) -> float | None:
        """Prefill positions a second at the beginning of a prompt, None before any was measured."""
        return 1 / self._per_weight if self._per_weight else None

    def seconds_for(self, start: int, count: int) -> float | None:
        """What reading `count` positions that follow `start` others takes, None before any was measured."""
        slope = self.slope if self._told else 0.0  # what is careful for a chunk would be a wild guess for a whole prompt
        return self._per_weight * weight_of(start, count, slope) if self._per_weight else None

    @property
    def draft_cost(self) -> float:
        """Of a drafted position, as a share of a step that only decodes."""
        return max(self._per_draft / self._base, LEAST_DRAFT_COST) if self._base else DRAFT_COST

    @property
    def decode_step_s(self) -> float | None:
        return self._base


def weight_of(start: int, count: int, slope: float) -> float:
    """Weight of `count` positions that follow `start` others."""
    return count * (1 + slope * (start + (count - 1) / 2))


def count_within(weight: float, start: int, slope: float) -> int:
    """The most positions after `start` others that weigh no more than `weight`."""
    if slope <= 0:
        return max(0, int(weight))
    first = 1 + slope * (start - 0.5)
    count = max(0, int((math.sqrt(first * first + 2 * slope * max(0.0, weight)) - first) / slope + 1e-9))
    return count
