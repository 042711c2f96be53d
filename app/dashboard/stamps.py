"""Pictures that are painted once and stamped from then on: hulls, badges, chips, legends.

A large antialiased outline costs a third of a millisecond, stamping it a few microseconds. Bounded; emptied when the theme changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from math import ceil

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPixmap

MOST = 384


class Stamps:
    """Pixmaps by key."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, QPixmap] = OrderedDict()

    def clear(self) -> None:
        self._kept.clear()

    def get(
        self, key: Hashable, width: float, height: float, ratio: float, paint: Callable[[QPainter], None], ground: QColor | None = None
    ) -> QPixmap:
        """The picture of `key`, `width` x `height` device-independent pixels at `ratio`; `paint` makes it the first time.

        With `ground` it is opaque, which is cheaper to stamp.
        """
        full = (key, width, height, ratio)
        picture = self._kept.get(full)
        if picture is None:
            picture = QPixmap(max(1, ceil(width * ratio - 1e-6)), max(1, ceil(height * ratio - 1e-6)))
            picture.setDevicePixelRatio(ratio)
            picture.fill(Qt.GlobalColor.transparent if ground is None else ground)
            painter = QPainter(picture)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            paint(painter)
            painter.end()
            self._kept[full] = picture
            if len(self._kept) > MOST:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(full)
        return picture


def stamp_part(painter: QPainter, at: QPointF, picture: QPixmap, share: float) -> None:
    """The left `share` (0..1) of a picture."""
    columns = round(picture.width() * share)
    if columns <= 0:
        return
    ratio = picture.devicePixelRatio()
    painter.drawPixmap(QRectF(at.x(), at.y(), columns / ratio, picture.height() / ratio), picture, QRectF(0, 0, columns, picture.height()))
