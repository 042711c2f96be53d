"""The little pictures that the block map is made of: each owner's cell painted once, then copied by NumPy as often as it is needed.

Painting 65,536 rectangles takes Qt 30 ms; indexing an array of tiles takes one. Owns the tiles of one size, one theme.
"""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QFont, QImage, QPainter, QPainterPath, QPen

from app.dashboard.ink import Ink, blend, font
from app.dashboard.kv_cells import LEVELS
from engine import OWNER_CACHED, OWNER_FREE, OWNER_SEAT0, OWNER_SHARED

NUMBERED_FROM = 15  # device-independent pixels a cell must have to carry its seat's number


class TileBank:
    """Tiles of `pitch` device pixels for owner codes 0..codes-1.

    Attributes:
        tiles: uint32 [codes * LEVELS * 2 + 1, pitch, pitch], 0xffRRGGBB; the second half is dimmed, the last is background.
    """

    def __init__(self, ink: Ink, pitch: int, scale: float, codes: int) -> None:
        self.pitch = pitch
        self.codes = codes
        self._ink = ink
        self._scale = scale
        bright = [self._tile(code, level, False) for code in range(codes) for level in range(1, LEVELS + 1)]
        dimmed = [self._tile(code, level, True) for code in range(codes) for level in range(1, LEVELS + 1)]
        self.tiles = np.stack([*bright, *dimmed, self._tile(-1, LEVELS, False)])

    def index(self, codes: np.ndarray, levels: np.ndarray, emphasis: int = -1) -> np.ndarray:
        """Tile number of each cell. With `emphasis` (an owner code) all other cells are dimmed."""
        index = codes.astype(np.int32) * LEVELS + (levels - 1)
        if emphasis >= 0:
            index[codes != emphasis] += self.codes * LEVELS
        return index

    def image(self, index: np.ndarray, columns: int) -> np.ndarray:
        """uint32 [rows * pitch, columns * pitch]: the cells in reading order."""
        rows = -(-len(index) // columns)
        full = np.full(rows * columns, len(self.tiles) - 1, np.int32)
        full[: len(index)] = index
        picture = self.tiles[full].reshape(rows, columns, self.pitch, self.pitch)
        return np.ascontiguousarray(picture.transpose(0, 2, 1, 3)).reshape(rows * self.pitch, columns * self.pitch)

    def _color(self, code: int) -> QColor:
        ink = self._ink
        if code == OWNER_FREE:
            return ink.faint
        if code == OWNER_CACHED:
            return ink.cached
        if code == OWNER_SHARED:
            return ink.shared
        return ink.seat(code - OWNER_SEAT0)

    def _tile(self, code: int, level: int, dimmed: bool) -> np.ndarray:
        image = QImage(self.pitch, self.pitch, QImage.Format.Format_RGB32)
        image.fill(self._ink.surface)
        if code >= 0:
            painter = QPainter(image)
            self._paint(painter, code, level, dimmed)
            painter.end()
        return np.frombuffer(image.constBits(), np.uint32).reshape(self.pitch, self.pitch).copy()

    def _paint(self, painter: QPainter, code: int, level: int, dimmed: bool) -> None:
        gap = max(1, round(self.pitch * 0.16))
        side = self.pitch - gap
        box = QRectF(0, 0, side, side)
        radius = side * 0.22 if side >= 6 else 0.0
        color = self._color(code)
        if dimmed:
            color = blend(color, self._ink.surface, 0.28)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, radius > 0)
        painter.setPen(Qt.PenStyle.NoPen)
        if level < LEVELS and code != OWNER_FREE:
            painter.setBrush(self._ink.faint)
            painter.drawRoundedRect(box, radius, radius)
            painter.setClipRect(QRectF(0, side * (1 - level / LEVELS), side, side))
        hatched = code == OWNER_SHARED
        painter.setBrush(blend(color, self._ink.surface, 0.30) if hatched else color)
        painter.drawRoundedRect(box, radius, radius)
        if hatched:
            outline = QPainterPath()
            outline.addRoundedRect(box, radius, radius)
            painter.setClipPath(outline, Qt.ClipOperation.IntersectClip if level < LEVELS else Qt.ClipOperation.ReplaceClip)
            painter.setPen(QPen(color, max(1.0, side / 7)))
            for shift in (-side * 0.5, 0.0, side * 0.5):
                painter.drawLine(round(shift), side, round(shift + side), 0)
        elif code >= OWNER_SEAT0 and self.pitch >= NUMBERED_FROM * self._scale and level == LEVELS:
            painter.setPen(self._ink.on(color))
            face = QFont(font(9, QFont.Weight.DemiBold))
            face.setPixelSize(round((9 if code - OWNER_SEAT0 < 9 else 8) * self._scale))
            painter.setFont(face)
            painter.drawText(box, Qt.AlignmentFlag.AlignCenter, str(code - OWNER_SEAT0 + 1))
