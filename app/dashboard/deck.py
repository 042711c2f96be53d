"""Recordings on the dashboard: record, save, open, replay, and compare the two policies on what was recorded.

Owns the recording at hand (made here or opened), what is being played of it, and the jobs that do the long work. The page shows what
`source_changed` hands it; nothing here paints the engine.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QColor, QIcon, QPainter, QPixmap
from PySide6.QtWidgets import QFileDialog, QLabel, QPushButton, QVBoxLayout, QWidget

from app.dashboard import wording
from app.dashboard.compare_panel import ComparePanel
from app.dashboard.comparison import Comparison
from app.dashboard.flow import FlowLayout
from app.dashboard.jobs import Jobs
from app.dashboard.lesson import Lesson
from app.dashboard.player import PlayerBar
from app.dashboard.port import EnginePort
from app.dashboard.wording import translate
from app.numbers import explained
from app.theme import Theme
from engine import EngineError, Playback, Trace, compare_policies

log = logging.getLogger(__name__)

ENDING = "omnibus-trace"
DOT = 10


class Deck(QWidget):
    """The row of buttons, the banner of a replay, and the comparison.

    Attributes:
        tape: the recording at hand, or None. name: what it is called. recording: one is being made.
    Signals:
        source_changed(Playback or None): look at this playback, or at the engine again.
        moved(jumped): the playback shows another position.
    """

    source_changed = Signal(object)
    moved = Signal(bool)

    def __init__(
        self, engine: EnginePort, theme: Theme, parent: QWidget | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(parent)
        self._engine = engine
        self.tape: Trace | None = None
        self.name = ""
        self.recording = False
        self._asked = False  # the engine has not answered yet
        self._first_step = 0
        self._then: Callable[[], None] | None = None  # what to do once the recording has begun, or stopped
        self.jobs = Jobs(self)
        self.record = self._button(translate("Dashboard", "Record"), "")
        self.record.setCheckable(True)
        self.record.setIconSize(QSize(DOT + 6, DOT))
        self.watch = self._button(translate("Dashboard", "Replay"), translate("Dashboard", "Scrub through the recording with these views"))
        self.keep = self._button(translate("Dashboard", "Save"), translate("Dashboard", "Save the recording to a file"))
        self.fetch = self._button(translate("Dashboard", "Open"), translate("Dashboard", "Open a saved recording and replay it"))
        self.fetch.setAccessibleName(translate("Dashboard", "Open a recording"))
        self.judge = self._button(
            translate("Dashboard", "Compare policies"),
            translate("Dashboard", "Replay the recorded arrivals as city bus and as tour bus, side by side"),
        )
        self.message = self._label("danger")
        self.note = self._label("small")
        self.lesson = Lesson(lambda: engine.snapshot, self)
        self.player = PlayerBar(self, clock=clock)
        self.panel = ComparePanel(theme, self)
        flow = FlowLayout(gap=8)
        for button in (self.record, self.watch, self.keep, self.fetch, self.judge):
            flow.addWidget(button)
        self._flow = flow
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(10)
        column.addLayout(flow)
        column.addWidget(self.message)
        column.addWidget(self.lesson, 0, Qt.AlignmentFlag.AlignLeft)
        for widget in (self.note, self.player, self.panel):
            column.addWidget(widget)
        self.record.clicked.connect(self.toggle_record)
        self.watch.clicked.connect(self.replay)
        self.keep.clicked.connect(self._choose_save)
        self.fetch.clicked.connect(self._choose_open)
        self.judge.clicked.connect(self.compare)
        self.lesson.clicked.connect(self.begin_lesson)
        self.lesson.over.connect(self.compare)
        self.player.moved.connect(self.moved)
        self.player.left.connect(self.go_live)
        self.panel.export_asked.connect(self._choose_export)
        self.jobs.done.connect(self._on_done)
        self.jobs.failed.connect(self._on_failed)
        self.set_theme(theme)
        self._show_buttons()

    @property
    def replaying(self) -> bool:
        return self.player.playback is not None

    # ----------------------------------------------------------------------------------------------------------- methods

    def toggle_record(self) -> None:
        """Begin a recording, or end the one under way."""
        if self.recording:
            self.stop_recording()
        elif not self._asked:
            self._say("")
            self._ask("start", self._engine.start_recording)
        self._show_buttons()  # what the engine did, not what was asked

    def begin_lesson(self) -> None:
        """Record the demo and compare both policies on it, with nothing else to press."""
        if not self._asked and not self.recording:
            self._then = self.lesson.begin
            self._say("", translate("Dashboard", "Recording the demo; both policies are compared when the last one has got off."))
            self._ask("start", self._engine.start_recording)

    def stop_recording(self, then: Callable[[], None] | None = None) -> None:
        """End the recording and keep it at hand; then do something with it."""
        self._then = then
        if not self._asked:
            self._ask("stop", self._engine.stop_recording)

    def count(self) -> None:
        """The engine has gone on: how many steps are recorded by now."""
        if self.recording:
            steps = max(0, self._engine.snapshot.step - self._first_step)
            words = translate("Dashboard", "Stop · {0} steps").format(wording.count(steps))
            if words != self.record.text():
                self.record.setText(words)
                if self.record.sizeHint().width() > self.record.width():
                    self._flow.invalidate()
                    self._flow.activate()

    def save(self, path: str) -> None:
        """Write the recording at hand."""
        tape = self.tape
        if tape is None:
            self._say_nothing_recorded()
            return

        def write(cancelled: Callable[[], bool]) -> str:
            tape.save(path)
            return Path(path).name

        self._work("save", write, translate("Dashboard", "Saving…"))

    def open(self, path: str) -> None:
        """Read a recording and show its beginning."""
        name = Path(path).name

        def read(cancelled: Callable[[], bool]) -> tuple[Trace, str, Playback]:
            trace = Trace.load(path)
            return trace, name, Playback(trace, cancelled=cancelled)

        self._work("open", read, translate("Dashboard", "Opening {0}…").format(name))

    def replay(self) -> None:
        """Show the recording at hand from its beginning."""
        tape = self.tape
        if tape is None:
            self._say_nothing_recorded()
            return
        self._work("replay", lambda cancelled: Playback(tape, cancelled=cancelled), translate("Dashboard", "Playing the recording…"))

    def compare(self) -> None:
        """Both policies on the recording at hand; one under way is ended first."""
        if self.recording:
            self.stop_recording(then=self.compare)
            return
        tape, name = self.tape, self.name
        if tape is None:
            self._say_nothing_recorded()
            self.lesson.show()
            return
        self._work(
            "compare",
            lambda cancelled: Comparison.of(compare_policies(tape, cancelled=cancelled), name),
            translate("Dashboard", "Comparing: the same arrivals as city bus and as tour bus…"),
        )

    def export(self, path: str) -> None:
        """Write the comparison to a .png, .svg or .json file, chosen by its ending."""
        try:
            self.panel.export(Path(path))
        except (OSError, ValueError) as error:
            self._say(translate("Dashboard", "Could not write {0}: {1}").format(path, wording.trouble(error)))
        else:
            self._say("", translate("Dashboard", "Saved as {0}.").format(Path(path).name))

    def go_live(self) -> None:
        """Back to the running engine."""
        if self.replaying:
            self.player.show_playback(None)
            self._show_buttons()
            self.source_changed.emit(None)

    def look_away(self) -> None:
        """The page is hidden: nothing plays."""
        self.player.set_playing(False)

    def shut_down(self) -> None:
        """Leave no thread behind. A recording under way stays the engine's, and is gone with it."""
        self.look_away()
        self.lesson.stop()
        self.jobs.close()

    def set_theme(self, theme: Theme) -> None:
        self.panel.set_theme(theme)
        self.record.setIcon(red_dot(theme.danger))

    # ------------------------------------------------------------------------------------------------------------- slots

    def _on_done(self, name: str, value: Any) -> None:
        self._asked = False if name in ("start", "stop") else self._asked
        if name == "start":
            self._on_started()
            return
        self._say("")
        if name == "stop":
            self._on_stopped(value)
        elif name == "save":
            self.name = value
            self._say("", translate("Dashboard", "Saved as {0}.").format(value))
        elif name == "open":
            self.tape, self.name, playback = value
            self._show_playback(playback)
        elif name == "replay":
            self._show_playback(value)
        elif name == "compare":
            if value.empty:
                self._say(translate("Dashboard", "There is nothing to compare: no answer was recorded."))
            else:
                self.panel.show_comparison(value)
        self._show_buttons()

    def _on_started(self) -> None:
        self.recording = True
        then, self._then = self._then, None
        if then is not None:
            then()
        self._show_buttons()

    def _on_stopped(self, trace: Trace) -> None:
        self.recording = False
        self.lesson.stop()
        then, self._then = self._then, None
        if not trace.steps:
            self._say(translate("Dashboard", "Nothing was recorded: no step was made meanwhile."))
            return
        self.tape = trace
        self.name = translate("Dashboard", "the recording just made")
        if trace.cut:
            words = translate("Dashboard", "The recording is full: it holds the first {0} steps, of {1} requests, not saved yet.")
        else:
            words = translate("Dashboard", "Recorded {0} steps of {1} requests, not saved yet.")
        self._say("", words.format(wording.count(trace.steps), wording.count(trace.requests)))
        if then is not None:
            then()

    def _on_failed(self, name: str, error: BaseException) -> None:
        if name in ("start", "stop"):
            self._asked, self.recording, self._then = False, False, None
        if isinstance(error, EngineError):
            self._say(explained(error))
        elif isinstance(error, OSError):
            self._say(translate("Dashboard", "The file could not be read or written: {0}").format(wording.trouble(error)))
        else:
            log.error("a recording could not be used (%s)", name, exc_info=error)
            self._say(translate("Dashboard", "The recording cannot be used: {0}").format(error))
        self._show_buttons()

    def _show_playback(self, playback: Playback) -> None:
        if playback.trace.cut:
            self._say("", translate("Dashboard", "This recording was full before it was ended: what came after is not in it."))
        self.player.show_playback(playback, self.name)
        self._show_buttons()
        self.source_changed.emit(playback)

    # ----------------------------------------------------------------------------------------------------------- private

    def _ask(self, name: str, command: Callable[[], Any]) -> None:
        """Ask the engine; its answer comes back as a job's does."""
        self._asked = True
        try:
            future = command()
        except EngineError as error:
            self._on_failed(name, error)
            return
        if name == "start":
            future.add_done_callback(self._note_first_step)
        self.jobs.follow(name, future)

    def _note_first_step(self, _: object) -> None:
        """On the engine's thread, between two steps: from here on they are recorded."""
        self._first_step = self._engine.snapshot.step

    def _work(self, name: str, work: Callable[[Callable[[], bool]], Any], words: str) -> None:
        self._say("", words)
        self.jobs.start(name, work)

    def _say(self, trouble: str, news: str = "") -> None:
        """One sentence under the buttons: what went wrong, or what is going on."""
        self.lesson.hide()
        for label, words in ((self.message, trouble), (self.note, news)):
            label.setText(words)
            label.setVisible(bool(words))

    def _say_nothing_recorded(self) -> None:
        self._say(translate("Dashboard", "Nothing is recorded yet. Press Record while chats are being answered, or open a recording."))

    def _show_buttons(self) -> None:
        self.record.setChecked(self.recording)
        if self.recording:
            self.count()
            tip = translate("Dashboard", "End the recording")
        else:
            self.record.setText(translate("Dashboard", "Record"))
            tip = translate("Dashboard", "Record all scheduling from now on: token numbers and times, never text")
        self.record.setToolTip(tip)
        self.record.setAccessibleDescription(tip)
        self.watch.setEnabled(self.tape is not None and not self.recording)
        self.keep.setEnabled(self.tape is not None and not self.recording)

    def _button(self, words: str, tip: str) -> QPushButton:
        button = QPushButton(words, self)
        button.setToolTip(tip)
        button.setAccessibleDescription(tip)
        return button

    def _label(self, kind: str) -> QLabel:
        label = QLabel(self)
        label.setProperty("kind", kind)
        label.setWordWrap(True)
        label.hide()
        return label

    # ----------------------------------------------------------------------------------------------------------- dialogs

    def _choose_save(self) -> None:
        recordings = translate("Dashboard", "Recording (*.{0})").format(ENDING)
        name = self.name if self.name.endswith(ENDING) else f"omnibus.{ENDING}"
        dialog = self._dialog(translate("Dashboard", "Save the recording"), [recordings], name, self.save)
        dialog.setDefaultSuffix(ENDING)
        dialog.open()

    def _choose_open(self) -> None:
        filters = [translate("Dashboard", "Recording (*.{0})").format(ENDING), translate("Dashboard", "All files (*)")]
        self._dialog(translate("Dashboard", "Open a recording"), filters, "", self.open).open()

    def _choose_export(self) -> None:
        filters = [
            translate("Dashboard", "Picture (*.png)"),
            translate("Dashboard", "Drawing (*.svg)"),
            translate("Dashboard", "Data (*.json)"),
        ]
        self._dialog(translate("Dashboard", "Save the comparison"), filters, "omnibus-comparison.png", self.export).open()

    def _dialog(self, title: str, filters: list[str], name: str, chosen: Callable[[str], None]) -> QFileDialog:
        """With a `name`, one for saving."""
        dialog = QFileDialog(self, title, name)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave if name else QFileDialog.AcceptMode.AcceptOpen)
        dialog.setFileMode(QFileDialog.FileMode.AnyFile if name else QFileDialog.FileMode.ExistingFile)
        dialog.setNameFilters(filters)
        dialog.fileSelected.connect(chosen)
        return dialog


def red_dot(color: str) -> QIcon:
    """The sign for recording, alike whether the button is on or off."""
    picture = QPixmap(2 * (DOT + 6), 2 * DOT)  # with some room before the words
    picture.setDevicePixelRatio(2.0)
    picture.fill(Qt.GlobalColor.transparent)
    painter = QPainter(picture)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QColor(color))
    painter.drawEllipse(0, 0, DOT, DOT)
    painter.end()
    return QIcon(picture)
