"""How the pages of the models window are laid out: a column, and a list that scrolls."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget


def column(page: QWidget) -> QVBoxLayout:
    layout = QVBoxLayout(page)
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setSpacing(8)
    return layout


def scroller(parent: QWidget, name: str) -> tuple[QScrollArea, QVBoxLayout]:
    area = QScrollArea(parent)
    area.setAccessibleName(name)
    area.setWidgetResizable(True)
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    inside = QWidget(area)
    layout = QVBoxLayout(inside)
    layout.setContentsMargins(0, 0, 6, 0)
    layout.setSpacing(8)
    layout.addStretch(1)
    area.setWidget(inside)
    return area, layout


def clear(layout: QVBoxLayout) -> None:
    """Take all rows out; the stretch at the end stays."""
    while layout.count() > 1:
        item = layout.takeAt(0)
        if item is not None and (widget := item.widget()) is not None:
            widget.hide()
            widget.deleteLater()
