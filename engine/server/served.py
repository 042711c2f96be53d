"""Which models the server has, what they are called, and which one a request means."""

from __future__ import annotations

from collections.abc import Sequence

from engine.server.errors import ApiError
from engine.server.fields import Fields
from engine.server.rides import ServedEngine, ServedModels, check_ready
from engine.types import EngineState

ALIASES = ("default",)  # for clients that must name a model and do not care


class Served:
    """The loaded models by name. `names` are further ones for the first model, the one that is shown first."""

    def __init__(self, served: ServedModels, names: Sequence[str] = ()) -> None:
        self._served = served
        self._names = tuple(names)

    @property
    def first(self) -> ServedEngine:
        """The one that is meant by a request that names none."""
        return self._served.serving[0]

    @property
    def engines(self) -> Sequence[ServedEngine]:
        return self._served.serving

    @property
    def ready(self) -> list[ServedEngine]:
        """Those that answer now. Raises ApiError 503 where there is none."""
        engines = [engine for engine in self._served.serving if engine.snapshot.state in (EngineState.READY, EngineState.PAUSED)]
        if not engines:
            check_ready(self.first.snapshot)
        return engines

    def name_of(self, engine: ServedEngine) -> str:
        """As it is shown."""
        return self._names[0] if self._names and engine is self.first else engine.snapshot.model.name

    def named(self, wanted: str) -> ServedEngine:
        """The engine of the model that answers to this name, "" for any. Raises ApiError 404."""
        first = self.first
        if not wanted or wanted in (*ALIASES, *self._names):
            return first
        for engine in self._served.serving:
            if wanted in (engine.snapshot.model.name, engine.config.model):
                return engine
        known = " and ".join(repr(self.name_of(engine)) for engine in self._served.serving)
        raise ApiError(404, f"This server has no model of that name; it serves {known}.", "model_not_found", param="model")

    def asked(self, fields: Fields) -> ServedEngine:
        """The engine that a request's body asks for. Raises ApiError 404."""
        return self.named(fields.text("model", 512) or "")
