"""What a click on a link in a transcript asks for: an action, folded reasoning, a code block's source, or an address. Opens nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QUrl, Slot

from app.transcript.entries import AnswerEntry

if TYPE_CHECKING:
    from app.transcript.view import TranscriptView


class Anchors(QObject):
    """Turns anchors of one view into its signals."""

    def __init__(self, view: TranscriptView) -> None:
        super().__init__(view)
        self._view = view
        view.anchorClicked.connect(self.follow)

    @Slot(QUrl)
    def follow(self, url: QUrl) -> None:
        scheme, _, rest = url.toString().partition(":")
        message_id, _, number = rest.partition(":")
        if scheme == "action":
            self._view.action_asked.emit(message_id, number)  # the name comes first
        elif scheme == "thought":
            entry = self._view.entry_of(message_id)
            if isinstance(entry, AnswerEntry):
                entry.toggle_thought()
        elif scheme == "code":
            entry = self._view.entry_of(message_id)
            source = entry.code(int(number)) if isinstance(entry, AnswerEntry) else None
            if source is not None:
                self._view.code_copied.emit(source)
        else:
            self._view.link_asked.emit(url.toString())
