"""Which models keep the blocks of their windowed layers in slots: the one place where that is decided, with the reason where it is not.

What a slot is, `engine/kv/slots.py` says; how many there are, `engine/scheduling/window.py`.
"""

from __future__ import annotations

import logging

from engine.model.geometry import Geometry
from engine.types import EngineConfig

log = logging.getLogger(__name__)


def mixed(geometry: Geometry) -> bool:
    """Do some layers look back through a window, and others at everything?"""
    return any(geometry.reach.values()) and not all(geometry.reach.values())


def refusal(geometry: Geometry, config: EngineConfig) -> str | None:
    """Why the windowed layers of a model find a block in the place of its number, like all others; None where they have slots."""
    if not mixed(geometry):
        return "its layers all see alike"
    if not geometry.plain:
        return "its rows need whole histories, or it keeps recurrent states"
    if config.plain:
        return "it runs as transformers does"
    if geometry.device.type != "cpu" or len(geometry.devices) > 1:
        return "a GPU's kernels and graphs take one table for all layers"
    if config.tier_tokens:
        return "the second tier copies blocks by their numbers"
    return None


def slots_wanted(geometry: Geometry, config: EngineConfig) -> bool:
    reason = refusal(geometry, config)
    if reason is not None and mixed(geometry):
        log.info("nothing is given back behind the windows of some layers: %s", reason)
    return reason is None
