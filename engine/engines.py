"""The engine of this machine and those elsewhere as one: a model that is an address is a server, every other one is loaded here.

Owns the remote engines that were asked for, and which engine is shown. Each request goes to the engine of its model and stays there; what
is steered (pause, seats, policy, recording) is the engine that is shown, the one used last. Has the interface of `Engine`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from engine.engine import Engine
from engine.handle import RequestHandle
from engine.types import EngineConfig, EngineState, Priority, SamplingParams, Snapshot, StepRecord
from engine.watched import Watched


def is_address(model: str) -> bool:
    """Whether a model's name is a server's address; behind "#" it may name one of several models there."""
    return model.startswith(("http://", "https://"))


class Engines(Watched):
    """Attributes: local (the engine of this machine; started when it is first needed)."""

    def __init__(self, local: Engine, remote: Callable[[str], Any] | None = None) -> None:
        self.local = local
        self._make = remote or _open_remote
        self._remotes: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._source = local.config.model
        self._shown: Any = local
        super().__init__(local.snapshot)
        local.add_listener(self._listeners)
        if is_address(self._source):
            self._shown = self._engine_of(self._source)
            local.set_model("starter")

    # ------------------------------------------------------------------------------------------------------- the shown

    @property
    def config(self) -> EngineConfig:
        return replace(self._shown.config, model=self._source) if self._shown is not self.local else self.local.config

    @property
    def snapshot(self) -> Snapshot:
        snapshot: Snapshot = self._shown.snapshot
        return snapshot

    def history(self, since_step: int = 0) -> tuple[StepRecord, ...]:
        records: tuple[StepRecord, ...] = self._shown.history(since_step)
        return records

    def wait_ready(self, timeout: float | None = None) -> Snapshot:
        snapshot: Snapshot = self._shown.wait_ready(timeout)
        return snapshot

    def tokenize(self, prompt: Any) -> list[int] | None:
        found: list[int] | None = self._shown.tokenize(prompt)
        return found

    def count_tokens(self, prompt: Any) -> int | None:
        found: int | None = self._shown.count_tokens(prompt)
        return found

    def configure(self, **changes: Any) -> None:
        self._shown.configure(**changes)

    def pause(self) -> None:
        self._shown.pause()

    def resume(self) -> None:
        self._shown.resume()

    def clear_cache(self) -> None:
        self._shown.clear_cache()

    def resize_pool(self, num_blocks: int) -> None:
        self._shown.resize_pool(num_blocks)

    def start_recording(self) -> Future[None]:
        future: Future[None] = self._shown.start_recording()
        return future

    def stop_recording(self) -> Future[Any]:
        future: Future[Any] = self._shown.stop_recording()
        return future

    def restart(self) -> None:
        self._shown.restart()

    def unload(self) -> None:
        self._shown.unload()

    def cancel_load(self) -> None:
        self._shown.cancel_load()

    def let_go_after(self, seconds: float | None) -> None:
        self.local.let_go_after(seconds)

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
        self._turn_to(engine, model)
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
        self._shown.start()

    def load(self, model: str) -> None:
        """Show the engine of this model; load it, where it is one of this machine that is not loaded."""
        engine = self._engine_of(model)
        self._turn_to(engine, model)
        if engine is not self.local:
            if engine.snapshot.state is EngineState.FAILED:
                engine.restart()
        elif self.local.config.model != model or self.local.snapshot.state in (EngineState.EMPTY, EngineState.FAILED):
            self.local.load(model)

    def close(self, timeout: float = 2.0) -> bool:
        return all([engine.close(timeout) for engine in self._all()])

    # --------------------------------------------------------------------------------------------------------- private

    def _all(self) -> list[Any]:
        return [self.local, *self._remotes.values()]

    def _engine_of(self, model: str) -> Any:
        if not is_address(model):
            return self.local
        with self._lock:
            if model not in self._remotes:
                engine = self._make(model)
                self._remotes[model] = engine
                engine.add_listener(self._listeners)
            return self._remotes[model]

    def _turn_to(self, engine: Any, model: str) -> None:
        """Called before anything is asked of an engine: it is started, too."""
        if engine is self.local and self._shown is not engine and self.local.snapshot.state is EngineState.STARTING:
            self.local.set_model(model)  # not started yet: it need not load another one first
        self._shown, self._source = engine, model
        engine.start()


def _open_remote(model: str) -> Any:
    from engine.remote.keys import find
    from engine.remote.presets import clean_url
    from engine.remote.remote import RemoteConfig, RemoteEngine

    address, _, name = model.partition("#")
    return RemoteEngine(RemoteConfig(address, find(clean_url(address)) or "", name))
