"""The page of one open chat: its transcript, its composer, and what is asked about it.

Mirrors one chat of the book. It changes nothing by itself: what the person does goes out as signals, and `refresh` brings the page up to
the chat. A page that is not in view is left alone; showing it catches up.
"""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, QUrl, Signal, Slot
from PySide6.QtGui import QDesktopServices, QDragEnterEvent, QDropEvent, QGuiApplication, QHideEvent, QResizeEvent
from PySide6.QtWidgets import QFileDialog, QGridLayout, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.chats.model import Attachment, Chat, ChatMessage, Role, Said
from app.composer import Composer
from app.theme import Theme
from app.transcript.find_bar import FindBar
from app.transcript.markdown import shown_address
from app.transcript.view import TranscriptView
from app.translations import later
from app.window.bars import InlineBar
from app.window.states import ChatState
from engine import split_reasoning

MARGIN = 16
SUGGESTIONS = (
    (
        later("ChatPage", "Explain how a city bus is like a batch"),
        later("ChatPage", "Explain, with a city bus as the picture, how a server can answer many chats at once."),
    ),
    (
        later("ChatPage", "Write a short poem about patience"),
        later("ChatPage", "Write a short poem about patience, four lines long."),
    ),
    (
        later("ChatPage", "Plan a rainy Sunday"),
        later("ChatPage", "Suggest five things to do on a rainy Sunday at home, as a list."),
    ),
    (
        later("ChatPage", "Show me a small Python program"),
        later("ChatPage", "Write a small Python program that prints the first ten prime numbers, and explain it."),
    ),
)


