"""The dashboard's tests know the engine on the stage by this name."""

from __future__ import annotations

from engine.staged import MODEL, SYSTEM, TITLES
from engine.staged import StagedEngine as SimEngine

__all__ = ["MODEL", "SYSTEM", "TITLES", "SimEngine"]
