"""The card with the comparison of the two policies, and its way into files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QBuffer, QIODevice, QRect, QSize, Signal
from PySide6.QtGui import QImage, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QPushButton, QWidget

from app.dashboard.canvas import Canvas
from app.dashboard.comparison import Comparison
from app.dashboard.comparison_drawing import draw_comparison, plan
from app.dashboard.ink import Ink
from app.dashboard.panel import Panel
from app.dashboard.stamps import Stamps
from app.dashboard.wording import translate
from app.theme import Theme

MARGIN = 20  # round the picture in a file
PIXELS = 2  # a PNG has so many to one on screen
FILE_WIDTH = 960


class CompareView(Canvas):
    """Attributes: comparison (what is shown, or None)."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, translate("Dashboard", "City bus and tour bus on the same load"), parent)
        self.comparison: Comparison | None = None
        self._stamps = Stamps()

    def sizeHint(self) -> QSize:
        return QSize(900, self.height())

    def show_comparison(self, comparison: Comparison | None) -> None:
        self.comparison = comparison
        self._stamps.clear()
        self.setAccessibleDescription(self.summary())
        self._fit()
        self.update()

    def summary(self) -> str:
        return self.comparison.summary() if self.comparison is not None else ""

    def theme_changed(self) -> None:
        self._stamps.clear()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        comparison = self.comparison
        if comparison is None:
            painter.fillRect(self.rect(), self.ink.surface)
            return
        width, height, ratio = self.width(), self.height(), self.devicePixelRatioF()
        picture = self._stamps.get(
            "all", width, height, ratio, lambda pen: draw_comparison(pen, self.ink, comparison, width), self.ink.surface
        )
        painter.drawPixmap(0, 0, picture)
        self.paint_focus(painter, None, 6)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit()

    def _fit(self) -> None:
        if self.comparison is not None:
            height = plan(self.comparison, self.width()).height
            if height != self.height():
                self.setFixedHeight(height)


class ComparePanel(Panel):
    """Signals: export_asked(); compared(Comparison or None): what is on show."""

    export_asked = Signal()
    compared = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        self.view = CompareView(theme)
        super().__init__(translate("Dashboard", "Compare policies"), self.view, parent)
        self.save = self._button(translate("Dashboard", "Export"), translate("Dashboard", "Save the comparison as PNG, SVG or JSON"))
        self.away = self._button(translate("Dashboard", "Close"), translate("Dashboard", "Put the comparison away"))
        self.save.clicked.connect(self.export_asked)
        self.away.clicked.connect(self.put_away)
        self.hide()

    def show_comparison(self, comparison: Comparison) -> None:
        self.note.setText(comparison.name)
        self.view.show_comparison(comparison)
        self.show()
        self.compared.emit(comparison)

    def put_away(self) -> None:
        self.hide()
        self.view.show_comparison(None)
        self.compared.emit(None)

    def set_theme(self, theme: Theme) -> None:
        self.view.set_theme(theme)

    def export(self, path: Path) -> None:
        """Write what is shown. Raises ValueError for an ending other than .png, .svg, .json, OSError when it cannot be written."""
        if self.view.comparison is None:
            raise ValueError(translate("Dashboard", "there is no comparison"))
        export_comparison(self.view.comparison, self.view.ink, path)

    def _button(self, words: str, tip: str) -> QPushButton:
        button = QPushButton(words, self)
        button.setProperty("kind", "quiet")
        button.setToolTip(tip)
        button.setAccessibleName(tip)
        self.buttons.addWidget(button)
        return button


def export_comparison(comparison: Comparison, ink: Ink, path: Path) -> None:
    """As a file, in the colours of `ink`. Raises like `ComparePanel.export`."""
    writers: dict[str, Callable[[Comparison, Ink], bytes]] = {
        ".png": _png,
        ".svg": _svg,
        ".json": lambda comparison, _: comparison.to_json().encode("utf-8"),
    }
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise ValueError(translate("Dashboard", "the name must end in .png, .svg or .json"))
    path.write_bytes(writer(comparison, ink))


def _file_size(comparison: Comparison) -> QSize:
    return QSize(FILE_WIDTH + 2 * MARGIN, plan(comparison, FILE_WIDTH).height + 2 * MARGIN)


def _draw(painter: QPainter, comparison: Comparison, ink: Ink, size: QSize) -> None:
    painter.fillRect(0, 0, size.width(), size.height(), ink.surface)
    painter.translate(MARGIN, MARGIN)
    draw_comparison(painter, ink, comparison, FILE_WIDTH)


def _png(comparison: Comparison, ink: Ink) -> bytes:
    size = _file_size(comparison)
    image = QImage(size * PIXELS, QImage.Format.Format_RGB32)
    image.setDevicePixelRatio(PIXELS)
    painter = QPainter(image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    _draw(painter, comparison, ink, size)
    painter.end()
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # type: ignore[call-overload]
    return bytes(buffer.data().data())


def _svg(comparison: Comparison, ink: Ink) -> bytes:
    size = _file_size(comparison)
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    generator = QSvgGenerator()
    generator.setOutputDevice(buffer)
    generator.setSize(size)
    generator.setViewBox(QRect(0, 0, size.width(), size.height()))
    generator.setTitle(comparison.verdict())
    painter = QPainter(generator)
    _draw(painter, comparison, ink, size)
    painter.end()
    return bytes(buffer.data().data())
