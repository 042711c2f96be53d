"""What each step decided, and why: the newest last, filtered by chat and by kind.

The model filters as it takes in, so that a long log costs nothing more than a short one. Holds the last `MOST` decisions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFont, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QComboBox,
    QHBoxLayout,
    QHeaderView,
    QLineEdit,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.dashboard import wording
from app.dashboard.ink import Ink, font
from app.dashboard.wording import translate
from app.theme import Theme
from engine import Decision, DecisionKind, StepRecord

MOST = 4096
ROW = 26
ROWS = 9
NARROW = 620  # below this the columns draw together
STEP, KIND, SEAT, CHAT, WHY = range(5)
Index = QModelIndex | QPersistentModelIndex
NOWHERE = QModelIndex()


class DecisionModel(QAbstractTableModel):
    """Decisions that pass the filter, oldest first.

    Attributes:
        shown: the rows. everything: all decisions held, whatever the filter.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.everything: deque[Decision] = deque(maxlen=MOST)
        self.shown: list[Decision] = []
        self._last_step = 0
        self._kind: DecisionKind | None = None
        self._chat = ""

    def extend(self, records: Iterable[StepRecord]) -> int:
        """Take the decisions of the records that are newer than what is here; returns how many rows were added."""
        fresh: list[Decision] = []
        for record in records:
            if record.step > self._last_step:
                self._last_step = record.step
                fresh += record.decisions
        self.everything.extend(fresh)
        rows = [decision for decision in fresh if self._passes(decision)][-MOST:]
        if rows:
            self.beginInsertRows(NOWHERE, len(self.shown), len(self.shown) + len(rows) - 1)
            self.shown += rows
            self.endInsertRows()
            surplus = len(self.shown) - MOST
            if surplus > 0:
                self.beginRemoveRows(NOWHERE, 0, surplus - 1)
                del self.shown[:surplus]
                self.endRemoveRows()
        return len(rows)

    def filter(self, kind: DecisionKind | None, chat: str) -> None:
        """Show only one kind (None: all) and only titles that contain `chat`, whatever the case; or the chat or request of that id."""
        self.beginResetModel()
        self._kind, self._chat = kind, chat.strip().casefold()
        self.shown = [decision for decision in self.everything if self._passes(decision)]
        self.endResetModel()

    def clear(self) -> None:
        self.beginResetModel()
        self.everything.clear()
        self.shown = []
        self._last_step = 0
        self.endResetModel()

    def row_of(self, step: int) -> int:
        """The first row of a step or of what came after it; -1 when there is none."""
        return next((row for row, decision in enumerate(self.shown) if decision.step >= step), -1)

    def _passes(self, decision: Decision) -> bool:
        if self._kind is not None and decision.kind is not self._kind:
            return False
        if not self._chat or self._chat in decision.title.casefold():
            return True
        # Ids are not seen, and are made of letters that any name may hold: only a whole one is meant.
        return self._chat in (decision.chat_id.casefold(), decision.request_id.casefold())

    def rowCount(self, parent: Index = NOWHERE) -> int:
        return 0 if parent.isValid() else len(self.shown)

    def columnCount(self, parent: Index = NOWHERE) -> int:
        return 0 if parent.isValid() else 5

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if orientation is Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole:
            return (
                translate("Dashboard", "Step"),
                translate("Dashboard", "What"),
                translate("Dashboard", "Seat"),
                translate("Dashboard", "Chat"),
                translate("Dashboard", "Why"),
            )[section]
        if role == Qt.ItemDataRole.TextAlignmentRole and section == STEP:
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        decision = self.shown[index.row()]
        column = index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return (
                wording.count(decision.step),
                wording.decision(decision.kind),
                "" if decision.seat is None else str(decision.seat + 1),
                decision.title,
                wording.setting(decision.detail),
            )[column]
        if role == Qt.ItemDataRole.ToolTipRole:
            return wording.setting(decision.detail)
        if role == Qt.ItemDataRole.UserRole:
            return decision
        if role == Qt.ItemDataRole.TextAlignmentRole and column == STEP:
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        return None


class DecisionTable(QTableView):
    """Says why where nothing is in it. Attributes: reason; empty while there is none."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.reason = ""

    def say(self, reason: str) -> None:
        if reason != self.reason:
            self.reason = reason
            self.setAccessibleDescription(reason)
            self.viewport().update()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self.reason:
            painter = QPainter(self.viewport())
            painter.setPen(self.palette().placeholderText().color())
            painter.drawText(self.viewport().rect(), Qt.AlignmentFlag.AlignCenter, self.reason)


class DecisionDelegate(QStyledItemDelegate):
    """Paints the kind as a dot and a word, the seat as its numbered disc."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.ink = Ink(theme)

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(80, ROW)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        decision = index.data(Qt.ItemDataRole.UserRole)
        rect = QRectF(option.rect)  # type: ignore[attr-defined]
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if option.state & QStyle.StateFlag.State_Selected:  # type: ignore[attr-defined]
            painter.fillRect(rect, option.palette.highlight())  # type: ignore[attr-defined]
        if index.column() == SEAT:
            self._paint_seat(painter, rect, decision)
        else:
            self._paint_kind(painter, rect, decision)
        painter.restore()

    def _paint_seat(self, painter: QPainter, rect: QRectF, decision: Decision) -> None:
        if decision.seat is None:
            return
        color = self.ink.seat(decision.seat)
        disc = QRectF(rect.x() + 8, rect.center().y() - 9, 18, 18)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(color)
        painter.drawEllipse(disc)
        painter.setPen(self.ink.on(color))
        painter.setFont(font(11, QFont.Weight.DemiBold))
        painter.drawText(disc, Qt.AlignmentFlag.AlignCenter, str(decision.seat + 1))

    def _paint_kind(self, painter: QPainter, rect: QRectF, decision: Decision) -> None:
        ink = self.ink
        bad = decision.kind in (DecisionKind.FAIL, DecisionKind.PREEMPT, DecisionKind.CANCEL)
        color = ink.danger if bad else ink.good if decision.kind in (DecisionKind.ADMIT, DecisionKind.FINISH) else ink.dim
        dot = QRectF(rect.x() + 9, rect.center().y() - 3.5, 7, 7)
        painter.setPen(color)
        painter.setBrush(Qt.BrushStyle.NoBrush if decision.kind in (DecisionKind.FINISH, DecisionKind.CANCEL) else color)
        painter.drawEllipse(dot)
        painter.setPen(ink.text)
        painter.setFont(font(12, QFont.Weight.Medium))
        painter.drawText(rect.adjusted(24, 0, -4, 0), Qt.AlignmentFlag.AlignVCenter, wording.decision(decision.kind))