class ChatPage(QWidget):
    """One chat in view.

    Signals:
        sent(text, attachments), stop_asked: the person wants this of the engine.
        message_asked(name, message id): an action on one message, see `ActionBar`; "edit" and "copy" are served here.
        edited(message id, text, attachments): another version of a message. undo_asked: the last deletion is to be taken back.
        draft_changed(text), files_changed(attachments), follow_up_edited(place), follow_up_removed(place): from the composer.
        copied(text): something is to go to the clipboard.
        left(ScrollPlace or None): the page is not in view any more; this is where its reader stood.
    """

    sent = Signal(str, object)
    stop_asked = Signal()
    message_asked = Signal(str, str)
    edited = Signal(str, str, object)
    undo_asked = Signal()
    draft_changed = Signal(str)
    files_changed = Signal(object)
    follow_up_edited = Signal(int)
    follow_up_removed = Signal(int)
    copied = Signal(str)
    left = Signal(object)

    def __init__(self, chat: Chat, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.chat = chat
        self._link = ""
        self._edited: str | None = None  # the message whose next version is being written
        self._shown_queue: tuple[Said, ...] = ()
        self._shown_active = False
        self._welcome = QWidget(self)
        self._suggestions = QWidget(self)
        self.suggestions: list[QPushButton] = []
        self._columns = 0  # in which they stand
        self.view = TranscriptView(theme, self)
        self.composer = Composer(theme, self)
        self.find_bar = FindBar(self.view.finder, theme, self)
        self.bar = InlineBar(self)
        self.undo_bar = InlineBar(self)
        self.setAcceptDrops(True)
        self._build()
        self._connect()
        self.composer.set_text(chat.draft)
        self.composer.files.set_files(chat.draft_files)
        self.view.show_chat(chat)
        self.refresh(active=False)

    # ------------------------------------------------------------------------------------------------------- methods

    def refresh(self, active: bool) -> None:
        """Bring everything up to the chat. `active`: an answer of it is under way."""
        empty = self.chat.empty
        if self._welcome.isHidden() != (not empty) or self.view.isHidden() != empty:
            self._show_welcome(empty)
        self.composer.set_running(active)
        if self._queue_key() != self._shown_queue or active != self._shown_active:
            self._shown_queue, self._shown_active = self._queue_key(), active
            self.composer.set_follow_ups(self.chat.follow_ups, held=not active)
        self.view.sync()

    def sync_text(self) -> None:
        """More text came: only the transcript has to change."""
        self.view.sync_text()

    def set_state(self, state: ChatState) -> None:
        """How the answer being written is getting on, in words under it."""
        self.view.set_status(state.words)

    def set_placeholder(self, words: str) -> None:
        self.composer.set_placeholder(words)

    def set_theme(self, theme: Theme) -> None:
        self.view.set_theme(theme)
        self.find_bar.set_theme(theme)
        self.composer.set_theme(theme)

    def set_zoom(self, zoom: float) -> None:
        self.view.set_zoom(zoom)
        self.composer.edit.set_zoom(zoom)
        self._middle.setMaximumWidth(self.view.column.full_width + 24)

    def focus_composer(self) -> None:
        self.composer.edit.setFocus(Qt.FocusReason.OtherFocusReason)

    @Slot()
    def recall_last(self) -> None:
        """Offer the person's last message to be edited."""
        last = next((message for message in reversed(self.chat.messages) if message.role is Role.USER), None)
        if last is not None:
            self.begin_edit(last)

    def begin_edit(self, message: ChatMessage) -> None:
        """Offer a message to be edited, in the composer."""
        self._edited = message.id
        mine = message.role is Role.USER
        asked_anew = self.tr("Editing your message: it is asked anew, the old one stays as a version")
        words = asked_anew if mine else self.tr("Editing the answer: makes a new version")
        self.composer.begin_edit(words, message.text, message.attachments)

    def escape(self) -> bool:
        """Close what is open on this page. False where nothing was."""
        if not self.bar.isHidden():
            self.bar.choose("cancel")
        elif not self.find_bar.isHidden():
            self.find_bar.close_bar()
        elif self.composer.editing:
            self.composer.end_edit()
        elif self.view.bars.marked:
            self.view.bars.mark(None)
            self.focus_composer()
        else:
            return False
        return True

    def offer_undo(self, words: str) -> None:
        self.undo_bar.ask(words, (("undo", self.tr("Undo"), "primary"), ("dismiss", self.tr("Dismiss"), "quiet")))

    # --------------------------------------------------------------------------------------------------- Qt overrides

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.composer.bound_height(self.height())
        self._arrange_suggestions()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        self.composer.dragEnterEvent(event)

    def dropEvent(self, event: QDropEvent) -> None:
        self.composer.dropEvent(event)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.left.emit(self.view.scroll_place())

    # ------------------------------------------------------------------------------------------------------- private

    def _build(self) -> None:
        title = QLabel(self.tr("What shall we talk about?"), self._welcome)
        title.setProperty("kind", "title")
        title.setAlignment(Qt.AlignmentFlag.AlignCenter)
        words = QLabel(self.tr("Everything runs on this machine. Open more tabs: they are answered together."), self._welcome)
        words.setProperty("kind", "dim")
        words.setWordWrap(True)
        words.setAlignment(Qt.AlignmentFlag.AlignCenter)
        welcome = QVBoxLayout(self._welcome)
        welcome.setContentsMargins(0, 0, 0, 18)
        welcome.setSpacing(6)
        welcome.addWidget(title)
        welcome.addWidget(words)
        grid = self._grid = QGridLayout(self._suggestions)
        grid.setContentsMargins(0, 10, 0, 0)
        grid.setSpacing(8)
        for label, text in ((self.tr(label), self.tr(text)) for label, text in SUGGESTIONS):
            button = QPushButton(label, self._suggestions)
            button.setProperty("kind", "pill")
            button.setToolTip(text)
            button.setMinimumWidth(120)  # so that the window can be narrower than its words
            button.clicked.connect(lambda _=False, text=text: self.sent.emit(text, ()))
            self.suggestions.append(button)
        middle = self._middle = QWidget(self)
        middle.setMaximumWidth(self.view.column.full_width + 24)
        column = QVBoxLayout(middle)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        column.addWidget(self._welcome)
        column.addWidget(self.find_bar)
        column.addWidget(self.undo_bar)
        column.addWidget(self.bar)
        column.addWidget(self.composer)
        column.addWidget(self._suggestions)
        centred = QHBoxLayout()
        centred.setContentsMargins(MARGIN, 0, MARGIN, 14)
        centred.addStretch(1)
        centred.addWidget(middle, 1000)
        centred.addStretch(1)
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(4)
        self._layout.addWidget(self.view, 1)
        self._layout.addStretch(0)
        self._layout.addLayout(centred)
        self._layout.addStretch(0)

    def _connect(self) -> None:
        self.composer.sent.connect(self.sent)
        self.composer.stop_asked.connect(self.stop_asked)
        self.composer.draft_changed.connect(self.draft_changed)
        self.composer.follow_up_edited.connect(self.follow_up_edited)
        self.composer.follow_up_removed.connect(self.follow_up_removed)
        self.composer.recalled.connect(self.recall_last)
        self.composer.edited.connect(self._on_edited)
        self.composer.attach_asked.connect(self.choose_files)
        self.composer.trouble.connect(self._on_trouble)
        self.composer.files_changed.connect(self.files_changed)
        # Queued: a retry takes away the anchor that was clicked, and Qt must be done with it first.
        self.view.action_asked.connect(self._on_action, Qt.ConnectionType.QueuedConnection)
        self.view.code_copied.connect(self.copied)
        self.view.link_asked.connect(self.ask_link)
        self.view.typed.connect(self.composer.type)
        self.find_bar.closed.connect(self.focus_composer)
        self.bar.chosen.connect(self._on_link_answer)
        self.undo_bar.chosen.connect(self._on_undo_answer)

    def _arrange_suggestions(self) -> None:
        """Two side by side, or one where the dashboard leaves less room: their words are never cut."""
        widest = max(button.sizeHint().width() for button in self.suggestions)
        columns = 2 if 2 * widest + self._grid.spacing() <= self.width() - 2 * MARGIN else 1
        if columns == self._columns:
            return
        self._columns = columns
        for number, button in enumerate(self.suggestions):
            self._grid.addWidget(button, number // columns, number % columns)

    def _queue_key(self) -> tuple[Said, ...]:
        return tuple(self.chat.follow_ups)

    def _show_welcome(self, welcome: bool) -> None:
        self.view.setVisible(not welcome)
        self._welcome.setVisible(welcome)
        self._suggestions.setVisible(welcome)
        # In an empty chat the composer stands a little above the middle.
        self._layout.setStretch(1, 4 if welcome else 0)
        self._layout.setStretch(3, 5 if welcome else 0)

    @Slot(str, str)
    def _on_action(self, name: str, message_id: str) -> None:
        message = self.chat.tree.get(message_id)
        if message is None:
            return
        if name == "copy":
            # An answer without its reasoning: that is what one wants elsewhere.
            self.copied.emit(message.text if message.role is Role.USER else split_reasoning(message.text)[1])
        elif name == "edit":
            self.begin_edit(message)
        else:
            self.message_asked.emit(name, message_id)

    @Slot(str, object)
    def _on_edited(self, text: str, files: tuple[Attachment, ...]) -> None:
        if self._edited is not None:
            self.edited.emit(self._edited, text, files)
            self._edited = None

    @Slot()
    def choose_files(self) -> None:
        """Let the person choose files to attach."""
        dialog = QFileDialog(self, self.tr("Attach files"))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
        dialog.filesSelected.connect(lambda names: self.composer.reader.start([Path(name) for name in names]))
        dialog.open()

    @Slot(str)
    def _on_trouble(self, words: str) -> None:
        self.bar.ask(words, (("cancel", self.tr("Dismiss"), "quiet"),))

    @Slot(str)
    def _on_undo_answer(self, key: str) -> None:
        if key == "undo":
            self.undo_asked.emit()

    @Slot(str)
    def ask_link(self, address: str) -> None:
        """Show where a link goes, before it goes there."""
        self._link = address
        shown = shown_address(address)
        answers = (("open", self.tr("Open"), "primary"), ("copy", self.tr("Copy address"), ""), ("cancel", self.tr("Cancel"), "quiet"))
        question = self.tr("Open in the browser?")
        self.bar.ask(f"{question}\n{shown if len(shown) < 300 else shown[:300] + '…'}", answers)

    @Slot(str)
    def _on_link_answer(self, key: str) -> None:
        if key == "open":
            QDesktopServices.openUrl(QUrl(self._link))
        elif key == "copy":
            QGuiApplication.clipboard().setText(self._link)
        self.focus_composer()
