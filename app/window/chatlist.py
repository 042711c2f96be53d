"""The list of chats in the sidebar: a model of rows (day headings and chats) and the delegate that paints them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFont, QPainter, QPen
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from app.chats.model import Chat
from app.theme import Theme, ui_font
from app.theme.color import mix
from app.window.rings import RING, paint_ring
from app.window.states import IDLE, ChatState, Stage, stage_words

Index = QModelIndex | QPersistentModelIndex


class ItemRole(IntEnum):
    CHAT_ID = Qt.ItemDataRole.UserRole + 1
    STATE = Qt.ItemDataRole.UserRole + 2


@dataclass(frozen=True, slots=True)
class Row:
    """A heading (`chat_id` empty) or a chat."""

    text: str
    chat_id: str = ""


class ChatListModel(QAbstractListModel):
    """Rows of the list. `renamed(chat id, title)` tells of an edit; nothing is changed here."""

    renamed = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[Row] = []
        self._places: dict[str, int] = {}
        self._states: dict[str, ChatState] = {}

    # ------------------------------------------------------------------------------------------------------- methods

    def show_groups(self, groups: Sequence[tuple[str, Sequence[Chat]]]) -> bool:
        """Show these groups. Does nothing, and says so, where they are shown already, so that it may be called freely."""
        rows: list[Row] = []
        for name, chats in groups:
            rows.append(Row(name))
            rows += [Row(chat.display_title, chat.id) for chat in chats]
        if rows == self._rows:
            return False
        self.beginResetModel()
        self._rows = rows
        self._places = {row.chat_id: place for place, row in enumerate(rows) if row.chat_id}
        self.endResetModel()
        return True

    def set_states(self, states: Mapping[str, ChatState]) -> None:
        """Set what the chats are doing; those that are left out are idle."""
        changed = [chat for chat in states.keys() | self._states.keys() if states.get(chat, IDLE) != self._states.get(chat, IDLE)]
        self._states = dict(states)
        for chat_id in changed:
            if chat_id in self._places:
                index = self.index(self._places[chat_id])
                self.dataChanged.emit(index, index, [ItemRole.STATE])

    def index_of(self, chat_id: str) -> QModelIndex:
        return self.index(self._places[chat_id]) if chat_id in self._places else QModelIndex()

    # --------------------------------------------------------------------------------------------------- Qt overrides

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 - Qt's own signature
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid():
            return None
        row = self._rows[index.row()]
        match role:
            case Qt.ItemDataRole.DisplayRole | Qt.ItemDataRole.EditRole | Qt.ItemDataRole.ToolTipRole:
                return row.text
            case ItemRole.CHAT_ID:
                return row.chat_id
            case ItemRole.STATE:
                return self._states.get(row.chat_id, IDLE)
            case Qt.ItemDataRole.AccessibleTextRole:
                stage = self._states.get(row.chat_id, IDLE).stage
                return row.text if stage is Stage.IDLE else f"{row.text}, {stage_words(stage)}"
        return None

    def flags(self, index: Index) -> Qt.ItemFlag:
        if index.isValid() and self._rows[index.row()].chat_id:
            return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsEditable
        return Qt.ItemFlag.NoItemFlags

    def setData(self, index: Index, value: object, role: int = Qt.ItemDataRole.EditRole) -> bool:
        if role != Qt.ItemDataRole.EditRole or not index.isValid():
            return False
        self.renamed.emit(self._rows[index.row()].chat_id, str(value))
        return True


class ChatDelegate(QStyledItemDelegate):
    """Paints headings and chats."""

    HEADING = 34
    CHAT = 34

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.theme = theme

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(180, self.CHAT if index.data(ItemRole.CHAT_ID) else self.HEADING)

    def updateEditorGeometry(self, editor: object, option: QStyleOptionViewItem, index: Index) -> None:
        editor.setGeometry(option.rect.adjusted(8, 1, -8, -1))  # type: ignore[attr-defined]

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        theme = self.theme
        rect = QRect(option.rect)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if not index.data(ItemRole.CHAT_ID):
            painter.setFont(ui_font(12, QFont.Weight.Medium))
            painter.setPen(QColor(theme.text_dim))
            painter.drawText(rect.adjusted(18, 0, -8, -5), Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignBottom, index.data())
            painter.restore()
            return
        selected = bool(option.state & QStyle.StateFlag.State_Selected)
        background = theme.sidebar
        if selected:
            background = mix(theme.text, theme.sidebar, 0.09)
        elif option.state & QStyle.StateFlag.State_MouseOver:
            background = mix(theme.text, theme.sidebar, 0.045)
        box = QRectF(rect).adjusted(8, 1, -8, -1)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(background))
        painter.drawRoundedRect(box, 8, 8)
        if option.state & QStyle.StateFlag.State_HasFocus:
            painter.setPen(QPen(QColor(theme.accent), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(box.adjusted(1, 1, -1, -1), 8, 8)
        state: ChatState = index.data(ItemRole.STATE)
        right = rect.right() - 18
        if state.stage is not Stage.IDLE:
            paint_ring(painter, QPointF(right - RING / 2, rect.center().y() + 1), state, theme, background)
            right -= RING + 8
        font = ui_font(13, QFont.Weight.Medium if selected or state.stage is Stage.UNREAD else QFont.Weight.Normal)
        painter.setFont(font)
        painter.setPen(QColor(theme.text if selected or state.stage is not Stage.IDLE else mix(theme.text, theme.text_dim, 0.5)))
        space = QRect(rect.left() + 18, rect.top(), right - rect.left() - 18, rect.height())
        text = painter.fontMetrics().elidedText(index.data(), Qt.TextElideMode.ElideRight, space.width())
        painter.drawText(space, Qt.AlignmentFlag.AlignVCenter, text)
        painter.restore()
