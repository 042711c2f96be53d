"""Which messages of a transcript have their actions in sight: the last answer always, and the one that is pointed at or marked.

Owns the two action bars and the mark that Alt+Up and Alt+Down move; places them whenever the view has painted. Changes no message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QPainter

from app.chats.model import ChatMessage, Role
from app.theme import Theme
from app.transcript.actions import HEIGHT, ActionBar, Served
from app.transcript.entries import AnswerEntry, UserEntry

if TYPE_CHECKING:
    from app.transcript.view import TranscriptView


class MessageBars(QObject):
    """Signals:
    asked(name, message id): a button was pressed.
    """

    asked = Signal(str, str)

    def __init__(self, view: TranscriptView, theme: Theme) -> None:
        super().__init__(view)
        self._view = view
        self._theme = theme
        self._pointed: str | None = None
        self._marked: str | None = None
        self.pinned = ActionBar(theme, view.viewport())
        self.floating = ActionBar(theme, view.viewport())
        for bar in (self.floating, self.pinned):
            bar.asked.connect(self.asked)

    # ---------------------------------------------------------------------------------------------------- properties

    @property
    def marked(self) -> str | None:
        """The message that was chosen by keyboard."""
        return self._marked

    def current(self) -> ChatMessage | None:
        """The message that keys are about: the marked one, else the one pointed at, else the last answer, else the last message."""
        for message_id in (self._marked, self._pointed):
            if message_id and (entry := self._view.entry_of(message_id)):
                return entry.message
        messages = self._view.chat.messages if self._view.chat else []
        return next((m for m in reversed(messages) if m.role is Role.ASSISTANT), messages[-1] if messages else None)

    # ------------------------------------------------------------------------------------------------------- methods

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self.pinned.set_theme(theme)
        self.floating.set_theme(theme)

    def point_at(self, y: float | None) -> None:
        """The pointer is at this height of the viewport; None: nowhere."""
        entry = self._entry_at(y) if y is not None else None
        pointed = entry.message.id if entry else None
        if y is None and self._inside_floating():
            return  # it went onto the bar itself
        if pointed != self._pointed:
            self._pointed = pointed
            self._serve()
            self.place()

    def mark(self, message_id: str | None) -> None:
        """Choose a message, by keyboard, and show it; None lets go."""
        self._marked = message_id
        self._serve()
        self.place()
        self._view.viewport().update()

    def step(self, by: int) -> ChatMessage | None:
        """Move the mark up (-1) or down (+1); the first step marks the last message. Returns the marked message."""
        entries = self._view.entries
        if not entries:
            return None
        ids = [entry.message.id for entry in entries]
        place = ids.index(self._marked) + by if self._marked in ids else len(ids) - 1
        place = max(0, min(len(ids) - 1, place))
        self.mark(ids[place])
        self._view.reading.show_entry(entries[place])
        return entries[place].message

    def refresh(self) -> None:
        """Messages have changed: serve what is there now."""
        known = {entry.message.id for entry in self._view.entries}
        if self._marked not in known:
            self._marked = None
        if self._pointed not in known:
            self._pointed = None
        chat = self._view.chat
        for entry in self._view.entries:
            if isinstance(entry, AnswerEntry) and chat is not None:
                entry.set_forked(len(chat.tree.versions(entry.message)) > 1)
        self._serve()
        self.place()

    def place(self) -> None:
        """Put the bars where their messages are now. Called after each painting: layout and scrolling have settled then."""
        for bar in (self.pinned, self.floating):
            entry = self._view.entry_of(bar.served.message.id) if bar.served else None
            if entry is None:
                bar.hide()
                continue
            spot = self._spot(entry, bar)
            visible = spot.bottom() > 0 and spot.top() < self._view.viewport().height()
            if visible and bar.pos() != spot.topLeft().toPoint():
                bar.move(spot.topLeft().toPoint())
            if bar.isHidden() is visible:
                bar.setVisible(visible)

    def paint_mark(self, painter: QPainter) -> None:
        """A line beside the message that is marked, in the document's coordinates."""
        entry = self._view.entry_of(self._marked) if self._marked else None
        if entry is None:
            return
        rect = self._view.entry_rect(entry).translated(0, self._view.verticalScrollBar().value())
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(self._theme.accent))
        painter.drawRoundedRect(QRectF(self._view.column.left - 14, rect.top() + 6, 3, max(8.0, rect.height() - 14)), 1.5, 1.5)

    # ------------------------------------------------------------------------------------------------------- private

    def _serve(self) -> None:
        chat = self._view.chat
        last = self._view.entries[-1].message if self._view.entries and chat is not None else None
        in_view = last is not None and chat is not None and last is chat.last
        pinned = last if in_view and last is not None and not last.running else None
        self.pinned.serve(self._served(pinned))
        chosen = self._marked or self._pointed
        entry = self._view.entry_of(chosen) if chosen else None
        floating = entry.message if entry is not None and entry.message is not pinned else None
        self.floating.serve(self._served(floating))

    def _served(self, message: ChatMessage | None) -> Served | None:
        chat = self._view.chat
        if message is None or chat is None or message not in chat.tree:
            return None
        versions = chat.tree.versions(message)
        return Served(message, versions.index(message) + 1, len(versions), last=message is chat.last)

    def _spot(self, entry: UserEntry | AnswerEntry, bar: ActionBar) -> QRectF:
        layout = self._view.document().documentLayout()
        frame = entry.bar_frame
        rect = layout.frameBoundingRect(frame).translated(0, -self._view.verticalScrollBar().value())
        left = self._view.column.left
        margin = frame.frameFormat().bottomMargin()
        if isinstance(entry, UserEntry):
            return QRectF(left + self._view.column.width - bar.width(), rect.bottom() - margin - 3, bar.width(), HEIGHT)
        if margin >= HEIGHT:  # an error's card: below it
            return QRectF(left, rect.bottom() - margin + 2, bar.width(), HEIGHT)
        return QRectF(left - 6, rect.bottom() - margin - HEIGHT + 4, bar.width(), HEIGHT)

    def _entry_at(self, y: float) -> UserEntry | AnswerEntry | None:
        for entry in reversed(self._view.entries):
            rect = self._view.entry_rect(entry)
            if rect.top() <= y < rect.bottom():
                return entry
        return None

    def _inside_floating(self) -> bool:
        return self.floating.isVisible() and self.floating.underMouse()
