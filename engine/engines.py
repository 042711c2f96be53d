"""The engines of this machine and those elsewhere as one: a model that is an address is a server, every other one is loaded here.

Owns the remote engines that were asked for, and which engine is the present one: that of the model asked for last. Each request goes to the
engine of its model; what is steered (pause, seats, policy, recording) is the present engine. Has the interface of `Engine`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from engine.engine import Engine
from engine.handle import RequestHandle
from engine.locals import Locals
from engine.room import Room
from engine.shown import Shown
from engine.types import EngineConfig, EngineState, Priority, SamplingParams, Snapshot, StepRecord
from engine.watched import Watched


def is_address(model: str) -> bool:
    """Whether a model's name is a server's address; behind "#" it may name one of several models there."""
    return model.startswith(("http://", "https://"))


class Engines(Watched):
    """Attributes: local (the first engine of this machine; started when it is first needed), here (all of this machine's), shown (one
    engine at a time, for the dashboard).
    """

    def __init__(self, local: Engine, remote: Callable[[str], Any] | None = None, room: Room | None = None) -> None:
        self.local = local
        self._make = remote or _open_remote
        self._remotes: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._source = local.config.model
        self.present: Any = local  # the engine of the model that was asked for last
        super().__init__(local.snapshot)
        self._snapshot_of = local.snapshot  # what `_snapshot` was made of
        self.here = Locals(local, self._listeners, self._on_moved, room)
        self.shown = Shown(self)
        if is_address(self._source):
            self.present = self._engine_of(self._source)
            local.set_model("starter")

    # ----------------------------------------------------------------------------------------------------- the present

    @property
    def config(self) -> EngineConfig:
        config: EngineConfig = self.present.config
        return replace(config, model=self._source)

    @property
    def snapshot(self) -> Snapshot:
        """The present engine's; those of others that have a model or requests are in `others`. The same object while nothing changed."""
        snapshot: Snapshot = self.present.snapshot
        others = tuple(other for engine in self._all() if engine is not self.present and _counts(other := engine.snapshot))
        if not others:
            return snapshot
        with self._lock:
            kept = self._snapshot
            if kept.others == others and self._snapshot_of is snapshot:
                return kept
            self._snapshot_of, self._snapshot = snapshot, replace(snapshot, others=others)
            return self._snapshot

    @property
    def loaded(self) -> tuple[Snapshot, ...]:
        """Of every engine of this machine that has a model or loads one."""
        return tuple(engine.snapshot for engine in self.here.engines if engine.occupied)

    def having(self, source: str) -> Any:
        """The engine that has this model now, None for none."""
        return self._remotes.get(source) if is_address(source) else self.here.engine_of(source)

    def history(self, since_step: int = 0) -> tuple[StepRecord, ...]:
        records: tuple[StepRecord, ...] = self.present.history(since_step)
        return records

    def wait_ready(self, timeout: float | None = None) -> Snapshot:
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            engine = self.present
            snapshot: Snapshot = engine.wait_ready(None if until is None else max(0.0, until - time.monotonic()))
            if engine is self.present:  # else its model is loaded by another engine
                return snapshot

    def tokenize(self, prompt: Any, salt: bytes = b"") -> list[int] | None:
        found: list[int] | None = self.present.tokenize(prompt, salt)
        return found

    def count_tokens(self, prompt: Any) -> int | None:
        found: int | None = self.present.count_tokens(prompt)
        return found

    def configure(self, **changes: Any) -> None:
        self.present.configure(**changes)

    def pause(self) -> None:
        self.present.pause()

    def resume(self) -> None:
        self.present.resume()

    def clear_cache(self) -> None:
        self.present.clear_cache()

    def resize_pool(self, num_blocks: int) -> None:
        self.present.resize_pool(num_blocks)

    def start_recording(self) -> Future[None]:
        future: Future[None] = self.present.start_recording()
        return future

    def stop_recording(self) -> Future[Any]:
        future: Future[Any] = self.present.stop_recording()
        return future

    def restart(self) -> None:
        self.present.restart()

    def unload(self, source: str = "") -> None:
        """Let a model of this machine go; without a name the present one."""
        engine = self.having(source) if source else self.present
        if engine is not None:
            engine.unload()

    def use_form(self, source: str, key: str) -> None:
        """Put chats to a loaded model that has no template in this safe form; it is remembered (see `Engine.use_form`)."""
        engine = self.having(source)
        if engine is not None:
            engine.use_form(key)

    def keep_two(self, wanted: bool) -> None:
        """Whether a second model of this machine is loaded beside the first where it fits (it is, unless told otherwise)."""
        self.here.keep(wanted)

    def reproduce(self, wanted: bool) -> None:
        """Whether answers of this machine's models are to be the same for the same prompt and seed, whoever rides along."""
        self.here.reproduce(wanted)

    def cancel_load(self, source: str = "") -> None:
        """Give up a load of this machine; without a name that of the present model."""
        engine = self.having(source) if source else self.present
        if engine is not None:
            engine.cancel_load()

    def let_go_after(self, seconds: float | None) -> None:
        self.here.let_go_after(seconds)

    # -------------------------------------------------------------------------------------------------------- requests

    def submit(
        self,
        prompt: Any,
        params: SamplingParams | None = None,
        *,
        chat_id: str = "",
        title: str = "",
        priority: Priority | None = None,
        continue_final: bool = False,
        model: str = "",
        on_ready: Callable[[RequestHandle], None] | None = None,
    ) -> RequestHandle:
        """As `Engine.submit`; the engine of `model` is shown from now on."""
        model = model or self._source
        engine = self._engine_of(model)
        self.present, self._source = engine, model
        handle: RequestHandle = engine.submit(
            prompt,
            params,
            chat_id=chat_id,
            title=title,
            priority=priority,
            continue_final=continue_final,
            model="" if is_address(model) else model,
            on_ready=on_ready,
        )
        engine.start()  # after it has something to do: a load that fails at once is then told to the request, too
        return handle

    def cancel(self, request_id: str) -> None:
        for engine in self._all():
            engine.cancel(request_id)

    def set_priority(self, request_id: str, priority: Priority) -> None:
        for engine in self._all():
            engine.set_priority(request_id, priority)

    def set_chat_priority(self, chat_id: str, priority: Priority) -> None:
        for engine in self._all():
            engine.set_chat_priority(chat_id, priority)

    # ----------------------------------------------------------------------------------------------------- life cycle

    def start(self) -> None:
        """Start the engine that is shown; the others are when they are needed."""
        self.present.start()

    def load(self, model: str) -> None:
        """Make this model the present one; load it, where it is one of this machine that is not loaded."""
        engine = self._engine_of(model)
        self.present, self._source = engine, model
        if not is_address(model):
            self.here.load(engine, model)
            return
        engine.start()
        if engine.snapshot.state is EngineState.FAILED:
            engine.restart()

    def close(self, timeout: float = 2.0) -> bool:
        for engine in self.here.engines:
            engine.begin_to_close()
        return all([engine.close(timeout) for engine in self._all()])

    # --------------------------------------------------------------------------------------------------------- private

    def _all(self) -> list[Any]:
        return [*self.here.engines, *self._remotes.values()]

    def _engine_of(self, model: str) -> Any:
        if not is_address(model):
            return self.here.engine_for(model)
        with self._lock:
            if model not in self._remotes:
                engine = self._make(model)
                self._remotes[model] = engine
                engine.add_listener(self._listeners)
            return self._remotes[model]

    def _on_moved(self, engine: Engine, other: Engine) -> None:
        """The present model is loaded by another engine than was thought."""
        if self.present is engine:
            self.present = other


def _counts(snapshot: Snapshot) -> bool:
    """Whether there is anything to see of an engine that is not the present one."""
    ready = snapshot.state in (EngineState.READY, EngineState.PAUSED) and snapshot.model.lane != "remote"
    return ready or snapshot.state is EngineState.LOADING or snapshot.seated > 0 or snapshot.waiting > 0


def _open_remote(model: str) -> Any:
    from engine.remote.keys import find
    from engine.remote.presets import Source, clean_url
    from engine.remote.remote import RemoteConfig, RemoteEngine

    source = Source.read(model)
    key = find(clean_url(source.address)) or ""
    return RemoteEngine(RemoteConfig(source.address, key, source.model, source.metrics, whole=source.whole))
