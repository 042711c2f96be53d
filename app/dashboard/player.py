"""The banner over a replay: which recording is on show, a slider through it, step by step or at its own speed, and the way back.

Moves the position of a playback and says so; what is seen there is the page's. Its one timer runs only while it plays in view.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QSlider, QVBoxLayout, QWidget

from app.dashboard import wording
from app.dashboard.ink import font
from app.dashboard.panel import ElidedLabel
from app.dashboard.wording import translate
from app.numbers import number
from engine import Playback

FRAME_MS = 100  # as often as the views look


class PlayerBar(QFrame):
    """Attributes: playback (what is on show, or None).

    Signals:
        moved(jumped): another position is on show; `jumped` when it is not the one that comes next.
        left(): back to the running engine.
    """

    moved = Signal(bool)
    left = Signal()

    def __init__(self, parent: QWidget | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(parent)
        self._clock = clock
        self._begun = 0.0  # on our clock, when the recording's first snapshot would have been shown
        self.playback: Playback | None = None
        self.setProperty("kind", "bar")
        self.title = ElidedLabel(self)
        self.title.setFont(font(14, QFont.Weight.DemiBold))
        self.back = self._button(translate("Dashboard", "Back to live"), translate("Dashboard", "Show the running engine again"), "primary")
        self.before = self._button("‹", translate("Dashboard", "One step back"))
        self.play = self._button("", translate("Dashboard", "Play at the recorded speed"))
        self.after = self._button("›", translate("Dashboard", "One step on"))
        self.slider = QSlider(Qt.Orientation.Horizontal, self)
        self.slider.setAccessibleName(translate("Dashboard", "Position in the recording"))
        self.slider.setMinimumSize(80, 22)  # room for the whole handle
        self.place = QLabel(self)
        self.place.setProperty("kind", "small")
        self.place.setFont(font(12))
        head = QHBoxLayout()
        head.setSpacing(10)
        head.addWidget(self.title, 1)
        head.addWidget(self.back)
        row = QHBoxLayout()
        row.setSpacing(6)
        for widget in (self.before, self.play, self.after):
            row.addWidget(widget)
        row.addSpacing(4)
        row.addWidget(self.slider, 1)
        row.addSpacing(4)
        row.addWidget(self.place)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 10, 10, 10)
        column.setSpacing(8)
        column.addLayout(head)
        column.addLayout(row)
        self._timer = QTimer(self)
        self._timer.setInterval(FRAME_MS)
        self._timer.timeout.connect(self.advance)
        self.slider.valueChanged.connect(self._seek)
        self.slider.sliderReleased.connect(lambda: self.moved.emit(True))
        self.before.clicked.connect(lambda: self._step(-1))
        self.after.clicked.connect(lambda: self._step(1))
        self.play.clicked.connect(lambda: self.set_playing(not self.playing))
        self.back.clicked.connect(self.left)
        self._show_playing()
        self.hide()

    @property
    def playing(self) -> bool:
        return self._timer.isActive()

    @property
    def dragging(self) -> bool:
        """The slider is in somebody's hand."""
        return self.slider.isSliderDown()

    def show_playback(self, playback: Playback | None, name: str = "") -> None:
        """Stand over a playback, at its position; None puts the banner away."""
        self.set_playing(False)
        self.playback = playback
        self.setVisible(playback is not None)
        if playback is None:
            return
        self.title.setText(translate("Dashboard", "Replaying {0}").format(name))
        self.title.setToolTip(name)
        self.slider.blockSignals(True)
        self.slider.setRange(0, len(playback) - 1)
        self.slider.setPageStep(max(1, len(playback) // 20))
        self.slider.blockSignals(False)
        self.place.setMinimumWidth(0)
        self._show_place()

    def set_playing(self, playing: bool) -> None:
        """Let the recording run at its own speed, from the start when it is at its end; or stop."""
        playback = self.playback
        if playback is None or not playing or len(playback) < 2:
            self._timer.stop()
        else:
            if playback.position == len(playback) - 1:
                self._move(0, jumped=True)
            self._begun = self._clock() - playback.elapsed()
            self._timer.start()
        self._show_playing()

    def advance(self) -> None:
        """Show what the recording shows by now."""
        playback = self.playback
        if playback is None:
            return
        self._move(max(playback.position, playback.at(self._clock() - self._begun)))
        if playback.position == len(playback) - 1:
            self.set_playing(False)

    def _seek(self, position: int) -> None:
        """To where the slider is; playing goes on from there."""
        if self.playback is None:
            return
        self._move(position, jumped=True)
        self._begun = self._clock() - self.playback.elapsed()

    def _step(self, by: int) -> None:
        self.set_playing(False)
        if self.playback is not None:
            self._move(self.playback.position + by, jumped=by != 1)

    def _move(self, position: int, jumped: bool = False) -> None:
        playback = self.playback
        assert playback is not None
        before = playback.position
        playback.move(position)
        if playback.position != before:
            self._show_place()
            self.moved.emit(jumped)

    def _show_place(self) -> None:
        playback = self.playback
        assert playback is not None
        self.slider.blockSignals(True)
        self.slider.setValue(playback.position)
        self.slider.blockSignals(False)
        last = len(playback) - 1
        self.place.setText(
            translate("Dashboard", "step {0} of {1} · {2}").format(
                wording.count(playback.snapshot.step),
                wording.count(playback.snapshots[last].step),
                _clock_words(playback.elapsed()),
            )
        )
        self.place.setToolTip(translate("Dashboard", "The recording lasts {0}").format(_clock_words(playback.elapsed(last))))
        # Never narrower than it was: the slider must not move under the hand.
        self.place.setMinimumWidth(max(self.place.minimumWidth(), self.place.sizeHint().width()))
        self.before.setEnabled(playback.position > 0)
        self.after.setEnabled(playback.position < last)
        self.play.setEnabled(last > 0)

    def _show_playing(self) -> None:
        self.play.setText(translate("Dashboard", "Hold") if self.playing else translate("Dashboard", "Play"))

    def _button(self, words: str, tip: str, kind: str = "quiet") -> QPushButton:
        button = QPushButton(words, self)
        button.setProperty("kind", kind)
        button.setToolTip(tip)
        button.setAccessibleName(tip)
        return button


def _clock_words(seconds: float) -> str:
    """`83.4` → "1:23", `8.25` → "8.2 s"."""
    return number(seconds, ".1f") + " s" if seconds < 59.95 else f"{round(seconds) // 60}:{round(seconds) % 60:02d}"
