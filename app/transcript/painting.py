"""How little of a transcript is painted: behind the exposed part only what lies there, and of a streamed token only what it changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter

from app.transcript.backdrop import paint_frames
from app.transcript.formats import Formats
from app.transcript.frames import first_reaching

if TYPE_CHECKING:
    from app.transcript.view import TranscriptView

CARD_EDGE = 24  # pixels that what is painted behind a block may reach above it


def paint_backdrop(painter: QPainter, view: TranscriptView, exposed: QRectF, formats: Formats) -> None:
    """Paint behind the words in this part of the viewport; the painter is left in the document's coordinates."""
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    top = view.verticalScrollBar().value()
    seen = exposed.translated(0, top)
    painter.translate(0, -top)
    layout = view.document().documentLayout()
    entries = view.entries
    for entry in entries[first_reaching(entries, seen.top(), lambda one: layout.frameBoundingRect(one.frames[-1]).bottom()) :]:
        if layout.frameBoundingRect(entry.frames[0]).top() > seen.bottom():
            break
        paint_frames(painter, entry.frames, layout, seen, formats)


def paint_less(view: TranscriptView, write: Callable[[], int | None]) -> None:
    """Write more of the last answer and have only that painted: Qt would paint all of the view. `write` tells where it began."""
    bar, viewport = view.verticalScrollBar(), view.viewport()
    value = bar.value()
    viewport.setAttribute(Qt.WidgetAttribute.WA_UpdatesDisabled, True)
    changed = write()
    viewport.setAttribute(Qt.WidgetAttribute.WA_UpdatesDisabled, False)
    if changed is None:
        return
    document = view.document()
    top = document.documentLayout().blockBoundingRect(document.findBlock(changed)).top() - bar.value() - CARD_EDGE
    whole = bar.value() != value
    viewport.update(0, 0 if whole else max(0, round(top)), viewport.width(), viewport.height())
