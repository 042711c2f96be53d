"""The KV block map: who owns which block, at a glance. Hover names the owner, a click goes to its chat.

One image, rebuilt only when the owners, the size or the emphasis changed; everything it shows is in `cells`.
"""

from __future__ import annotations

from math import ceil

import numpy as np
from PySide6.QtCore import QEvent, QPoint, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QImage, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QWidget

from app.dashboard import wording
from app.dashboard.canvas import Canvas
from app.dashboard.capsule import Press
from app.dashboard.ink import elided
from app.dashboard.kv_cells import KvCells, kv_cells
from app.dashboard.kv_legend import LINE, Entry, legend_height, paint_legend
from app.dashboard.kv_tiles import TileBank
from app.dashboard.letters import write
from app.dashboard.stamps import Stamps
from app.dashboard.untold import owners_told
from app.dashboard.wording import translate
from app.theme import Theme
from engine import OWNER_CACHED, OWNER_FREE, OWNER_SEAT0, OWNER_SHARED, KvView, SeatView, Snapshot

PITCHES = (20, 18, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3)
MOST_HEIGHT = 168
MOST_PATCHES = 96
NO_KV = KvView(0, 0, 0, 0, 0, b"")


class KvMap(Canvas):
    """The pool as a field of cells with a legend under it.

    Attributes:
        cells: what is shown.
    Signals:
        open_chat(chat_id); seat_hovered(seat, or -1).
    """

    open_chat = Signal(str)
    seat_hovered = Signal(int)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, translate("Dashboard", "KV block map"), parent)
        self.kv = NO_KV
        self.seats: tuple[SeatView | None, ...] = ()
        self.cells: KvCells = kv_cells(NO_KV)
        self._told = True  # the engine says which block is whose
        self._bank: TileBank | None = None
        self._pixels: np.ndarray | None = None
        self._index: np.ndarray | None = None  # the tile of each cell in _pixels
        self._ratio = 0.0
        self._stamps = Stamps()
        self._pitch, self._columns = PITCHES[0], 1
        self._cursor = -1
        self._hovered = -1
        self._marked = -1
        self.setFixedHeight(self.legend_height + PITCHES[0])

    # -------------------------------------------------------------------------------------------------------- properties

    @property
    def pitch(self) -> float:
        """Device-independent pixels a cell, rounded to whole device pixels."""
        ratio = self.devicePixelRatioF()
        return max(2, round(self._pitch * ratio)) / ratio

    @property
    def legend_height(self) -> int:
        return legend_height(self.width())

    def sizeHint(self) -> QSize:
        return QSize(900, self.height())

    # ----------------------------------------------------------------------------------------------------------- methods

    def show_snapshot(self, snapshot: Snapshot) -> None:
        before, known = self.kv, self._names()
        self.kv, self.seats, self._told = snapshot.kv, snapshot.seats, owners_told(snapshot)
        if snapshot.kv.owners != before.owners or (snapshot.kv != before and not self._told):
            counts = self.cells.counts
            self.cells = kv_cells(snapshot.kv)
            if snapshot.kv.total != before.total:
                self._fit()
                self.update()
            else:
                self._patch()
            renamed = not np.array_equal(counts, self.cells.counts)
        else:
            renamed = snapshot.kv != before
        if renamed or self._names() != known:
            self.update(0, self.height() - self.legend_height, self.width(), self.legend_height)
            self.describe(self.summary)

    def _names(self) -> list[str]:
        return [view.title if view is not None else "" for view in self.seats]

    def summary(self) -> str:
        kv = self.kv
        words = translate("Dashboard", "{0} blocks of {1} tokens: {2} in use, {3} shared, {4} cached, {5} free.").format(
            wording.count(kv.total),
            kv.block_size,
            wording.count(kv.referenced),
            wording.count(self.cells.count(OWNER_SHARED)),
            wording.count(kv.cached),
            wording.count(kv.free),
        )
        return " ".join([words, *(f"{self._owner(code)}: {wording.count(blocks)}." for code, blocks in self._owners())])

    def mark_seat(self, seat: int) -> None:
        """Dim all but one seat's blocks; -1 for none."""
        if seat != self._marked:
            self._marked = seat
            self._pixels = None
            self.update()

    def cell_at(self, point: QPoint) -> int:
        """The cell under a point of the widget, -1 for none."""
        column, row = int(point.x() / self.pitch), int(point.y() / self.pitch)
        cell = row * self._columns + column
        inside = 0 <= column < self._columns and row >= 0 and cell < self.cells.cells
        return cell if inside else -1

    def words_for(self, cell: int) -> str:
        """What a cell is: its block or blocks, and who owns them."""
        span = self.cells.span(cell)
        if self.cells.group == 1:
            head = translate("Dashboard", "Block {0}").format(wording.count(span.start + 1))
            return f"{head}: {self._owner(int(self.cells.codes[cell]), many=False)}"
        head = translate("Dashboard", "Blocks {0} to {1}").format(wording.count(span.start + 1), wording.count(span.stop))
        parts = sorted(self.cells.parts(cell).items(), key=lambda part: -part[1])
        return f"{head}: " + ", ".join(f"{blocks} {self._owner(code)}" for code, blocks in parts)

    def theme_changed(self) -> None:
        self._bank = None
        self._pixels = None
        self._stamps.clear()

    # ------------------------------------------------------------------------------------------------------------ owners

    def _owner(self, code: int, many: bool = True) -> str:
        if code == OWNER_FREE:
            return translate("Dashboard", "free")
        if code == OWNER_CACHED:
            return translate("Dashboard", "cached") if many else translate("Dashboard", "cached, given away when needed")
        if code == OWNER_SHARED and not self._told:
            return translate("Dashboard", "in use") if many else translate("Dashboard", "in use, by whom is not told")
        if code == OWNER_SHARED:
            return translate("Dashboard", "shared") if many else translate("Dashboard", "shared prefix, held by several answers")
        seat = code - OWNER_SEAT0
        title = self._title(seat)
        return translate("Dashboard", "seat {0}").format(seat + 1) + (f", {title}" if title else "")

    def _title(self, seat: int) -> str:
        view = self.seats[seat] if seat < len(self.seats) else None
        return " ".join(view.title.split()) if view is not None else ""

    def _owners(self) -> list[tuple[int, int]]:
        """Seats that own blocks, as (code, blocks)."""
        return [(code, int(self.cells.counts[code])) for code in range(OWNER_SEAT0, len(self.cells.counts)) if self.cells.counts[code]]

    # ---------------------------------------------------------------------------------------------------------- painting

    def _fit(self) -> None:
        """The largest cells with which the whole pool stays low enough to be seen at once."""
        cells, width = max(1, self.cells.cells), max(1, self.width())
        for pitch in PITCHES:
            self._pitch = pitch
            self._columns = max(1, int(width / self.pitch))
            height = -(-cells // self._columns) * self.pitch
            if height <= MOST_HEIGHT:
                break
        self._pixels = None
        self.setFixedHeight(round(height) + self.legend_height)

    def image(self) -> QImage:
        """The map as it is painted, at device pixels; it looks at the same memory, so it lasts until the next call."""
        ratio = self.devicePixelRatioF()
        if self._pixels is None or self._ratio != ratio:
            self._ratio = ratio
            self._index = self._tiles(ratio)
            assert self._bank is not None
            self._pixels = self._bank.image(self._index, self._columns)
        height, width = self._pixels.shape
        image = QImage(self._pixels.data, width, height, width * 4, QImage.Format.Format_RGB32)
        image.setDevicePixelRatio(ratio)
        return image

    def _tiles(self, ratio: float) -> np.ndarray:
        """The number of each cell's tile, from a bank that has them all."""
        pitch = max(2, round(self._pitch * ratio))
        codes = max(len(self.cells.counts), OWNER_SEAT0 + len(self.seats))
        if self._bank is None or self._bank.pitch != pitch or self._bank.codes != codes:
            self._bank = TileBank(self.ink, pitch, ratio, codes)
            self._pixels = None
        emphasis = OWNER_SEAT0 + self._marked if self._marked >= 0 else -1
        return self._bank.index(self.cells.codes, self.cells.levels, emphasis)

    def _patch(self) -> None:
        """Bring the picture up to date: the cells that changed, or all of them when they are many."""
        if self._pixels is None or self._index is None or self._ratio != self.devicePixelRatioF():
            self._pixels = None
            self.update()
            return
        index = self._tiles(self._ratio)
        if self._pixels is None or self._bank is None or len(index) != len(self._index):
            self._pixels = None
            self.update()
            return
        changed = np.flatnonzero(index != self._index)
        self._index = index
        if len(changed) > MOST_PATCHES:
            self._pixels = self._bank.image(index, self._columns)
            self.update(0, 0, self.width(), self.height() - self.legend_height)
            return
        side = self._bank.pitch
        for cell in changed.tolist():
            row, column = divmod(cell, self._columns)
            self._pixels[row * side : (row + 1) * side, column * side : (column + 1) * side] = self._bank.tiles[index[cell]]
        if len(changed):  # one rectangle round all of them: Qt is slower with many small ones
            top, bottom = int(changed[0]) // self._columns, int(changed[-1]) // self._columns + 1
            self.update(0, int(top * self.pitch), self.width(), ceil((bottom - top) * self.pitch) + 1)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(event.rect(), self.ink.surface)
        if self.cells.cells:
            painter.drawImage(0, 0, self.image())
        spot = self._hovered if self._hovered >= 0 else (self._cursor if self.hasFocus() else -1)
        if 0 <= spot < self.cells.cells:
            row, column = divmod(spot, self._columns)
            painter.setPen(QPen(self.ink.text, 1))
            painter.drawRect(int(column * self.pitch) - 1, int(row * self.pitch) - 1, int(self.pitch), int(self.pitch))
        top = self.height() - self.legend_height
        if event.rect().bottom() >= top:
            self._paint_legend(painter, spot, top)
        self.paint_focus(painter, None, 6)

    def _paint_legend(self, painter: QPainter, spot: int, top: int) -> None:
        if 0 <= spot < self.cells.cells:
            painter.setPen(self.ink.text)
            write(painter, QRectF(0, top + 8, self.width(), LINE), elided(self.words_for(spot), self.width(), 12), 12)
            return
        press = Press(self.ink, self._stamps, self.devicePixelRatioF())
        paint_legend(painter, press, QRectF(0, top, self.width(), self.legend_height), *self.legend())

    def legend(self) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
        """(seats, the rest), as shown under the map."""
        owners = tuple(Entry(code, blocks, self._title(code - OWNER_SEAT0)) for code, blocks in self._owners())
        plain = (OWNER_SHARED, OWNER_CACHED, OWNER_FREE)
        used = "" if self._told else translate("Dashboard", "in use")
        return owners, tuple(Entry(code, self.cells.count(code), used if code == OWNER_SHARED else "") for code in plain)

    # ------------------------------------------------------------------------------------------------------------ people

    def _hover(self, cell: int) -> None:
        if cell == self._hovered:
            return
        self._hovered = cell
        code = int(self.cells.codes[cell]) if cell >= 0 else 0
        self.setCursor(Qt.CursorShape.PointingHandCursor if code >= OWNER_SEAT0 else Qt.CursorShape.ArrowCursor)
        self.seat_hovered.emit(code - OWNER_SEAT0 if code >= OWNER_SEAT0 else -1)
        self.update()

    def _open(self, cell: int) -> None:
        seat = int(self.cells.codes[cell]) - OWNER_SEAT0
        view = self.seats[seat] if 0 <= seat < len(self.seats) else None
        if view is not None:
            self.open_chat.emit(view.chat_id)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._hover(self.cell_at(event.position().toPoint()))

    def leaveEvent(self, event: QEvent) -> None:
        self._hover(-1)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        cell = self.cell_at(event.position().toPoint())
        if cell >= 0 and event.button() is Qt.MouseButton.LeftButton:
            self._open(cell)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {Qt.Key.Key_Right: 1, Qt.Key.Key_Left: -1, Qt.Key.Key_Down: self._columns, Qt.Key.Key_Up: -self._columns}
        step = steps.get(Qt.Key(event.key()))
        if step is not None and self.cells.cells:
            self._cursor = min(max(0, self._cursor + step), self.cells.cells - 1)
            self.setAccessibleDescription(self.words_for(self._cursor))
            self.update()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and 0 <= self._cursor < self.cells.cells:
            self._open(self._cursor)
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit()
