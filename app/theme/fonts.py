"""Type: Inter for words, JetBrains Mono for code, tabular figures for every number that moves.

The fonts are shipped, so that the window measures and looks the same everywhere. Where they cannot be read the system's own take over.
"""

from __future__ import annotations

import logging

from PySide6.QtGui import QFont, QFontDatabase

from app.theme.resources import resource_path

UI_FAMILY = "Inter"
MONO_FAMILY = "JetBrains Mono"

log = logging.getLogger(__name__)


def load_fonts() -> tuple[str, ...]:
    """Register the shipped fonts once a process and return the families that are there. Needs a QGuiApplication."""
    present = set(QFontDatabase.families())
    if UI_FAMILY in present and MONO_FAMILY in present:
        return (UI_FAMILY, MONO_FAMILY)
    for file in sorted(resource_path("fonts").glob("*.[ot]tf")):
        if QFontDatabase.addApplicationFont(str(file)) < 0:
            log.warning("font %s could not be read", file.name)
    present = set(QFontDatabase.families())
    return tuple(family for family in (UI_FAMILY, MONO_FAMILY) if family in present)


def ui_font(pixels: int = 14, weight: QFont.Weight = QFont.Weight.Normal) -> QFont:
    """The sans face at a size in device-independent pixels."""
    font = QFont(UI_FAMILY)
    font.setStyleHint(QFont.StyleHint.SansSerif)
    font.setPixelSize(pixels)
    font.setWeight(weight)
    return font


def mono_font(pixels: int = 13) -> QFont:
    """The code face; ligatures are off, so that what is shown is what is copied."""
    font = QFont(MONO_FAMILY)
    font.setStyleHint(QFont.StyleHint.Monospace)
    font.setFixedPitch(True)
    font.setPixelSize(pixels)
    for feature in ("liga", "calt"):
        font.setFeature(QFont.Tag(feature), 0)
    return font


def tabular(font: QFont) -> QFont:
    """A copy of `font` whose figures are all equally wide, so that a moving number does not jitter."""
    copy = QFont(font)
    copy.setFeature(QFont.Tag("tnum"), 1)
    return copy
