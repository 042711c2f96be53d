"""The column in which a transcript is written: its width, and its place in the middle of the view. Owns the document's margins."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.transcript.view import TranscriptView

WIDTH = 740
SIDE = 24  # least space beside the column
ABOVE, BELOW = 28, 20


class Column:
    """Pixels of the viewport.

    Attributes:
        zoom: of the words, so that a line holds as many of them.
    """

    def __init__(self, view: TranscriptView) -> None:
        self._view = view
        self.zoom = 1.0

    @property
    def full_width(self) -> int:
        """How wide it is where there is room."""
        return round(WIDTH * self.zoom)

    @property
    def width(self) -> float:
        return float(min(self.full_width, max(200, self._view.viewport().width() - 2 * SIDE)))

    @property
    def left(self) -> float:
        """Where it begins."""
        return self._view.document().rootFrame().frameFormat().leftMargin()

    def set_margins(self) -> None:
        """Centred in the widget, scroll bar included, so that the composer below stands exactly under it."""
        root = self._view.document().rootFrame()
        left = max(float(SIDE), (self._view.width() - self.full_width) / 2)
        right = max(float(SIDE), self._view.viewport().width() - self.full_width - left)
        frame_format = root.frameFormat()
        if abs(frame_format.leftMargin() - left) + abs(frame_format.rightMargin() - right) > 0.5 or frame_format.topMargin() != ABOVE:
            frame_format.setLeftMargin(left)
            frame_format.setRightMargin(right)
            frame_format.setTopMargin(ABOVE)
            frame_format.setBottomMargin(BELOW)
            root.setFrameFormat(frame_format)
