"""The parts of the window and where they stand: tab row, sidebar, pages, dashboard, parameters, engine strip. Layout only, no behaviour.

The dashboard is made when it is first asked for; until then it costs nothing.
"""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QEvent, QPoint, QSize, Qt, Signal, Slot
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QApplication, QHBoxLayout, QSplitter, QStackedWidget, QToolButton, QVBoxLayout, QWidget

from app.chats.book import ChatBook
from app.dashboard import DashboardPage, EngineStrip
from app.theme import Theme, icon
from app.window.bars import InlineBar
from app.window.page import ChatPage
from app.window.panel import ParametersPanel
from app.window.sidebar import WIDTH as SIDEBAR
from app.window.sidebar import Sidebar
from app.window.tabstrip import HEIGHT, TabStrip

LEAST_PAGE = 290  # what a chat needs, and is left with in the narrowest window beside the whole sidebar
GOOD_PAGE = 360  # what it is left with where a side can give way
LEAST_CHAT = 520  # what a chat keeps beside the dashboard
DASHBOARD_WIDTH, DASHBOARD_SHARE = 560, 0.42  # what the dashboard opens with: the larger of the two, as far as there is room
BESIDE_FROM = LEAST_CHAT + DashboardPage.LEAST_WIDTH  # width of pages and dashboard together from which both have room


