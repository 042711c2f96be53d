"""The parts of the window and where they stand: tab row, sidebar, pages, dashboard, parameters, engine strip. Layout only, no behaviour.

The dashboard is made when it is first asked for; until then it costs nothing.
"""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QSplitter, QStackedWidget, QToolButton, QVBoxLayout, QWidget

from app.chats.book import ChatBook
from app.dashboard import DashboardPage, EngineStrip
from app.theme import Theme, icon
from app.window.bars import InlineBar
from app.window.panel import ParametersPanel
from app.window.sidebar import Sidebar
from app.window.tabstrip import HEIGHT, TabStrip

BESIDE_FROM = 980  # width of pages and dashboard together from which both have room


class TabRow(QWidget):
    """The row above the pages: tabs, a plus, and the switches of panel and dashboard."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.setFixedHeight(HEIGHT)
        self.tabs = TabStrip(theme, self)
        self.plus = _tool(self, "New chat (Ctrl+T)")
        self.panel_button = _tool(self, "Parameters (Ctrl+Shift+B)", checkable=True)
        self.dashboard_button = _tool(self, "Dashboard (Ctrl+D)", checkable=True)
        row = QHBoxLayout(self)
        row.setContentsMargins(6, 0, 8, 0)
        row.setSpacing(2)
        row.addWidget(self.tabs, 0, Qt.AlignmentFlag.AlignBottom)
        row.addWidget(self.plus)
        row.addStretch(1)
        row.addWidget(self.panel_button)
        row.addWidget(self.dashboard_button)
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self.tabs.set_theme(theme)
        for button, name in ((self.plus, "plus"), (self.panel_button, "sliders"), (self.dashboard_button, "dashboard")):
            button.setIcon(icon(name, theme.text_dim))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), QColor(self._theme.sidebar))

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.tabs.set_room(max(200, self.width() - 3 * 36 - 24))


class WindowParts(QWidget):
    """Everything inside the window.

    Signals:
        dashboard_made(page): the dashboard exists now and wants its signals connected.
    """

    dashboard_made = Signal(object)

    def __init__(self, engine: Any, book: ChatBook, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._theme = theme
        self.dashboard: DashboardPage | None = None
        self.sidebar = Sidebar(book, theme, self)
        self.row = TabRow(theme, self)
        self.tabs = self.row.tabs
        self.bar = InlineBar(self)  # what the person is asked
        self.engine_bar = InlineBar(self)  # why the engine stopped
        self.store_bar = InlineBar(self)  # why chats cannot be saved
        self.stack = QStackedWidget(self)
        self.stack.setMinimumWidth(360)
        self.panel = ParametersPanel(theme, self)
        self.panel.hide()
        self.strip = EngineStrip(engine, theme, self)
        self.splitter = QSplitter(Qt.Orientation.Horizontal, self)
        self.splitter.setChildrenCollapsible(False)
        self.splitter.setHandleWidth(1)
        self.splitter.addWidget(self.stack)
        self._lay_out()

    # ---------------------------------------------------------------------------------------------------- properties

    @property
    def dashboard_mode(self) -> str:
        """Where the dashboard is: "off", "beside" or "full"."""
        if self.dashboard is None or self.dashboard.isHidden():
            return "off"
        return "full" if self.stack.isHidden() else "beside"

    # ------------------------------------------------------------------------------------------------------- methods

    def set_dashboard(self, mode: str) -> None:
        """Show the dashboard "beside" the chat or "full", or turn it "off"."""
        if mode != "off" and self.dashboard is None:
            self.dashboard = DashboardPage(self._engine, self._theme)
            self.dashboard.hide()  # a splitter shows what it is given
            self.splitter.addWidget(self.dashboard)
            self.dashboard_made.emit(self.dashboard)
        if self.dashboard is not None:
            beside_before = self.dashboard_mode == "beside"
            self.stack.setVisible(mode != "full")
            self.dashboard.setVisible(mode != "off")
            if mode == "beside" and not beside_before:
                # Shares, not pixels: the window may not have its size yet.
                self.splitter.setSizes([4500, 5500])
        self.row.dashboard_button.setChecked(mode != "off")

    def toggle_dashboard(self) -> None:
        """On, beside the chat where there is room; or off."""
        wide = "beside" if self.splitter.width() >= BESIDE_FROM else "full"
        self.set_dashboard("off" if self.dashboard_mode != "off" else wide)

    def toggle_full_dashboard(self) -> None:
        self.set_dashboard("off" if self.dashboard_mode == "full" else "full")

    def toggle_sidebar(self) -> None:
        self.sidebar.set_collapsed(not self.sidebar.collapsed)

    def toggle_panel(self) -> None:
        self.panel.setVisible(self.panel.isHidden())
        self.row.panel_button.setChecked(not self.panel.isHidden())

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        for part in (self.sidebar, self.row, self.panel, self.strip):
            part.set_theme(theme)
        if self.dashboard is not None:
            self.dashboard.set_theme(theme)
        self.update()

    # --------------------------------------------------------------------------------------------------- Qt overrides

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), QColor(self._theme.window))

    # ------------------------------------------------------------------------------------------------------- private

    def _lay_out(self) -> None:
        bar_row = QHBoxLayout()
        bar_row.setContentsMargins(16, 0, 16, 0)
        bar_row.addStretch(1)
        bars = QVBoxLayout()
        bars.setSpacing(4)
        for bar in (self.store_bar, self.engine_bar, self.bar):
            bar.setMaximumWidth(820)
            bars.addWidget(bar)
        bar_row.addLayout(bars, 1000)
        bar_row.addStretch(1)
        pages = QHBoxLayout()
        pages.setSpacing(0)
        pages.addWidget(self.splitter, 1)
        pages.addWidget(self.panel)
        right = QVBoxLayout()
        right.setSpacing(0)
        right.addWidget(self.row)
        right.addLayout(bar_row)
        right.addLayout(pages, 1)
        upper = QHBoxLayout()
        upper.setSpacing(0)
        upper.addWidget(self.sidebar)
        upper.addLayout(right, 1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(upper, 1)
        layout.addWidget(self.strip)


def _tool(parent: QWidget, name: str, checkable: bool = False) -> QToolButton:
    button = QToolButton(parent)
    button.setIconSize(QSize(18, 18))
    button.setFixedSize(32, 32)
    button.setToolTip(name)
    button.setAccessibleName(name)
    button.setCheckable(checkable)
    return button
