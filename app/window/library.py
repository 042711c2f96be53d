"""The book of chats with its store, as the window uses it: opened before the window, closed after it, and told of trouble in between.

Where the store cannot be opened the window works all the same, on a book in memory, and says so.
"""

from __future__ import annotations

import logging
from pathlib import Path

import apsw
import platformdirs
from PySide6.QtCore import QObject, Qt, QTimer, Signal

from app.chats.book import ChatBook
from app.chats.reader import ChatReader
from app.chats.schema import FILE, StoreError
from app.chats.store import ChatStore
from app.numbers import said
from app.window.main_window import MainWindow
from app.window.session import describe, restore
from app.window.unfinished import KEY, Unfinished
from engine import Sentence

log = logging.getLogger(__name__)

SESSION = "window"
KEPT_AFTER_MS = 1000  # a change of tabs, so that a crash loses none of them


def chats_folder(chosen: Path | None) -> Path:
    """The folder of chats: the one that was chosen, or the person's own."""
    return chosen or Path(platformdirs.user_data_dir("omnibus"))


class Library(QObject):
    """Owns the store of one folder (the person's own for None).

    Attributes:
        book: the chats; kept in memory only if the store could not be opened.
    """

    _trouble = Signal(object)  # from the store's thread to the window's

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self._window: MainWindow | None = None
        self._unfinished: Unfinished | None = None
        self._words = ""
        self._store: ChatStore | None = ChatStore(chats_folder(folder) / FILE, self._trouble.emit)
        try:
            self.book = ChatBook(self._store)
        except (StoreError, apsw.Error, OSError, TimeoutError) as error:
            log.exception("chats are kept in memory only")
            path = self._store.path
            self._words = f"{self._why(error, path.parent)} " + self.tr("New chats are kept in memory only, and end with the window.")
            self._store.close(0.1)
            self._store = None
            self.book = ChatBook()
            self._show_old(path)

    def _why(self, error: Exception, folder: Path) -> str:
        """What kept the store from being opened, in a sentence."""
        if error.args and isinstance(error.args[0], Sentence):
            return said(error.args[0])
        if isinstance(error, apsw.FullError):
            return self.tr("The disk is full, so that the chats cannot be opened for writing.")
        if isinstance(error, (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError, PermissionError)):
            return self.tr("The folder of chats, {0}, cannot be written: check its rights.").format(folder)
        return self.tr("The file of chats in {0} cannot be opened ({1}).").format(folder, error)

    def _show_old(self, path: Path) -> None:
        """What lies in a folder that cannot be written is shown all the same."""
        try:
            with ChatReader(path, immutable=True) as reader:
                for chat in reader.chats():
                    whole = reader.chat(chat.id)
                    if whole is not None:
                        self.book.adopt(whole)
        except (StoreError, apsw.Error, OSError):
            log.warning("older chats cannot be shown", exc_info=True)

    def attach(self, window: MainWindow, tabs: bool = True) -> None:
        """Bring back the window's tabs, and tell it of trouble from now on. Without `tabs`, those of last time are left as they are."""
        self._window = window if tabs else None
        window.questions.in_memory = self._store is None
        window.files.stored = self._store.path if self._store is not None else None
        self._trouble.connect(window.show_store_trouble, Qt.ConnectionType.QueuedConnection)
        if self._store is not None and tabs:
            restore(window, self._store.session(SESSION))
            self._keep_tabs(window)
            kept = self._store.session(KEY)
            self._unfinished = Unfinished(window, lambda text: self.remember(KEY, text))
            self._unfinished.offer(kept)
        if self._store is not None and self._store.repaired:
            self._words = said(self._store.repaired)
        if self._words:
            window.show_store_trouble(self._words)

    def _keep_tabs(self, window: MainWindow) -> None:
        """Store which tabs are open a moment after that changed."""
        rest = QTimer(window)
        rest.setSingleShot(True)
        rest.setInterval(KEPT_AFTER_MS)
        rest.timeout.connect(lambda: self.remember(SESSION, describe(window)))
        window.tabs.changed.connect(rest.start)
        window.closed.connect(rest.stop)

    def remembered(self, key: str) -> str | None:
        """A choice of another day, such as "theme"."""
        return self._store.session(key) if self._store is not None else None

    def remember(self, key: str, value: str) -> None:
        if self._store is not None:
            self._store.save_session(key, value)

    def close(self, timeout: float = 2.0) -> bool:
        """Keep the window's tabs, write what is left, and close. False if something could not be written."""
        if self._store is None:
            return True
        if self._window is not None:
            self._store.save_session(SESSION, describe(self._window))
        if self._unfinished is not None:
            self._unfinished.close()
        return self._store.close(timeout)
