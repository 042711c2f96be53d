"""The table twin: the same data as the views, sortable, copyable, and read by a screen reader. Updated only while it is on show."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt, QTimer, Slot
from PySide6.QtGui import QGuiApplication, QKeyEvent, QKeySequence
from PySide6.QtWidgets import QAbstractItemView, QHBoxLayout, QTableView, QVBoxLayout, QWidget

from app.dashboard.comparison import Comparison
from app.dashboard.ink import font
from app.dashboard.kv_cells import kv_cells
from app.dashboard.segmented import Segmented
from app.dashboard.twin_rows import Sheet, Value, block_sheet, compare_sheet, figure_sheet, queue_sheet, seat_sheet, shown, step_sheet
from app.dashboard.wording import translate
from app.theme import Theme
from engine import Snapshot, StepRecord

Index = QModelIndex | QPersistentModelIndex
NOWHERE = QModelIndex()
ROW = 26
LONG_QUEUE_MS = 1000  # a queue of thousands takes some 30 ms to list, and nobody reads it faster


class SheetModel(QAbstractTableModel):
    """A sheet that sorts by value, and keeps its order when the values change."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.sheet = Sheet((), ())
        self._worded: set[int] = set()  # columns that hold words
        self._column = -1
        self._order = Qt.SortOrder.AscendingOrder

    def show_sheet(self, sheet: Sheet) -> None:
        same_shape = sheet.columns == self.sheet.columns and len(sheet.rows) == len(self.sheet.rows)
        ordered = Sheet(sheet.columns, self._sorted(sheet.rows) if sheet.columns == self.sheet.columns else sheet.rows)
        if same_shape:
            if ordered.rows != self.sheet.rows:
                self._take(ordered)
                self.dataChanged.emit(self.index(0, 0), self.index(len(ordered.rows) - 1, len(ordered.columns) - 1))
            return
        self.beginResetModel()
        if sheet.columns != self.sheet.columns:
            self._column = -1
        self._take(ordered)
        self.endResetModel()

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        self.layoutAboutToBeChanged.emit()
        self._column, self._order = column, order
        self.sheet = Sheet(self.sheet.columns, self._sorted(self.sheet.rows))
        self.layoutChanged.emit()

    def _sorted(self, rows: tuple[tuple[Value, ...], ...]) -> tuple[tuple[Value, ...], ...]:
        column = self._column
        if not 0 <= column < len(self.sheet.columns):
            return rows

        def key(row: tuple[Value, ...]) -> tuple[int, float, str]:
            value = row[column]
            return (2, 0.0, "") if value is None else (1, 0.0, value.casefold()) if isinstance(value, str) else (0, float(value), "")

        return tuple(sorted(rows, key=key, reverse=self._order == Qt.SortOrder.DescendingOrder))

    def text(self) -> str:
        """The sheet as tab-separated lines."""
        lines = ["\t".join(self.sheet.columns)]
        lines += ["\t".join("" if value is None else str(value) for value in row) for row in self.sheet.rows]
        return "\n".join(lines)

    def rowCount(self, parent: Index = NOWHERE) -> int:
        return 0 if parent.isValid() else len(self.sheet.rows)

    def columnCount(self, parent: Index = NOWHERE) -> int:
        return 0 if parent.isValid() else len(self.sheet.columns)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if orientation is not Qt.Orientation.Horizontal or section >= len(self.sheet.columns):
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return self.sheet.columns[section]
        return self._alignment(section) if role == Qt.ItemDataRole.TextAlignmentRole else None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        value = self.sheet.rows[index.row()][index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return shown(value)
        return self._alignment(index.column()) if role == Qt.ItemDataRole.TextAlignmentRole else None

    def _alignment(self, column: int) -> Qt.AlignmentFlag:
        """Numbers at the right, words at the left, and what stands over them alike."""
        side = Qt.AlignmentFlag.AlignLeft if column in self._worded else Qt.AlignmentFlag.AlignRight
        return side | Qt.AlignmentFlag.AlignVCenter

    def _take(self, sheet: Sheet) -> None:
        self.sheet = sheet
        worded = {column for row in sheet.rows for column, value in enumerate(row) if isinstance(value, str)}
        if worded != self._worded:
            self._worded = worded
            self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, max(0, len(sheet.columns) - 1))


