"""A row that wraps: controls side by side while there is room, in further rows when there is none."""

from __future__ import annotations

from itertools import pairwise

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import QLayout, QLayoutItem, QWidget


class FlowLayout(QLayout):
    """Items from left to right, wrapped; each row is centred on its tallest."""

    def __init__(self, parent: QWidget | None = None, *, gap: int = 12, row_gap: int = 10) -> None:
        super().__init__(parent)
        self.setContentsMargins(0, 0, 0, 0)
        self._gap = gap
        self._row_gap = row_gap
        self._items: list[QLayoutItem] = []

    def addItem(self, item: QLayoutItem) -> None:
        self._items.append(item)

    def count(self) -> int:
        return len(self._items)

    def itemAt(self, index: int) -> QLayoutItem | None:  # type: ignore[override]
        return self._items[index] if 0 <= index < len(self._items) else None

    def takeAt(self, index: int) -> QLayoutItem | None:  # type: ignore[override]
        return self._items.pop(index) if 0 <= index < len(self._items) else None

    def expandingDirections(self) -> Qt.Orientation:
        return Qt.Orientation(0)

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        return self._arrange(QRect(0, 0, width, 0), move=False)

    def setGeometry(self, rect: QRect) -> None:
        super().setGeometry(rect)
        self._arrange(rect, move=True)

    def sizeHint(self) -> QSize:
        return self.minimumSize()

    def minimumSize(self) -> QSize:
        size = QSize()
        for item in self._items:
            size = size.expandedTo(item.minimumSize())
        return size

    def _arrange(self, rect: QRect, *, move: bool) -> int:
        x, y, row_height = rect.x(), rect.y(), 0
        row: list[tuple[QLayoutItem, QPoint, QSize]] = []
        for item in self._items:
            widget = item.widget()
            if widget is not None and widget.isHidden():
                continue
            size = item.sizeHint()
            if row and x + size.width() > rect.x() + rect.width():
                self._place(row, row_height, move)
                x, y, row_height, row = rect.x(), y + row_height + self._row_gap, 0, []
            row.append((item, QPoint(x, y), size))
            x += size.width() + self._gap
            row_height = max(row_height, size.height())
        self._place(row, row_height, move)
        return y + row_height - rect.y()

    def _place(self, row: list[tuple[QLayoutItem, QPoint, QSize]], height: int, move: bool) -> None:
        if move:
            for item, at, size in row:
                item.setGeometry(QRect(QPoint(at.x(), at.y() + (height - size.height()) // 2), size))


def in_sequence(*widgets: QWidget) -> None:
    """Tab goes from each of these to the next."""
    for widget, following in pairwise(widgets):
        QWidget.setTabOrder(widget, following)
