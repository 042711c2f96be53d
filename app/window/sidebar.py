"""The sidebar: New chat, search, the chats by day, and how the model is. Collapses to a strip of buttons."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from PySide6.QtCore import QEvent, QItemSelectionModel, QModelIndex, QObject, QPoint, QRectF, QSize, Qt, Signal, SignalInstance, Slot
from PySide6.QtGui import QColor, QKeyEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QBoxLayout,
    QFrame,
    QHBoxLayout,
    QLabel,
    QListView,
    QPushButton,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.chats.book import ChatBook
from app.chats.model import Chat
from app.chats.titles import group_by_day
from app.theme import Theme, icon, tabular, ui_font
from app.window.chatlist import ChatDelegate, ChatListModel, ItemRole
from app.window.chatmenu import ChatMenu
from app.window.keys import KEYS, in_words
from app.window.states import ChatState

WIDTH = 248
COLLAPSED = 56
MODEL_WIDTH = 150  # of the model's name, beside the buttons


class ModelBox(QAbstractButton):
    """The model's two lines, which are a button."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setToolTip(self.tr("Change the model  Ctrl+M"))
        self.setAccessibleName(self.tr("Model"))

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.click()
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.hasFocus():
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(QColor(self._theme.accent), 2))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), 8, 8)


class Sidebar(QWidget):
    """Signals carry a chat's id; nothing is changed here.

    Signals:
        new_chat_asked, theme_asked, collapse_asked: buttons.
        chat_opened(id): a click or Enter in the list.
        rename_asked(id, title): from the list; the menu of chats has signals of its own.
    """

    new_chat_asked = Signal()
    model_asked = Signal()
    theme_asked = Signal()
    collapse_asked = Signal()
    chat_opened = Signal(str)
    rename_asked = Signal(str, str)
    search_asked = Signal()
    settings_asked = Signal()

    def __init__(self, book: ChatBook, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._book = book
        self._theme = theme
        self._collapsed = False
        self._current: str | None = None
        self.setAccessibleName(self.tr("Sidebar"))
        self._build()
        self.set_theme(theme)
        self.set_collapsed(False)
        self.refresh()

    # ---------------------------------------------------------------------------------------------------- properties

    @property
    def collapsed(self) -> bool:
        return self._collapsed

    # ------------------------------------------------------------------------------------------------------- methods

    @Slot()
    def refresh(self) -> None:
        """Show the book as it is now."""
        if self.model.show_groups(self._grouped()):
            self.select(self._current)
        self.empty.setVisible(self.model.rowCount() == 0 and not self._collapsed)

    def select(self, chat_id: str | None) -> None:
        """Mark the chat in view."""
        self._current = chat_id
        index = self.model.index_of(chat_id) if chat_id else QModelIndex()
        self.list.selectionModel().setCurrentIndex(index, QItemSelectionModel.SelectionFlag.ClearAndSelect)

    def set_states(self, states: Mapping[str, ChatState]) -> None:
        self.model.set_states(states)

    def set_model(self, name: str, words: str, failed: bool) -> None:
        """The model's name and how it is."""
        self.model_name.setText(self.model_name.fontMetrics().elidedText(name, Qt.TextElideMode.ElideMiddle, MODEL_WIDTH))
        self.model_name.setToolTip(name)
        self.model_words.setText(self.model_words.fontMetrics().elidedText(words, Qt.TextElideMode.ElideMiddle, MODEL_WIDTH))
        self.model_words.setToolTip(words)
        kind = "danger" if failed else "small"
        if self.model_words.property("kind") != kind:
            self.model_words.setProperty("kind", kind)
            self.model_words.style().unpolish(self.model_words)
            self.model_words.style().polish(self.model_words)

    def set_collapsed(self, collapsed: bool) -> None:
        self._collapsed = collapsed
        self.setFixedWidth(COLLAPSED if collapsed else WIDTH)
        for widget in (self.name, self.list, self.model_box, self.empty):
            widget.setVisible(not collapsed)
        self.search.setText("" if collapsed else self._search_words())
        self._foot.setDirection(QBoxLayout.Direction.TopToBottom if collapsed else QBoxLayout.Direction.LeftToRight)
        self.new_button.setText("" if collapsed else "  " + self.tr("New chat"))  # Qt sets the icon close
        self._gap.setVisible(collapsed)
        if not collapsed:
            self.refresh()

    def _search_words(self) -> str:
        return f"{self.tr('Search')}   {in_words(KEYS['search'][:1])}"

    def _grouped(self) -> list[tuple[str, list[Chat]]]:
        """The chats by day, the names of the groups in the person's language."""
        names = {
            "Pinned": self.tr("Pinned"),
            "Today": self.tr("Today"),
            "Yesterday": self.tr("Yesterday"),
            "Previous 7 days": self.tr("Previous 7 days"),
            "Older": self.tr("Older"),
        }
        return [(names.get(name, name), chats) for name, chats in group_by_day(self._book.listed(), datetime.now())]

    def selected(self) -> list[str]:
        """The chats that are marked in the list, from top to bottom."""
        rows = sorted(self.list.selectionModel().selectedIndexes(), key=lambda index: index.row())
        return [chat_id for index in rows if (chat_id := index.data(ItemRole.CHAT_ID))]

    def rename(self, chat_id: str) -> None:
        """Edit a title in its place, which must be in sight for it."""
        index = self.model.index_of(chat_id)
        if index.isValid():
            if self._collapsed:
                self.set_collapsed(False)
            self.list.scrollTo(index)
            self.list.edit(index)

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self.delegate.theme = theme
        self.model_box.set_theme(theme)
        self.new_button.setIcon(icon("compose", theme.text))
        self.collapse_button.setIcon(icon("sidebar", theme.text_dim))
        self.settings_button.setIcon(icon("gear", theme.text_dim))
        self.search.setIcon(icon("search", theme.text_dim))
        self.theme_button.setIcon(icon("sun" if theme.is_dark else "moon", theme.text_dim))
        self.update()
        self.list.viewport().update()

    # --------------------------------------------------------------------------------------------------- Qt overrides

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), QColor(self._theme.sidebar))
        painter.fillRect(self.width() - 1, 0, 1, self.height(), QColor(self._theme.hairline))

    # ------------------------------------------------------------------------------------------------------- private

    def _build(self) -> None:
        self.name = QLabel("Omnibus", self)
        self.name.setFont(ui_font(15, self.name.font().weight().DemiBold))
        self.name.setStyleSheet("font-size: 15px; font-weight: 600;")
        self.collapse_button = self._tool(self.tr("Collapse the sidebar (Ctrl+B)"), self.collapse_asked)
        self.theme_button = self._tool(self.tr("Light or dark"), self.theme_asked)
        self.settings_button = self._tool(f"{self.tr('Settings')} ({in_words(KEYS['settings'][:1])})", self.settings_asked)
        self.menu = ChatMenu(self._book, self)
        self.menu.opened.connect(self.chat_opened)
        self.menu.renamed.connect(self.rename)
        self.new_button = QPushButton(self.tr("New chat"), self)
        self.new_button.setIconSize(QSize(18, 18))
        self.new_button.setAccessibleName(self.tr("New chat"))
        self.new_button.setToolTip(self.tr("New chat (Ctrl+T)"))
        self.new_button.clicked.connect(self.new_chat_asked)
        self.search = QPushButton(self._search_words(), self)
        self.search.setProperty("kind", "field")
        self.search.setAccessibleName(self.tr("Search all chats"))
        self.search.clicked.connect(self.search_asked)
        self.model = ChatListModel()
        self.delegate = ChatDelegate(self._theme)
        self.list = self._make_list()
        self.empty = QLabel(self.tr("Your chats will stand here."), self)
        self.empty.setProperty("kind", "small")
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.setContentsMargins(0, 12, 0, 0)
        self.model_name = QLabel(self)
        self.model_name.setTextFormat(Qt.TextFormat.PlainText)
        self.model_words = QLabel(self)
        self.model_words.setTextFormat(Qt.TextFormat.PlainText)
        self.model_words.setFont(tabular(ui_font(12)))
        self.model_words.setProperty("kind", "small")
        self.model_box = ModelBox(self._theme, self)
        self.model_box.clicked.connect(self.model_asked)
        box = QVBoxLayout(self.model_box)
        box.setContentsMargins(6, 2, 4, 2)  # room for the ring of the focus
        box.setSpacing(1)
        box.addWidget(self.model_name)
        box.addWidget(self.model_words)
        self._gap = QWidget(self)
        head = QHBoxLayout()
        head.setContentsMargins(6, 0, 0, 0)
        head.addWidget(self.name, 1)
        head.addWidget(self.collapse_button)
        self._foot = foot = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        foot.addWidget(self.model_box, 1)
        foot.addWidget(self.settings_button, 0, Qt.AlignmentFlag.AlignBottom | Qt.AlignmentFlag.AlignHCenter)
        foot.addWidget(self.theme_button, 0, Qt.AlignmentFlag.AlignBottom | Qt.AlignmentFlag.AlignHCenter)
        top = QVBoxLayout()
        top.setContentsMargins(10, 5, 10, 4)
        top.setSpacing(8)
        top.addLayout(head)
        top.addWidget(self.new_button)
        top.addWidget(self.search)
        bottom = QVBoxLayout()
        bottom.setContentsMargins(10, 6, 10, 8)
        bottom.addLayout(foot)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(top)
        layout.addWidget(self.empty)
        layout.addWidget(self.list, 1)
        layout.addWidget(self._gap, 1)
        layout.addLayout(bottom)

    def _tool(self, name: str, signal: SignalInstance) -> QToolButton:
        button = QToolButton(self)
        button.setIconSize(QSize(18, 18))
        button.setFixedSize(32, 32)
        button.setToolTip(name)
        button.setAccessibleName(name)
        button.clicked.connect(signal)
        return button

    def _make_list(self) -> QListView:
        view = QListView(self)
        view.setModel(self.model)
        view.setItemDelegate(self.delegate)
        view.setFrameShape(QFrame.Shape.NoFrame)
        view.setStyleSheet("QListView { background: transparent; }")
        view.setMouseTracking(True)
        view.setAttribute(Qt.WidgetAttribute.WA_MacShowFocusRect, False)
        view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        view.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        view.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        view.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        view.setAccessibleName(self.tr("Chats"))
        view.clicked.connect(self._on_clicked)
        view.activated.connect(self._on_clicked)
        view.customContextMenuRequested.connect(self._on_menu)
        view.installEventFilter(self)
        self.model.renamed.connect(self.rename_asked)
        return view

    # ------------------------------------------------------------------------------------------------------- events

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        pressed = watched is self.list and isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress
        if pressed and event.key() == Qt.Key.Key_Delete and self.selected():  # type: ignore[attr-defined]
            self.menu.deleted.emit(self.selected())
            return True
        return super().eventFilter(watched, event)

    @Slot(QModelIndex)
    def _on_clicked(self, index: QModelIndex) -> None:
        """One click opens; with Ctrl or Shift it only marks."""
        chat_id = index.data(ItemRole.CHAT_ID)
        if chat_id and chat_id != self._current and len(self.selected()) <= 1:
            self.chat_opened.emit(chat_id)

    @Slot(QPoint)
    def _on_menu(self, place: QPoint) -> None:
        chat_id = self.list.indexAt(place).data(ItemRole.CHAT_ID)
        if chat_id:
            marked = self.selected()
            self.menu.popup(marked if chat_id in marked else [chat_id], self.list.viewport().mapToGlobal(place))