class TabRow(QWidget):
    """The row above the pages: tabs, a list of all of them where not all are seen, a plus, and the switches of panel and dashboard."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.setFixedHeight(HEIGHT)
        self.tabs = TabStrip(theme, self)
        self.all_tabs = _tool(self, self.tr("All tabs (Ctrl+Shift+A)"))
        self.all_tabs.hide()
        self.plus = _tool(self, self.tr("New chat (Ctrl+T)"))
        self.panel_button = _tool(self, self.tr("Parameters (Ctrl+Shift+B)"), checkable=True)
        self.dashboard_button = _tool(self, self.tr("Dashboard (Ctrl+D)"), checkable=True)
        row = QHBoxLayout(self)
        row.setContentsMargins(6, 0, 8, 0)
        row.setSpacing(2)
        row.addWidget(self.tabs, 0, Qt.AlignmentFlag.AlignBottom)
        row.addWidget(self.all_tabs)
        row.addWidget(self.plus)
        row.addStretch(1)
        row.addWidget(self.panel_button)
        row.addWidget(self.dashboard_button)
        self.tabs.changed.connect(self._make_room)
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self.tabs.set_theme(theme)
        for button, name in (
            (self.all_tabs, "below"),
            (self.plus, "plus"),
            (self.panel_button, "sliders"),
            (self.dashboard_button, "dashboard"),
        ):
            button.setIcon(icon(name, theme.text_dim))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), QColor(self._theme.sidebar))

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._make_room()

    @Slot()
    def _make_room(self) -> None:
        room = max(200, self.width() - 3 * 36 - 24)
        crowded = self.tabs.needed > room
        if not crowded and self.all_tabs.hasFocus():
            self.tabs.setFocus()
        self.all_tabs.setVisible(crowded)
        self.tabs.set_room(room - 36 if crowded else room)


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
        self.demo_bar = InlineBar(self)  # what becomes of the demo's chats
        self.store_bar = InlineBar(self)  # why chats cannot be saved
        self.stack = QStackedWidget(self)
        self.stack.setMinimumWidth(LEAST_PAGE)
        self.panel = ParametersPanel(theme, self)
        self.panel.hide()
        self.strip = EngineStrip(engine, theme, self)
        self.splitter = QSplitter(Qt.Orientation.Horizontal, self)
        self.splitter.setChildrenCollapsible(False)
        self.splitter.setHandleWidth(1)
        self.splitter.addWidget(self.stack)
        self.splitter.splitterMoved.connect(self._divided_by_hand)
        self._waits_for_room = False  # a dashboard that was beside the chat
        self._cramped = False  # the sidebar was drawn in, so that there is room for the page
        self._narrow = False  # too narrow for the sidebar, at the last look
        self._floats = False  # the panel lies over the page
        self._divides = True  # until the person has moved the border
        self._chosen: list[int] = []  # the widths of another day, until there is a border again
        self._lay_out()

    # ---------------------------------------------------------------------------------------------------- properties

    @property
    def dashboard_mode(self) -> str:
        """Where the dashboard is: "off", "beside" or "full"."""
        if self.dashboard is None or self.dashboard.isHidden():
            return "off"
        return "full" if self.stack.isHidden() else "beside"

    @property
    def dashboard_wish(self) -> str:
        """Where it would be if the window were wide enough."""
        return "beside" if self._waits_for_room else self.dashboard_mode

    @property
    def sidebar_wish(self) -> bool:
        """Whether the sidebar would stand open if the window were wide enough."""
        return self._cramped or not self.sidebar.collapsed

    @property
    def divided(self) -> list[int]:
        """The widths of chat and dashboard as the person chose them; none where they did not."""
        if self._divides:
            return []
        return self._chosen or [size for size in self.splitter.sizes() if size]

    # ------------------------------------------------------------------------------------------------------- methods

    def divide(self, widths: list[int]) -> None:
        """Put the border where the person had it, as soon as there is one."""
        self._divides, self._chosen = False, widths
        self._divide()

    def set_dashboard(self, mode: str) -> None:
        """Show the dashboard "beside" the chat or "full", or turn it "off"."""
        self._waits_for_room = False
        if mode != "off" and self.dashboard is None:
            self.dashboard = DashboardPage(getattr(self._engine, "shown", self._engine), self._theme)
            self.dashboard.hide()  # a splitter shows what it is given
            self.splitter.addWidget(self.dashboard)
            self.dashboard_made.emit(self.dashboard)
        if self.dashboard is not None:
            typing, looking = self._holds_focus(self.stack), self._holds_focus(self.dashboard)
            self.dashboard.setMinimumWidth(DashboardPage.LEAST_WIDTH if mode == "beside" else LEAST_PAGE)
            self.stack.setVisible(mode != "full")
            self.stack.setMinimumWidth(LEAST_CHAT if mode == "beside" else LEAST_PAGE)
            self.dashboard.setVisible(mode != "off")
            if mode == "full" and typing:
                self.dashboard.scroller.setFocus()
            elif mode != "full" and looking:
                self._back_to_page()
            self._make_room()
            self._divide()
        self.row.dashboard_button.setChecked(mode != "off")

    def toggle_dashboard(self) -> None:
        """On, beside the chat where there is room; or off."""
        wide = "beside" if self.splitter.width() >= BESIDE_FROM else "full"
        self.set_dashboard("off" if self.dashboard_mode != "off" else wide)

    def toggle_full_dashboard(self) -> None:
        self.set_dashboard("off" if self.dashboard_mode == "full" else "full")

    def toggle_sidebar(self) -> None:
        self._cramped = False  # it is as the person wants it now
        self.sidebar.set_collapsed(not self.sidebar.collapsed)

    def toggle_panel(self) -> None:
        edited = self._holds_focus(self.panel)
        self.panel.setVisible(self.panel.isHidden())
        self.row.panel_button.setChecked(not self.panel.isHidden())
        self._make_room()
        if edited:
            self._back_to_page()

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        for part in (self.sidebar, self.row, self.panel, self.strip):
            part.set_theme(theme)
        if self.dashboard is not None:
            self.dashboard.set_theme(theme)
        self.update()

    def shut_down(self) -> None:
        """Stop what runs beside the window's thread."""
        if self.dashboard is not None:
            self.dashboard.shut_down()

    # --------------------------------------------------------------------------------------------------- Qt overrides

    def event(self, event: QEvent) -> bool:
        handled = super().event(event)
        if event.type() in (QEvent.Type.LayoutRequest, QEvent.Type.Resize, QEvent.Type.Show):
            self._make_room()
            self._divide()
        return handled

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), QColor(self._theme.window))

    # ------------------------------------------------------------------------------------------------------- private

    def _make_room(self) -> None:
        """A window that was made too narrow for all keeps the chat; the sides are back as soon as there is room."""
        if not self.isVisible():
            return
        self._draw_in()
        self._float()
        enough = self.splitter.width() >= BESIDE_FROM
        if self.dashboard_mode == "beside" and not enough:
            self.set_dashboard("off")
            self._waits_for_room = True
        elif self._waits_for_room and enough:
            self.set_dashboard("beside")

    def _divide(self) -> None:
        """Chat and dashboard get their widths, unless the person chose them."""
        if self.dashboard_mode != "beside":
            return
        if self._chosen and self.isVisible():
            self.splitter.setSizes(self._chosen)
            self._chosen = []
        if not self._divides:
            return
        room = self.splitter.width() - self.splitter.handleWidth()
        wanted = max(DASHBOARD_WIDTH, round(DASHBOARD_SHARE * room))
        width = max(DashboardPage.LEAST_WIDTH, min(wanted, room - LEAST_CHAT))
        if self.splitter.sizes()[1] != width:
            self.splitter.setSizes([room - width, width])

    def _draw_in(self) -> None:
        """The sidebar gives way when the window becomes too narrow for it; one that was opened in a narrow window stays."""
        page = DashboardPage.LEAST_WIDTH if self.dashboard_mode == "full" else GOOD_PAGE
        narrow = self.width() < SIDEBAR + page + (0 if self.panel.isHidden() else self.panel.width())
        if narrow == self._narrow:
            return
        self._narrow = narrow
        if narrow and not self.sidebar.collapsed:
            self._cramped = True
            self.sidebar.set_collapsed(True)
        elif not narrow and self._cramped:
            self._cramped = False
            self.sidebar.set_collapsed(False)

    def _float(self) -> None:
        """The panel stands beside the page, or lies over its right side where the window is too narrow for both."""
        floats = not self.panel.isHidden() and self.width() - self.sidebar.width() < GOOD_PAGE + self.panel.width()
        if floats != self._floats:
            self._floats = floats
            if floats:
                self._pages.removeWidget(self.panel)
            else:
                self._pages.addWidget(self.panel)
        if floats:
            top = self.splitter.mapTo(self, QPoint(0, 0)).y()
            self.panel.setGeometry(self.width() - self.panel.width(), top, self.panel.width(), self.strip.y() - top)
            self.panel.raise_()

    def _holds_focus(self, side: QWidget) -> bool:
        focused = QApplication.focusWidget()
        return focused is not None and side.isAncestorOf(focused)

    def _back_to_page(self) -> None:
        """What had the focus is hidden: one can write again."""
        page = self.stack.currentWidget()
        if isinstance(page, ChatPage) and page.isVisible():
            page.focus_composer()

    def _divided_by_hand(self) -> None:
        self._divides, self._chosen = False, []

    def _lay_out(self) -> None:
        bar_row = QHBoxLayout()
        bar_row.setContentsMargins(16, 0, 16, 0)
        bar_row.addStretch(1)
        bars = QVBoxLayout()
        bars.setSpacing(4)
        for bar in (self.store_bar, self.engine_bar, self.demo_bar, self.bar):
            bar.setMaximumWidth(820)
            bars.addWidget(bar)
        bar_row.addLayout(bars, 1000)
        bar_row.addStretch(1)
        pages = self._pages = QHBoxLayout()
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
