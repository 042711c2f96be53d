"""Our own SVG icons, tinted from the theme and rendered at the screen's scale.

Each file in resources/icons is drawn on a 24 x 24 grid in `currentColor`. Each icon keeps the pictures it was asked for.
"""

from __future__ import annotations

import functools

from PySide6.QtCore import QByteArray, QPoint, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QIcon, QIconEngine, QImage, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from app.theme.resources import resource_path


class _SvgEngine(QIconEngine):
    """Paints one tinted SVG at whatever size and scale is asked for, so that it stays crisp at 1.25 and 1.5."""

    def __init__(self, source: str, color: str) -> None:
        super().__init__()
        self._source = source
        self._color = color
        # A button in a page that is often painted asks each time. Images, not pixmaps: these must not outlive the application.
        self._pictures: dict[tuple[int, int, QIcon.Mode], QImage] = {}
        self._renderer = QSvgRenderer(QByteArray(source.replace("currentColor", color).encode()))

    def paint(self, painter: QPainter, rect: QRect, mode: QIcon.Mode, state: QIcon.State) -> None:
        if mode == QIcon.Mode.Disabled:
            painter.setOpacity(0.4)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._renderer.render(painter, QRectF(rect))

    def pixmap(self, size: QSize, mode: QIcon.Mode, state: QIcon.State) -> QPixmap:
        key = (size.width(), size.height(), mode)
        if (known := self._pictures.get(key)) is None:
            known = QImage(size, QImage.Format.Format_ARGB32_Premultiplied)
            known.fill(Qt.GlobalColor.transparent)
            painter = QPainter(known)
            self.paint(painter, QRect(QPoint(0, 0), size), mode, state)
            painter.end()
            self._pictures[key] = known
        return QPixmap.fromImage(known)

    def clone(self) -> QIconEngine:
        return _made(self._source, self._color)


def _made(source: str, color: str) -> _SvgEngine:
    """An engine that stays: one that Python's collector took down was taken down by its icon once more, and the process with it."""
    engine = _SvgEngine(source, color)
    _KEPT.append(engine)
    return engine


_KEPT: list[_SvgEngine] = []


@functools.cache
def icon(name: str, color: str) -> QIcon:
    """The icon `resources/icons/<name>.svg` in `color` (`#rrggbb`), the same each time. Raises FileNotFoundError for a name that is not
    there."""
    return QIcon(_made(resource_path("icons", f"{name}.svg").read_text(encoding="utf-8"), color))


def app_icon() -> QIcon:
    """The picture of the program, in its own colours."""
    return icon("omnibus", "#817afe")