class DecisionLog(QWidget):
    """The log with its filters.

    Signals:
        step_selected(step); open_chat(chat_id).
    """

    step_selected = Signal(int)
    open_chat = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.model = DecisionModel(self)
        self.chat = QLineEdit(self)
        self.chat.setPlaceholderText(translate("Dashboard", "Filter by chat"))
        self.chat.setClearButtonEnabled(True)
        clear = self.chat.findChild(QToolButton)
        if clear is not None:
            clear.setAccessibleName(translate("Dashboard", "Clear the filter"))
        self.chat.setAccessibleName(translate("Dashboard", "Filter decisions by chat"))
        self.kind = QComboBox(self)
        self.kind.setAccessibleName(translate("Dashboard", "Filter decisions by kind"))
        self.kind.addItem(translate("Dashboard", "Everything"), None)
        for kind in DecisionKind:
            self.kind.addItem(wording.decision(kind), kind)
        self.table = DecisionTable(self)
        self.table.setModel(self.model)
        self.table.setAccessibleName(translate("Dashboard", "Decisions"))
        self._delegate = DecisionDelegate(theme, self.table)
        for column in (KIND, SEAT):
            self.table.setItemDelegateForColumn(column, self._delegate)
        self._narrow: bool | None = None
        self._dress()
        self._share_out(False)
        filters = QHBoxLayout()
        filters.addWidget(self.chat, 1)
        filters.addWidget(self.kind)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(8)
        box.addLayout(filters)
        box.addWidget(self.table, 1)
        self.chat.textChanged.connect(self._filter)
        self.kind.currentIndexChanged.connect(self._filter)
        self.table.clicked.connect(self._select)
        self.table.activated.connect(self._open)

    def show_steps(self, records: tuple[StepRecord, ...]) -> None:
        bar = self.table.verticalScrollBar()
        follows = bar.value() >= bar.maximum() - 2
        if self.model.extend(records) and follows:
            self.table.scrollToBottom()
        self._say_why_empty()

    def show_step(self, step: int) -> None:
        """Scroll to what a step decided."""
        row = self.model.row_of(step)
        if row >= 0:
            self.table.scrollTo(self.model.index(row, 0), QAbstractItemView.ScrollHint.PositionAtCenter)
            self.table.selectRow(row)

    def clear(self) -> None:
        self.model.clear()
        self._say_why_empty()

    def set_theme(self, theme: Theme) -> None:
        self._delegate.ink = Ink(theme)
        self.table.viewport().update()

    def _dress(self) -> None:
        table = self.table
        table.setShowGrid(False)
        table.setWordWrap(False)
        table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        table.verticalHeader().hide()
        table.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        table.verticalHeader().setDefaultSectionSize(ROW)
        table.setFont(font(12))
        table.setTabKeyNavigation(False)
        header = table.horizontalHeader()
        header.setHighlightSections(False)
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        header.setStretchLastSection(True)
        header.setFixedHeight(ROW + 2)
        table.setFixedHeight(ROW + 2 + ROWS * ROW)  # whole rows: none is cut at the top

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._share_out(self.width() < NARROW)

    def _share_out(self, narrow: bool) -> None:
        """The columns' widths, so that the reason keeps room; what a person has drawn otherwise stays until the room changes."""
        if narrow is self._narrow:
            return
        self._narrow = narrow
        for column, width in enumerate((54, 96, 50, 108) if narrow else (64, 116, 48, 190)):
            self.table.horizontalHeader().resizeSection(column, width)

    def _filter(self) -> None:
        kind = self.kind.currentData()
        self.model.filter(DecisionKind(kind) if kind else None, self.chat.text())  # Qt hands a plain string back
        self.table.scrollToBottom()
        self._say_why_empty()

    def _say_why_empty(self) -> None:
        hidden = bool(self.model.everything) and not self.model.shown
        self.table.say(translate("Dashboard", "No decision passes this filter.") if hidden else "")

    def _select(self, index: QModelIndex) -> None:
        self.step_selected.emit(self.model.shown[index.row()].step)

    def _open(self, index: QModelIndex) -> None:
        chat = self.model.shown[index.row()].chat_id
        if chat:
            self.open_chat.emit(chat)
