"""Steering: policy, seats, token budget, pause, cache, demo. Everything asked goes to the engine; everything shown comes from its snapshot.

A number that was asked for but is not there yet says so beside itself, until the engine has done it or refused it.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSpinBox, QToolButton, QVBoxLayout, QWidget

from app.dashboard import wording
from app.dashboard.flow import FlowLayout, in_sequence
from app.dashboard.ink import font
from app.dashboard.port import EnginePort
from app.dashboard.segmented import Segmented
from app.dashboard.wording import translate
from app.numbers import explained
from app.theme import Theme
from engine import EngineError, EngineState, Policy, Snapshot

MOST_SEATS = 256
MOST_BUDGET = 65536
# The two buttons stand outside the field. Without any (NoButtons) a styled spin box leaves its text no room.
BARE = """
QSpinBox { padding: 5px 4px; }
QSpinBox QLineEdit { padding: 0; border: none; min-height: 0; background: transparent; }
QSpinBox::up-button, QSpinBox::down-button { width: 0; border: none; margin: 0; }
QSpinBox::up-arrow, QSpinBox::down-arrow { image: none; width: 0; height: 0; }
"""


class Asked(QSpinBox):
    """A number of the engine's. Typing asks for another; what is shown is what the engine has."""

    asked = Signal(int)

    def __init__(self, least: int, most: int, name: str, tip: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setRange(least, most)
        self.setKeyboardTracking(False)
        self.setFont(font(14))
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.setMinimumWidth(56)
        self.setStyleSheet(BARE)
        self.setAccessibleName(name)
        self.setToolTip(tip)
        self.steppers: list[QToolButton] = []  # the buttons beside it
        self._wanted: int | None = None
        self._actual = least
        self.valueChanged.connect(self._ask)

    @property
    def pending(self) -> bool:
        """Asked for, and not done yet."""
        return self._wanted is not None

    def show_actual(self, value: int) -> None:
        """The engine's own number."""
        self._actual = value
        if self._wanted == value:
            self._wanted = None
        if self._wanted is None and not (self.hasFocus() and self.lineEdit().isModified()):
            self._set(value)
        suffix = translate("Dashboard", "  (now {0})").format(wording.count(value)) if self.pending else ""
        if suffix != self.suffix():
            self.setSuffix(suffix)

    def give_up(self) -> None:
        """The engine refused: show what it has."""
        self._wanted = None
        self.setSuffix("")
        self._set(self._actual)

    def _set(self, value: int) -> None:
        if value != self.value():
            self.blockSignals(True)
            self.setValue(value)
            self.blockSignals(False)

    def _ask(self, value: int) -> None:
        if value != self._actual:
            self._wanted = value
            self.asked.emit(value)


class Controls(QWidget):
    """The row of controls.

    Signals:
        run_demo(): the person wants to see the scripted load.
    """

    run_demo = Signal()

    def __init__(self, engine: EnginePort, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._snapshot: Snapshot | None = None
        self._frozen = False
        self.policy = Segmented(
            theme,
            translate("Dashboard", "Batching policy"),
            {
                str(policy): (wording.policy(policy), f"{name}: {wording.policy_rule(policy)}")
                for policy, name in (
                    (Policy.IN_FLIGHT, translate("Dashboard", "In-flight batching")),
                    (Policy.STATIC, translate("Dashboard", "Static batching")),
                )
            },
            self,
        )
        self.seats = Asked(1, MOST_SEATS, translate("Dashboard", "Seats"), translate("Dashboard", "Most answers in one batch"), self)
        self.budget = Asked(
            1, MOST_BUDGET, translate("Dashboard", "Token budget"), translate("Dashboard", "Most positions one step computes"), self
        )
        self.budget.setSingleStep(64)
        self.hold = QPushButton(self)
        self.clear = QPushButton(translate("Dashboard", "Clear cache"), self)
        self.clear.setToolTip(translate("Dashboard", "Free the blocks that are kept only in case the same prompt comes again"))
        self.demo = QPushButton(translate("Dashboard", "Run demo"), self)
        self.demo.setProperty("kind", "primary")
        self.demo.setToolTip(translate("Dashboard", "Send a scripted load of short and long chats through the real engine"))
        self.message = QLabel(self)
        self.message.setProperty("kind", "danger")
        self.message.setWordWrap(True)
        self.message.hide()
        flow = FlowLayout()
        for widget in (
            self.policy,
            self.demo,
            self.hold,
            self.clear,
            self._labelled(translate("Dashboard", "Seats"), self.seats),
            self._labelled(translate("Dashboard", "Token budget"), self.budget),
        ):
            flow.addWidget(widget)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addLayout(flow)
        column.addWidget(self.message)
        self.policy.asked.connect(lambda key: self._ask(lambda: engine.configure(policy=Policy(key))))
        self.seats.asked.connect(lambda value: self._ask(lambda: engine.configure(seats=value), self.seats))
        self.budget.asked.connect(lambda value: self._ask(lambda: engine.configure(token_budget=value), self.budget))
        self.hold.clicked.connect(self._toggle_pause)
        self.clear.clicked.connect(lambda: self._ask(engine.clear_cache))
        self.demo.clicked.connect(self.run_demo)
        fewer, more = self.seats.steppers, self.budget.steppers
        in_sequence(
            *self.policy.buttons.values(), self.demo, self.hold, self.clear, fewer[0], self.seats, fewer[1], more[0], self.budget, more[1]
        )
        self._show_pause(False)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        before, self._snapshot = self._snapshot, snapshot
        self.policy.show_choice(str(snapshot.policy))
        self.seats.show_actual(len(snapshot.seats))
        self.budget.show_actual(snapshot.token_budget)
        if before is None or before.state is not snapshot.state:
            self._show_pause(snapshot.state is EngineState.PAUSED)
        self._enable(snapshot)

    def freeze(self, frozen: bool) -> None:
        """Only show: what is on the page is a recording, and cannot be steered."""
        self._frozen = frozen
        if self._snapshot is not None:
            self._enable(self._snapshot)

    def set_theme(self, theme: Theme) -> None:
        self.policy.set_theme(theme)

    def complain(self, words: str) -> None:
        """Say what went wrong, or nothing."""
        self.message.setText(words)
        self.message.setVisible(bool(words))

    def _labelled(self, words: str, field: Asked) -> QWidget:
        """A label, the number, and its two buttons."""
        box = QWidget(self)
        row = QHBoxLayout(box)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(2)
        label = QLabel(words, box)
        label.setProperty("kind", "dim")
        label.setBuddy(field)
        row.addWidget(label)
        row.addSpacing(6)
        for sign, step, name in (
            ("−", field.stepDown, translate("Dashboard", "{0}: fewer")),
            ("", None, ""),
            ("+", field.stepUp, translate("Dashboard", "{0}: more")),
        ):
            if step is None:
                row.addWidget(field)
                continue
            button = QToolButton(box)
            button.setText(sign)
            button.setAutoRepeat(True)
            button.setAccessibleName(name.format(words))
            button.setFixedSize(28, 30)
            button.clicked.connect(step)
            row.addWidget(button)
            field.steppers.append(button)
        return box

    def _enable(self, snapshot: Snapshot) -> None:
        usable = not self._frozen and snapshot.state not in (EngineState.FAILED, EngineState.CLOSED)
        numbers = (self.seats, *self.seats.steppers, self.budget, *self.budget.steppers)
        for widget in (self.policy, *numbers, self.hold, self.demo, self.clear):
            enabled = usable and (widget is not self.clear or snapshot.kv.cached > 0)
            if widget.isEnabled() != enabled:
                widget.setEnabled(enabled)

    def _show_pause(self, paused: bool) -> None:
        self.hold.setText(translate("Dashboard", "Resume") if paused else translate("Dashboard", "Pause"))
        self.hold.setToolTip(
            translate("Dashboard", "Let the steps go on") if paused else translate("Dashboard", "Hold the steps back; chats keep queueing")
        )

    def _toggle_pause(self) -> None:
        paused = self._snapshot is not None and self._snapshot.state is EngineState.PAUSED
        self._ask(self._engine.resume if paused else self._engine.pause)

    def _ask(self, command: Callable[[], object], field: Asked | None = None) -> None:
        try:
            command()
        except EngineError as error:
            if field is not None:
                field.give_up()
            self.complain(explained(error))
        else:
            self.complain("")