class SheetView(QTableView):
    """A table whose Ctrl+C copies all of it."""

    def keyPressEvent(self, event: QKeyEvent) -> None:
        model = self.model()
        if event.matches(QKeySequence.StandardKey.Copy) and isinstance(model, SheetModel):
            QGuiApplication.clipboard().setText(model.text())
        else:
            super().keyPressEvent(event)


class TableTwin(QWidget):
    """Six sheets: seats, queue, blocks by owner, steps, every other figure, and the comparison of the policies."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.model = SheetModel(self)
        self.choice = Segmented(
            theme,
            translate("Dashboard", "Table"),
            {
                "seats": (translate("Dashboard", "Seats"), translate("Dashboard", "Every seat and who sits in it")),
                "queue": (translate("Dashboard", "Queue"), translate("Dashboard", "Who waits, and why")),
                "blocks": (translate("Dashboard", "Blocks"), translate("Dashboard", "KV blocks by owner")),
                "steps": (translate("Dashboard", "Steps"), translate("Dashboard", "The last steps, newest first")),
                "figures": (translate("Dashboard", "Figures"), translate("Dashboard", "Every other number of the engine")),
                "compare": (translate("Dashboard", "Policies"), translate("Dashboard", "Both policies on the same recorded load")),
            },
            self,
        )
        self.table = SheetView(self)
        self.table.setModel(self.model)
        self.table.setSortingEnabled(True)
        self.table.horizontalHeader().setSortIndicator(-1, Qt.SortOrder.AscendingOrder)
        self.table.setShowGrid(False)
        self.table.setWordWrap(False)
        self.table.setFont(font(12))
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setDefaultSectionSize(ROW)
        self.table.setTabKeyNavigation(False)
        self.table.setAccessibleName(translate("Dashboard", "The dashboard as a table"))
        self.table.setToolTip(translate("Dashboard", "Ctrl+C copies the whole table"))
        self._snapshot: Snapshot | None = None
        self._records: Sequence[StepRecord] = ()
        self._comparison: Comparison | None = None
        self._owed = False  # a long queue that was not listed yet
        self._rest = QTimer(self)
        self._rest.setSingleShot(True)
        self._rest.setInterval(LONG_QUEUE_MS)
        self._rest.timeout.connect(self._on_rested)
        top = QHBoxLayout()
        top.addWidget(self.choice)
        top.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addLayout(top)
        column.addWidget(self.table, 1)
        self.choice.asked.connect(self.show_sheet)

    def show_snapshot(self, snapshot: Snapshot, records: Sequence[StepRecord]) -> None:
        self._snapshot, self._records = snapshot, records
        if not self.isVisible():
            return
        if self.choice.choice != "queue" or snapshot.whole_queue is None:
            self._fill()
        elif self._rest.isActive():
            self._owed = True
        else:
            self._fill()
            self._rest.start()

    def show_comparison(self, comparison: Comparison | None) -> None:
        """What the comparison sheet shows from now on."""
        self._comparison = comparison
        if self.isVisible() and self.choice.choice == "compare":
            self.show_sheet("compare")

    def show_sheet(self, key: str) -> None:
        """One of "seats", "queue", "blocks", "steps", "figures", "compare"."""
        self.choice.show_choice(key)
        self.table.horizontalHeader().setSortIndicator(-1, Qt.SortOrder.AscendingOrder)
        self._fill()
        self.table.resizeColumnsToContents()

    def set_theme(self, theme: Theme) -> None:
        self.choice.set_theme(theme)

    def showEvent(self, event: object) -> None:
        super().showEvent(event)  # type: ignore[arg-type]
        self._fill()
        self.table.resizeColumnsToContents()

    @Slot()
    def _on_rested(self) -> None:
        owed, self._owed = self._owed, False
        if owed and self._snapshot is not None:
            self.show_snapshot(self._snapshot, self._records)

    def _fill(self) -> None:
        key = self.choice.choice
        if key == "compare":
            self.model.show_sheet(compare_sheet(self._comparison))
            return
        if self._snapshot is None:
            return
        snapshot = self._snapshot
        if key == "seats":
            self.model.show_sheet(seat_sheet(snapshot))
        elif key == "queue":
            self.model.show_sheet(queue_sheet(snapshot))
        elif key == "blocks":
            self.model.show_sheet(block_sheet(snapshot, kv_cells(snapshot.kv)))
        elif key == "steps":
            self.model.show_sheet(step_sheet(list(self._records)[-200:]))
        else:
            self.model.show_sheet(figure_sheet(snapshot))
