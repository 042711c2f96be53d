"""The engines of this machine: one for each model that is loaded, two at most, each with its own thread, pool and seats.

Decides which engine a request for a model goes to, and whether a second model may be loaded beside the first: when the fit estimate says
that it fits comfortably. Where it does not, its requests wait in the engine of the first, with the reason, and the models take turns. When
memory runs short, the one that nobody uses is let go. Must never load two models at the same moment, nor end a request by letting go.

Each model has a thread of its own rather than one thread that takes turns, for a step lives in torch, which lets go of the interpreter
lock: what one model leaves of two cores the other has. Measured there with SmolLM2 135M and Gemma 3 270M, four answers of 96 tokens each:
5.5 s together, 6.5 s one after the other; every token the same as alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from engine.engine import Engine
from engine.opened import Declined, Opener, OpenModel, Progress
from engine.room import MachineRoom, Room
from engine.types import EngineConfig, EngineState, ModelError

log = logging.getLogger(__name__)

MOST = 2
LOOK_S = 1.0  # between two looks at the memory
REMEMBER_S = 30.0  # that a model did not fit beside another one; then it is looked at anew
SOLO = "Only one model is kept at a time."


class Locals:
    """Attributes:
    first: the engine that was given; the second is made when it is needed.
    keep_two: whether a second model is loaded beside the first where it fits; see `keep`.
    """

    def __init__(
        self,
        first: Engine,
        announce: Callable[[], None],
        moved: Callable[[Engine, Engine], None],
        room: Room | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`announce` hears of every snapshot, `moved` of a model that is not loaded in the one engine but will be in the other."""
        self.first = first
        self.keep_two = True
        self._announce, self._moved = announce, moved
        self._room = room or MachineRoom()
        self._clock = clock
        self._opener = first.opener
        self._all: tuple[Engine, ...] = ()
        self._used: dict[Engine, float] = {}
        self._refused: dict[tuple[str, str], float] = {}  # (model, the one that was there): when
        self._lock = threading.Lock()  # guards the above
        self._loading = threading.Lock()  # one load at a time: what a load will take is not yet gone from the free memory
        self._holding: set[Engine] = set()  # those whose model is in memory
        self._looked = float("-inf")
        self._take_on(first)

    @property
    def engines(self) -> tuple[Engine, ...]:
        return self._all

    @property
    def serving(self) -> tuple[Engine, ...]:
        """The engines that have a model or are loading one, the one used last first; with none, the one used last."""
        order = sorted(self._all, key=lambda engine: -self._used[engine])
        return tuple(engine for engine in order if engine.occupied) or tuple(order[:1])

    def engine_for(self, model: str) -> Engine:
        """The engine that requests for this model go to. It is started by whoever asked, since that begins the load."""
        with self._lock:
            engine = self._choose(model)
            self._used[engine] = self._clock()
        if not engine.started:
            engine.set_model(model)
        return engine

    def engine_of(self, model: str) -> Engine | None:
        """The engine that has this model now."""
        return next((engine for engine in self._all if engine.occupied and engine.config.model == model), None)

    @staticmethod
    def load(engine: Engine, model: str) -> None:
        """Load a model into the engine that it goes to, unless it is there."""
        if not engine.started:
            engine.start()
        elif engine.config.model != model or engine.snapshot.state in (EngineState.EMPTY, EngineState.FAILED):
            engine.load(model)

    def keep(self, two: bool) -> None:
        """Keep two models loaded where they fit, or one at a time. What is being answered goes on."""
        self.keep_two = two
        with self._lock:
            self._refused.clear()
        self._look_after(self._clock())

    def reproduce(self, wanted: bool) -> None:
        for engine in self._all:
            if engine.config.reproducible != wanted:
                engine.configure(reproducible=wanted)

    def let_go_after(self, seconds: float | None) -> None:
        for engine in self._all:
            engine.let_go_after(seconds)

    # --------------------------------------------------------------------------------------------------------- private

    def _take_on(self, engine: Engine) -> None:
        engine.opener = self._guarded(engine)
        engine.add_listener(self._hear)
        self._used[engine] = self._clock()
        self._all = (*self._all, engine)

    def _choose(self, model: str) -> Engine:
        for engine in self._all:
            if engine.serves(model):
                return engine
        taken = [engine for engine in self._all if engine.occupied]
        spare = [engine for engine in self._all if not engine.occupied]
        if not taken:
            return next((engine for engine in spare if engine.config.model == model), self.first)
        if len(taken) < MOST and self.keep_two and not self._known_not_to_fit(model, taken[0]):
            if not spare:
                spare.append(self.first.sibling(model, self._opener))
                self._take_on(spare[0])
            return spare[0]
        return min(taken, key=lambda engine: (engine.busy, self._used[engine]))  # nobody is kept waiting for the one in use, if possible

    def _known_not_to_fit(self, model: str, beside: Engine) -> bool:
        when = self._refused.get((model, beside.config.model))
        return when is not None and self._clock() - when < REMEMBER_S

    def _guarded(self, engine: Engine) -> Opener:
        """The opener, which first looks whether there is room beside the model of the other engine."""

        def open_here(config: EngineConfig, progress: Progress, cancelled: Callable[[], bool]) -> OpenModel:
            with self._alone(progress, cancelled):
                other = next((other for other in self._all if other is not engine and other in self._holding), None)
                if other is not None:
                    self._look_beside(engine, other, config, progress)
                opened = self._opener(config, progress, cancelled)
                self._holding.add(engine)

            def close() -> None:
                self._holding.discard(engine)
                opened.close()

            return replace(opened, close=close)

        return open_here

    @contextmanager
    def _alone(self, progress: Progress, cancelled: Callable[[], bool]) -> Iterator[None]:
        """No other load meanwhile. Raises ModelError("load_cancelled")."""
        if not self._loading.acquire(blocking=False):
            progress(0.0, "waiting for another model's load")
            while not self._loading.acquire(timeout=0.05):
                if cancelled():
                    raise ModelError("load_cancelled", "Loading was cancelled.")
        try:
            yield
        finally:
            self._loading.release()

    def _look_beside(self, engine: Engine, other: Engine, config: EngineConfig, progress: Progress) -> None:
        """Raises Declined where the two do not fit together: the other engine then takes turns."""
        progress(0.0, f"looking whether it fits beside {other.snapshot.model.name}")
        why = self._room.refusal(config) if self.keep_two else SOLO
        if not why:
            return
        log.info("%s is not loaded beside %s: %s", config.model, other.config.model, why)
        with self._lock:
            self._refused[config.model, other.config.model] = self._clock()
            self._used[other] = self._clock()
        if not engine.busy and not other.busy:
            other.load(config.model)  # before it is the present one: who waits for the model would find that the old one is there
        self._moved(engine, other)
        raise Declined(other)

    def _hear(self) -> None:
        now = self._clock()
        if now - self._looked >= LOOK_S:
            self._look_after(now)
        self._announce()

    def _look_after(self, now: float) -> None:
        """Two are loaded and memory is short, or one alone is wanted: the one that is idle, and used the longest ago, is let go."""
        self._looked = now
        there = [engine for engine in self._all if engine.snapshot.state in (EngineState.READY, EngineState.PAUSED)]
        if len(there) < MOST or (self.keep_two and not self._room.short(self.first.config)):
            return
        idle = [engine for engine in there if not engine.busy]
        if idle:
            min(idle, key=lambda engine: self._used[engine]).unload_if_idle()
