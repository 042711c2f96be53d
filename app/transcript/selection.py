"""What is selected in a transcript, beyond what Qt knows of it: the whole chat, of which only a stretch is written; and what the mouse was
drawn over, or the keyboard has reached, from one message, or block of code, into another.

A text cursor whose ends lie in two frames is stretched by Qt until it holds them whole. So where that would happen, Qt's cursor has no
selection, and the two ends, the marks over what lies between them and the copy of it are ours. Owns those, and the menu of a right click;
reads the view and its chat, changes neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QPoint, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QClipboard, QGuiApplication, QKeyEvent, QKeySequence, QMouseEvent, QPalette, QTextCursor
from PySide6.QtWidgets import QMenu, QTextEdit

from app.chats.model import Chat, Role
from app.transcript.caret import Caret
from app.transcript.copying import said_in, source_of
from app.transcript.markdown import clean, link_target
from engine import split_reasoning

if TYPE_CHECKING:
    from app.transcript.view import TranscriptView


SCROLL_MS = 40  # between two scrolls while the mouse is held above or below the view
SCROLL_SHARE = 0.4  # of the pixels it is away, at each


class Selection(QObject):
    """Signals:
        changed: our own ends were set or let go. Qt tells of its own selection itself.

    Attributes:
        everything: the whole chat was selected, and nothing was since.
    """

    changed = Signal()

    def __init__(self, view: TranscriptView) -> None:
        super().__init__(view)
        self._view = view
        self._selecting = False
        self.everything = False
        self._ends: tuple[QTextCursor, QTextCursor] | None = None  # where it was begun, and where it reaches to
        self._begun: QTextCursor | None = None  # where the mouse went down, while it is held
        self._mouse = QPoint()
        self._caret = Caret(view)
        self._scroll = QTimer(self)
        self._scroll.setInterval(SCROLL_MS)
        self._scroll.timeout.connect(self._scroll_on)

    @property
    def span(self) -> tuple[int, int] | None:
        """The first position of what is selected and the one behind it; None without a selection."""
        if self._ends is not None:
            first, second = sorted(end.position() for end in self._ends)
            return (first, second) if first < second else None
        cursor = self._view.textCursor()
        return (cursor.selectionStart(), cursor.selectionEnd()) if cursor.hasSelection() else None

    # ----------------------------------------------------------------------------------------------------------- mouse

    def press(self, event: QMouseEvent) -> bool:
        """The left button goes down. False where Qt is to hear of it, as of every click without Shift."""
        place = self._at(event.position().toPoint())
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            begun = self._begun = self._ends[0] if self._ends is not None else self._end(self._view.textCursor().anchor())
            self._set(begun, place)
            return True
        span = self.span if self._ends is None else None
        if span is not None and span[0] <= place < span[1]:
            self._begun = None  # of what is selected something may be dragged away, which is Qt's business
        else:
            self._let_go()
            self._begun = self._end(place)
        return False

    def leave_to_qt(self) -> None:
        """Words or blocks are selected, by a double or triple click."""
        self._begun = None
        self._let_go()

    def draw_to(self, event: QMouseEvent) -> bool:
        """The mouse was moved with the left button held. False where Qt is to follow it."""
        if self._begun is None or not event.buttons() & Qt.MouseButton.LeftButton:
            return False
        self._mouse = event.position().toPoint()
        inside = self._view.viewport().rect().contains(self._mouse)
        if inside:
            self._scroll.stop()
        elif not self._scroll.isActive():
            self._scroll.start()
        place = self._at(self._mouse)
        if self.span is None and place == self._begun.position():
            return False  # nothing is selected yet, and a click on a link must stay one
        self._set(self._begun, place)
        return True

    def release(self) -> bool:
        """The button was let go. True after a selection of ours: it ends on no link, whatever lies under it."""
        drawn = self._begun is not None and self._ends is not None
        self._begun = None
        self._scroll.stop()
        clipboard = QGuiApplication.clipboard()
        if drawn and clipboard.supportsSelection():
            clipboard.setText(self.source(), QClipboard.Mode.Selection)
        return drawn

    def forget(self) -> None:
        """The document is written anew."""
        self._begun = None
        self._let_go()

    @Slot()
    def _scroll_on(self) -> None:
        view, rect = self._view, self._view.viewport().rect()
        if self._begun is None:
            self._scroll.stop()
            return
        away = min(0, self._mouse.y() - rect.top()) + max(0, self._mouse.y() - rect.bottom())
        bar = view.verticalScrollBar()
        bar.setValue(bar.value() + round(SCROLL_SHARE * away))
        self._set(self._begun, self._at(self._mouse))

    def _at(self, point: QPoint) -> int:
        rect = self._view.viewport().rect()
        within = QPoint(point.x(), max(rect.top(), min(point.y(), rect.bottom())))
        return self._view.cursorForPosition(within).position()

    def _end(self, position: int) -> QTextCursor:
        end = QTextCursor(self._view.document())
        end.setPosition(position)
        end.setKeepPositionOnInsert(True)
        return end

    def _set(self, begun: QTextCursor, place: int) -> None:
        """Select from where it was begun to a place."""
        cursor = QTextCursor(begun)
        cursor.setKeepPositionOnInsert(False)
        cursor.setPosition(place, QTextCursor.MoveMode.KeepAnchor)
        exact = (cursor.selectionStart(), cursor.selectionEnd()) == tuple(sorted((begun.position(), place)))
        if not exact:
            cursor.setPosition(place)
        with self.ours():
            self._view.setTextCursor(cursor)
        self.everything = False
        had, self._ends = self._ends is not None, None if exact else (begun, self._end(place))
        if had or not exact:
            self._show()

    def _let_go(self) -> None:
        if self._ends is not None:
            self._ends = None
            self._show()

    def _show(self) -> None:
        self._view.set_marks("selection", self._marks())
        self.changed.emit()

    def _marks(self) -> list[QTextEdit.ExtraSelection]:
        """Over all that a copy gives, so not over headers and figures; one a stretch of a block, since no cursor reaches over a frame's
        border."""
        if self._ends is None or self.span is None:
            return []
        first, last = self.span
        palette, marks = self._view.palette(), []
        block = self._view.document().findBlock(first)
        while block.isValid() and block.position() < last:
            for start, end in said_in(block):
                if start < last and end > first:
                    mark = QTextEdit.ExtraSelection()
                    cursor = QTextCursor(block)
                    cursor.setPosition(max(start, first))
                    cursor.setPosition(min(end, last), QTextCursor.MoveMode.KeepAnchor)
                    mark.cursor = cursor  # type: ignore[attr-defined]
                    mark.format.setBackground(palette.brush(QPalette.ColorRole.Highlight))  # type: ignore[attr-defined]
                    mark.format.setForeground(palette.brush(QPalette.ColorRole.HighlightedText))  # type: ignore[attr-defined]
                    marks.append(mark)
            block = block.next()
        return marks

    # -------------------------------------------------------------------------------------------------------- keyboard

    def reach(self, event: QKeyEvent) -> bool:
        """A key that makes a selection longer or shorter. False for every other, which is Qt's."""
        view = self._view
        if self._ends is not None:
            begun, place = self._ends[0], self._ends[1].position()
        elif self.span is not None:
            begun, place = self._end(view.textCursor().anchor()), view.textCursor().position()
        else:
            place = self._caret.in_sight(view.textCursor().position())
            begun = self._end(place)
        reached = self._caret.step(event, place)
        if reached is None:
            return False
        self._set(begun, reached)
        view.reading.reveal(self._end(reached))
        return True

    # ------------------------------------------------------------------------------------------------------- the whole

    def select_all(self) -> None:
        """Select all that is written, and mean the whole chat."""
        self.forget()
        with self.ours():
            self._view.selectAll()
        self.everything = self._view.textCursor().hasSelection()

    @contextmanager
    def ours(self) -> Iterator[None]:
        """What Qt tells of its selection meanwhile is not a person's doing."""
        self._selecting = True
        try:
            yield
        finally:
            self._selecting = False

    def note_change(self) -> None:
        """Qt's selection has changed."""
        if not self._selecting:
            self.everything = False
            self._let_go()

    def note_written(self) -> None:
        """More of the chat was written: it is selected, too, if all is."""
        if self.everything:
            self.select_all()

    def source(self) -> str:
        """What a copy gives: the source, in the order of the chat."""
        view = self._view
        if self.everything and view.chat is not None:
            return source_of_chat(view.chat)
        first, last = self.span or (0, 0)
        return source_of(view.document(), first, last, [entry.part() for entry in view.entries])

    def menu(self, place: QPoint) -> QMenu:
        """The menu of a right click at a place of the viewport."""
        view = self._view
        menu = QMenu(view)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        copy = menu.addAction(self.tr("Copy"), QKeySequence(QKeySequence.StandardKey.Copy), view.copy)
        copy.setEnabled(self.span is not None)
        menu.addAction(self.tr("Select all"), QKeySequence(QKeySequence.StandardKey.SelectAll), self.select_all)
        if target := link_target(view.anchorAt(place)):
            menu.addSeparator()
            menu.addAction(self.tr("Copy link address"), lambda: QGuiApplication.clipboard().setText(target))
        return menu


def source_of_chat(chat: Chat) -> str:
    """All that was said on the path in view, as it was written; reasoning is left out, as it is folded away."""
    texts = (message.text if message.role is Role.USER else split_reasoning(message.text)[1] for message in chat.messages)
    return "\n\n".join(piece for text in texts if (piece := clean(text).strip("\n")))
