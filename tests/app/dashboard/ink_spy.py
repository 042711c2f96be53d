"""Reads a painted view back: the words written on it, each with the rider's rectangle that they belong to, and the colours of its pixels.

The words are caught where they are written, so nothing of what makes them is trusted; the pixels come from the window's own picture.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from PySide6.QtCore import QPoint, QRectF
from PySide6.QtGui import QColor, QImage
from PySide6.QtWidgets import QWidget

from app.dashboard import bus, bus_scene, capsule, cards, kv_legend, kvmap, strip, timeline, timeline_labels, timeline_marks, timeline_words

WRITERS = (bus, bus_scene, capsule, cards, kv_legend, kvmap, strip, timeline, timeline_labels, timeline_marks, timeline_words)
RIDERS = ("paint_seat", "paint_empty_seat", "paint_chip")


@dataclass
class Written:
    """What one view had written on it while it was painted. `parts`: by the rider's painter and its rectangle."""

    words: list[str] = field(default_factory=list)
    places: list[tuple[QRectF, str]] = field(default_factory=list)
    parts: list[tuple[str, QRectF, list[str]]] = field(default_factory=list)

    def part(self, rect: QRectF) -> tuple[str, list[str]]:
        """(which painter, its words) of the rider in `rect`."""
        return next((name, words) for name, at, words in self.parts if at == rect)


def spy_on(monkeypatch: pytest.MonkeyPatch) -> list[Written]:
    """From now on the last of the returned list collects all that is written."""
    collected = [Written()]

    def watched(original):
        def write(painter, box, text, *rest, **named):
            if text:
                collected[-1].words.append(text)
                collected[-1].places.append((QRectF(box), text))
                if open_parts:
                    open_parts[-1].append(text)
            return original(painter, box, text, *rest, **named)

        return write

    def framed(name, original):
        def paint(painter, press, rect, *rest, **named):
            words: list[str] = []
            collected[-1].parts.append((name, QRectF(rect), words))
            open_parts.append(words)
            try:
                return original(painter, press, rect, *rest, **named)
            finally:
                open_parts.pop()

        return paint

    open_parts: list[list[str]] = []
    for module in WRITERS:
        for name in ("write", "write_live"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, watched(getattr(module, name)))
    for name in RIDERS:
        monkeypatch.setattr(capsule, name, framed(name, getattr(capsule, name)))
    return collected


def read(collected: list[Written], view: QWidget) -> tuple[Written, QImage]:
    """Paint the view anew, with nothing kept from before: (what it wrote, its pixels)."""
    for stamps in (getattr(view, "_stamps", None),):
        if stamps is not None:
            stamps.clear()
    collected.append(Written())
    image = view.grab().toImage()
    return collected[-1], image


def color_at(image: QImage, x: float, y: float) -> QColor:
    ratio = image.devicePixelRatio()
    return image.pixelColor(QPoint(int(x * ratio), int(y * ratio)))


def on_screen(page: QWidget) -> QImage:
    """What the window shows now: only what was told to repaint is new in it."""
    return page.screen().grabWindow(page.winId()).toImage()
