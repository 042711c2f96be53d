"""Import and export from the window: file dialogs, a thread that reads or writes, and a word about what came of it.

Answers go on meanwhile: a thousand chats as PDF take minutes. What is exported is what the store holds, read on the thread; only chats that
no store keeps are written at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import QFileDialog

from app.chats.exchange.importing import Report, read_chats
from app.chats.exchange.reading import UnreadableFile
from app.chats.model import Chat
from app.chats.reader import ChatReader
from app.chats_command import file_name, write_file
from app.numbers import said

if TYPE_CHECKING:
    from app.window.main_window import MainWindow

log = logging.getLogger(__name__)

AT_ONCE = 100  # chats of an import that join the book between two looks at what the person does
COMMIT_S = 1.0  # what the disk may take for the last words before an export reads them
FORMATS = {"md": "Markdown (*.md)", "json": "JSON (*.json)", "html": "HTML (*.html)", "pdf": "PDF (*.pdf)"}


class ChatFiles(QObject):
    """Both dialogs are open beside everything else, never modal to the program."""

    _read = Signal(object, object)  # chats and report, or None and a sentence
    _written = Signal(str)  # what came of an export

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._dismiss = (("dismiss", self.tr("Dismiss"), "quiet"),)
        self._window = window
        self._thread: threading.Thread | None = None
        self._working = False  # until the thread has told what came of it
        self._ending = threading.Event()
        self.stored: Path | None = None  # the file in which the chats are kept; None: nowhere
        self._written.connect(self._on_written, Qt.ConnectionType.QueuedConnection)
        self._read.connect(self._on_read, Qt.ConnectionType.QueuedConnection)

    # ------------------------------------------------------------------------------------------------------- import

    @Slot()
    def ask_import(self) -> None:
        dialog = QFileDialog(self._window, self.tr("Import chats"), "", self.tr("Exports (*.json *.zip *.jsonl);;All files (*)"))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(lambda name: self.import_file(Path(name)))
        dialog.open()

    def import_file(self, path: Path) -> None:
        """Read a file on a thread of its own; its chats join the book when all of them are read."""
        if self._busy():
            return
        self._window.bar.ask(self.tr("Reading {0} …").format(path.name), self._dismiss)
        self._start(threading.Thread(target=self._read_on_thread, args=(path,), name="omnibus-import", daemon=True))

    def close(self) -> None:
        """An export that is on its way ends, without a file."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(2.0)

    def _busy(self) -> bool:
        """Whether the thread is at work, which is told."""
        if self._working:
            self._window.bar.ask(self.tr("Another import or export is still under way."), self._dismiss)
        return self._working

    def _start(self, thread: threading.Thread) -> None:
        self._working, self._thread = True, thread
        thread.start()

    def _read_on_thread(self, path: Path) -> None:
        try:
            chats, report = read_chats(path)
        except UnreadableFile as error:
            self._read.emit(None, said(error.args[0]))
        except Exception as error:
            log.exception("%s could not be imported", path.name)
            self._read.emit(None, self.tr("{0} could not be read ({1}).").format(path.name, f"{type(error).__name__}: {error}"))
        else:
            self._read.emit(chats, report)

    @Slot(object, object)
    def _on_read(self, chats: list[Chat] | None, report: Report | str) -> None:
        if chats is None or isinstance(report, str):
            self._working = False
            self._window.bar.ask(str(report), self._dismiss)
            return
        self._take_in(chats, report)

    def _take_in(self, chats: list[Chat], report: Report, start: int = 0) -> None:
        """Some chats at a time: thousands of them are no reason for the window to stand still."""
        for chat in chats[start : start + AT_ONCE]:
            if self._window.book.adopt(chat):
                report.added.append(chat)
            else:
                report.known += 1
        if start + AT_ONCE < len(chats) and not self._ending.is_set():
            QTimer.singleShot(0, self, lambda: self._take_in(chats, report, start + AT_ONCE))
            return
        self._working = False
        self._window.sidebar.refresh()
        first = [f"{said(where)}: {said(why)}" for where, why in report.skipped[:3]]
        self._window.bar.ask("\n".join([said(report.words()), *first]), self._dismiss)

    # ------------------------------------------------------------------------------------------------------- export

    def ask_export(self, chat_ids: Sequence[str]) -> None:
        chats = [
            self._window.book[chat_id] for chat_id in chat_ids if chat_id in self._window.book and not self._window.book[chat_id].empty
        ]
        if not chats:
            self._window.bar.ask(self.tr("There is nothing to export yet."), self._dismiss)
            return
        name = file_name(chats[0], "md") if len(chats) == 1 else "chats.md"
        dialog = QFileDialog(self._window, self.tr("Export"), name, ";;".join(FORMATS.values()))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.selectFile(name)
        dialog.filterSelected.connect(lambda chosen: dialog.selectFile(f"{Path(name).stem}.{_format_of(chosen)}"))
        dialog.fileSelected.connect(lambda target: self.export(chats, Path(target), _format_of(dialog.selectedNameFilter())))
        dialog.open()

    def export(self, chats: Sequence[Chat], target: Path, form: str) -> None:
        """Write chats to a file; its own ending decides where it names a format."""
        ending = target.suffix.lstrip(".").lower()
        form = ending if ending in FORMATS else form
        target = target if target.suffix else target.with_suffix(f".{form}")
        if self.stored is None:
            self._window.bar.ask(self._write(chats, target, form), self._dismiss)
            return
        if self._busy():
            return
        self._window.bar.ask(self.tr("Writing {0} …").format(target.name), self._dismiss)
        self._window.book.commit(COMMIT_S)
        ids = [chat.id for chat in chats]
        self._start(
            threading.Thread(target=self._write_on_thread, args=(self.stored, ids, target, form), name="omnibus-export", daemon=True)
        )

    def _write_on_thread(self, stored: Path, ids: Sequence[str], target: Path, form: str) -> None:
        try:
            with ChatReader(stored) as reader:
                words = self._write(self._kept(reader, ids), target, form)
        except Exception as error:  # whatever it is, it is told: the next import or export waits for that
            log.warning("an export could not be written", exc_info=True)
            words = self.tr("{0} could not be written: {1}.").format(target.name, error)
        if not self._ending.is_set():
            self._written.emit(words)

    @Slot(str)
    def _on_written(self, words: str) -> None:
        self._working = False
        self._window.bar.ask(words, self._dismiss)

    def _kept(self, reader: ChatReader, ids: Sequence[str]) -> Iterator[Chat]:
        """Raises InterruptedError once the window closes."""
        for chat_id in ids:
            if self._ending.is_set():
                raise InterruptedError
            chat = reader.chat(chat_id)
            if chat is not None:
                yield chat

    def _write(self, chats: Iterable[Chat], target: Path, form: str) -> str:
        """Returns what came of it, in a sentence."""
        try:
            write_file(chats, form, target)
        except OSError as error:
            return self.tr("{0} could not be written: {1}.").format(target.name, error.strerror or error)
        return self.tr("Written to {0}.").format(target)


def _format_of(chosen: str) -> str:
    return next((form for form, words in FORMATS.items() if words == chosen), "md")
