"""Where the window's measurements take place: Qt without a screen, and the real engine with a chat in each of its seats.

Owns how both are set up and taken down, so that every measurement stands on the same ground. Importing this imports no Qt.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine import Engine, EngineConfig

if TYPE_CHECKING:
    from PySide6.QtWidgets import QApplication

SEATS = 8
PROMPT = "Tell a very long story about a bus that never stops, with every stop and every passenger on the way. Part {0}."
LONG_ANSWER = 4_096  # tokens: longer than any measurement
SWITCH_INTERVAL_S = 0.001  # as in the program itself


def offscreen() -> QApplication:
    """The application, in its dark looks; there is one a process."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from PySide6.QtWidgets import QApplication

    from app.theme import Theme, apply_theme

    app = QApplication.instance() or QApplication([])
    assert isinstance(app, QApplication)
    apply_theme(app, Theme.dark())
    return app


@contextmanager
def real_engine(model: str) -> Iterator[Engine]:
    """The engine with this model, ready, sharing the interpreter with the window's thread as it does in the program. Raises EngineError
    when there is no such model."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        with Engine(EngineConfig(model=model, seats=SEATS)) as engine:
            engine.wait_ready()
            yield engine
    finally:
        sys.setswitchinterval(before)
