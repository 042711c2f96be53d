"""How many torch threads to use right now, on the CPU: as many as the rest of the machine leaves.

A forward pass meets at a barrier after each of its hundreds of operations; one thread that waits for a busy core holds up all
others each time. Measured on two cores beside other programs: 7.8 s a step with two threads, 0.6 s with one; alone, two are 1.6
times faster. So the number follows what other programs take, looked at twice a second while steps run: what they took before, while
nothing ran here, is no reason to make room. Owns no thread; must be called from the thread that runs the model, because the setting is
that thread's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

LOOK_S = 0.5
PAUSE_S = 0.25  # without a step, after which others' use is looked at anew
SPARE = 0.35  # a core that others use less than this much of still counts as ours


@dataclass(frozen=True, slots=True)
class CpuUse:
    """Processor seconds since some start: of the whole machine, and of this process."""

    machine: float
    own: float


def read_cpu_use() -> CpuUse:
    """The present counters, by psutil. Time stolen by a virtual machine's host counts as used by others."""
    import psutil

    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # contained in user and nice already
    own = psutil.Process().cpu_times()
    return CpuUse(sum(times) - idle - guest, own.user + own.system)


class ThreadChooser:
    """Follows the load of other programs.

    Attributes:
        threads: what is set now.
    """

    def __init__(
        self,
        most: int,
        apply: Callable[[int], None],
        read: Callable[[], CpuUse] = read_cpu_use,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.threads = most
        self._most = most
        self._apply = apply
        self._read = read
        self._clock = clock
        self._looked = clock()
        self._use = read()
        self._more_wanted = 0
        self._rested = self._looked
        self._held = False
        apply(most)

    def hold(self, wanted: bool) -> None:
        """Keep to as many as the machine has, whatever others take: sums that are cut for other threads are rounded otherwise."""
        self._held = wanted
        if wanted:
            self.threads = self._most
            self._apply(self._most)

    def rest(self) -> None:
        """A step is over; the next may begin at once, or after a pause."""
        self._rested = self._clock()

    def adjust(self) -> int:
        """A step begins: look if it is time to, and set the number of threads. Fewer at once, more only when two looks agree; after a pause
        more at once, and fewer not before others were seen beside a step."""
        if self._held:
            return self.threads
        now = self._clock()
        passed, paused = now - self._looked, now - self._rested > PAUSE_S
        if passed < LOOK_S and not paused:
            return self.threads
        use = self._read()
        others = (use.machine - self._use.machine - (use.own - self._use.own)) / passed
        self._looked, self._use = now, use
        fit = min(self._most, max(1, int(self._most - max(0.0, others) + SPARE)))
        if passed < LOOK_S or (paused and fit < self.threads):
            fit = self.threads  # too short to tell, or no longer so
        self._more_wanted = self._more_wanted + 1 if fit > self.threads else 0
        if fit < self.threads or self._more_wanted >= (1 if paused else 2):
            self.threads = fit
            self._more_wanted = 0
            self._apply(fit)
        return self.threads
