"""Is there room for a second model beside the one that is loaded? Asked before each load, and while two are there.

The answer is the fit estimate's, over what is free at this moment: the one that is loaded has taken its part of it already. Imports torch
when asked; must not be asked from a window's thread.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol

from engine.types import EngineConfig, EngineError

CONTEXT_SHARE = 4096  # positions of every seat that a cache is planned for by default, as in engine/model/memory.py


class Room(Protocol):
    """What `Locals` asks."""

    def refusal(self, config: EngineConfig) -> str:
        """Why this model does not fit beside what is loaded, in a sentence with numbers; "" where it does, comfortably."""
        ...

    def short(self, config: EngineConfig) -> bool:
        """Whether memory is running out now, with what is loaded."""
        ...


class MachineRoom:
    """This machine's."""

    def refusal(self, config: EngineConfig) -> str:
        from engine.catalog.fit import Verdict, fit, this_machine

        try:
            path = _path_of(config.model)
            if path is None:
                return ""
            by_block = config.plain or config.tier_tokens > 0
            machine = replace(this_machine(config.device, config.dtype, config.kv_class), slots=not by_block)
            context = config.kv_tokens // config.seats if config.kv_tokens else config.context or CONTEXT_SHARE
            found = fit(path, machine, config.seats, max(1, context))
        except (EngineError, OSError):
            return ""  # what is wrong with its files is for the load to say
        return "" if found.verdict is Verdict.YES else found.sentence

    def short(self, config: EngineConfig) -> bool:
        import torch

        from engine.model.loading import choose_device
        from engine.model.memory import RESERVE_DEVICE, RESERVE_RAM, free_bytes

        device = choose_device(config.device)
        return free_bytes(torch.device(device)) < (RESERVE_RAM if device == "cpu" else RESERVE_DEVICE) // 2


def _path_of(model: str) -> Path | None:
    """The files of a model; None for the starter model before it was fetched."""
    from engine.catalog import starter
    from engine.model.loading import find_files

    if model == "starter":
        return starter.folder() if starter.ready() else None
    return find_files(model)[0]
