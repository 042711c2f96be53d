"""`omnibus bench NAME`: the window's measurements here, and the engine's, which know nothing of the window.

Owns the table of the window's. Must not import Qt: a measurement's module is imported only when it is asked for.
"""

from __future__ import annotations

import argparse
import importlib
from typing import Any, cast

# A module has add_parser(subparsers) and run(args) -> exit status.
BENCHES = {
    "dashboard": ("app.bench.dashboard", "what the dashboard costs the window's thread, and the engine's speed"),
    "idle": ("app.bench.idle", "what an open window with a loaded model costs while nothing is asked"),
    "soak": ("app.bench.soak", "a long run of chats, arrivals, cancels and faults: does anything stay behind, is anything lost?"),
    "ui": ("app.bench.ui", "what the window costs: tokens, frames, large chats, many chats, search"),
}


def add_parser(subparsers: Any) -> None:
    _engine_benches().add_parser(subparsers, BENCHES)


def run(args: argparse.Namespace) -> int:
    """Whatever the chosen measurement returns."""
    return cast(int, _engine_benches().run(args, BENCHES))


def _engine_benches() -> Any:
    return importlib.import_module("engine.bench.cli")  # by name, as the table of commands has it: nothing of the engine's inside is used
