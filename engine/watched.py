"""What all engines share towards those who watch and ask them: the last snapshot, listeners, waiting, several answers to one prompt.

Owns the snapshot that is out and the list of listeners. An engine's thread swaps the snapshot in with `_show`; everybody else reads it.
Must never know what an engine is made of: this process, a server elsewhere, and several engines as one all stand on it.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from engine.handle import RequestHandle
from engine.types import EngineError, EngineState, SamplingParams, Snapshot

log = logging.getLogger(__name__)

_SEVERAL = itertools.count(1)
SETTLED = (EngineState.READY, EngineState.PAUSED, EngineState.FAILED, EngineState.EMPTY, EngineState.CLOSED)


class Listeners:
    """Who is called when something has changed, in the order they came. One that fails is logged, and the rest are called."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._calls)

    def __call__(self) -> None:
        for call in self._calls:  # swapped, never changed in place: another thread may add one meanwhile
            try:
                call()
            except Exception:
                log.exception("a listener failed")

    def add(self, call: Callable[[], None]) -> Callable[[], None]:
        """Returns the call that removes it."""
        self._calls = [*self._calls, call]

        def remove() -> None:
            self._calls = [kept for kept in self._calls if kept is not call]

        return remove


class Watched:
    """The part of an engine that others look at."""

    def __init__(self, first: Snapshot) -> None:
        self._snapshot = first
        self._listeners = Listeners()
        self._ready = threading.Condition()

    @property
    def snapshot(self) -> Snapshot:
        """The engine as it was published last."""
        return self._snapshot

    def add_listener(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called from the engine's thread after each published snapshot. Returns the call that removes it."""
        return self._listeners.add(listener)

    def wait_ready(self, timeout: float | None = None) -> Snapshot:
        """Block until the model asked for last is there. Raises the EngineError that stopped it, or TimeoutError."""
        with self._ready:
            if not self._ready.wait_for(self._settled, timeout):
                raise TimeoutError(f"{self._snapshot.model.name} was not ready after {timeout} s")
        snapshot = self._snapshot
        if snapshot.state is EngineState.FAILED and snapshot.error is not None:
            raise EngineError(snapshot.error.code, snapshot.error.message, snapshot.error.hint)
        return snapshot

    @abstractmethod
    def submit(self, prompt: Any, params: SamplingParams | None = None, *, chat_id: str = "") -> RequestHandle: ...

    def submit_several(
        self, prompt: Any, count: int, params: SamplingParams | None = None, *, chat_id: str = "", **options: Any
    ) -> list[RequestHandle]:
        """Queue several answers to one prompt, all or none; the i-th is what the seed + i gives alone.

        In this process the first reads the prompt; the others wait for it and go on from its last token, sharing its full blocks and each
        with a copy of the one in which it ends. (On the tour bus, and where a layer keeps a state a request, each reads it.) Options as
        in `submit`.
        """
        params = params or SamplingParams()
        seed = params.seed if params.seed is not None else random.getrandbits(63)
        chat_id = chat_id or f"several-{next(_SEVERAL)}"
        handles: list[RequestHandle] = []
        try:
            for place in range(count):
                mine = replace(params, seed=(seed + place) % 2**63)
                handles.append(self.submit(prompt, mine, chat_id=chat_id, **options))
        except BaseException:
            for handle in handles:
                handle.cancel()
            raise
        return handles

    # ------------------------------------------------------------------------------------------------ for the engine's own

    def _settled(self) -> bool:
        """Whether a wait is over."""
        return self._snapshot.state in SETTLED

    def _show(self, snapshot: Snapshot) -> None:
        """Publish: the snapshot is out, who waits looks, listeners hear of it."""
        with self._ready:
            self._snapshot = snapshot
            self._ready.notify_all()
        self._listeners()
