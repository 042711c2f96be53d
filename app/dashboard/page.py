"""The dashboard: watch, and steer, the batch your own tabs are in.

Puts the views together and feeds them from one sampler, which runs only while the page is on show: with the engine's snapshots, or
with those of a recording that is replayed. Asks the engine by its public calls; opening a chat and running the demo are the window's,
and leave by signals.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QHideEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFileDialog, QFrame, QPushButton, QScrollArea, QStackedWidget, QVBoxLayout, QWidget

from app.dashboard import wording
from app.dashboard.bus import BusView
from app.dashboard.canvas import FIGURES_S, Pace
from app.dashboard.cards import CardRow
from app.dashboard.controls import Controls
from app.dashboard.decision_log import DecisionLog
from app.dashboard.deck import Deck
from app.dashboard.empty_state import EmptyState
from app.dashboard.export import export_timeline
from app.dashboard.flow import in_sequence
from app.dashboard.heading import Heading
from app.dashboard.kvmap import KvMap
from app.dashboard.model_chooser import ModelChooser
from app.dashboard.panel import Panel
from app.dashboard.port import EnginePort, SnapshotSource
from app.dashboard.riders import people_of
from app.dashboard.sampler import Sampler
from app.dashboard.segmented import Segmented
from app.dashboard.sparkline import BUCKET_S, BUCKETS
from app.dashboard.timeline import Timeline
from app.dashboard.twin import TableTwin
from app.dashboard.untold import steps_untold
from app.dashboard.wording import translate
from app.numbers import explained
from app.theme import Theme, leave_the_wheel
from engine import EngineError, Playback, Priority, Snapshot

WIDEST = 1320


class DashboardPage(QWidget):
    """Signals: open_chat(chat_id); run_demo()."""

    LEAST_WIDTH = 480

    open_chat = Signal(str)
    run_demo = Signal()

    def __init__(
        self, engine: EnginePort, theme: Theme, parent: QWidget | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(parent)
        self._engine = engine
        self._source: SnapshotSource = engine  # what is on show
        self._playback: Playback | None = None  # likewise, when it is a recording
        self._jumped = False
        self._theme = theme
        self._seen_step = -1
        self._pictures: tuple[bool, bool, bool] | None = None  # anything at all, blocks, steps
        self._rules: tuple[object, ...] = ()
        self._people: list[str] = []  # who was on the bus and who waited, at the last look
        self._pace = Pace(clock, FIGURES_S)
        self.setAccessibleName(translate("Dashboard", "Dashboard"))
        self.heading = Heading(theme, self)
        self.chooser = ModelChooser(engine, theme, self)
        self.setMinimumWidth(self.LEAST_WIDTH)
        self.controls = Controls(engine, theme, self)
        self.deck = Deck(engine, theme, self, clock=clock)
        self.cards = CardRow(theme, self)
        self.bus = BusView(theme, self, clock=clock)
        self.kvmap = KvMap(theme, self)
        self.timeline = Timeline(theme, self)
        self.log = DecisionLog(theme, self)
        self.twin = TableTwin(theme, self)
        self.empty = EmptyState(self)
        self.sampler = Sampler(engine, self, clock=clock, settled=lambda: self._playback is not None or self.cards.flat)
        self._build()
        self._connect()
        self.sampler.sampled.connect(self._take)
        self.sampler.aged.connect(self._age)

    # ----------------------------------------------------------------------------------------------------------- methods

    def set_theme(self, theme: Theme) -> None:
        """Repaint in another theme."""
        self._theme = theme
        pictures = (self.cards, self.bus, self.kvmap, self.timeline, self.log, self.twin, self.below)
        for view in (self.heading, self.chooser, self.controls, self.deck, *pictures):
            view.set_theme(theme)
        if self.sampler.latest is not None:
            self.heading.show_snapshot(self.sampler.latest, self._playback is not None)

    def shut_down(self) -> None:
        """The page is not needed any more: nothing of it is left running."""
        self.sampler.stop()
        self.deck.shut_down()

    def export(self, path: str) -> None:
        """Write the timeline on show to a .png, .svg or .json file, chosen by its ending; problems are said on the page."""
        try:
            export_timeline(self.timeline, Path(path))
        except (OSError, ValueError) as error:
            self.controls.complain(translate("Dashboard", "Could not write {0}: {1}").format(path, wording.trouble(error)))

    # ---------------------------------------------------------------------------------------------------------- building

    def _build(self) -> None:
        self.below = Segmented(
            self._theme,
            translate("Dashboard", "Below the timeline"),
            {
                "log": (translate("Dashboard", "Decisions"), translate("Dashboard", "What each step decided, and why")),
                "twin": (translate("Dashboard", "Tables"), translate("Dashboard", "All of this page as sortable tables")),
            },
            self,
        )
        self.stack = QStackedWidget(self)
        self.stack.addWidget(self.log)
        self.stack.addWidget(self.twin)
        self.bus_panel = QFrame(self)
        self.bus_panel.setProperty("kind", "card")
        inner = QVBoxLayout(self.bus_panel)
        inner.setContentsMargins(16, 16, 16, 12)
        inner.addWidget(self.bus)
        self.kv_panel = Panel(translate("Dashboard", "KV blocks"), self.kvmap, self)
        self.timeline_panel = Panel(translate("Dashboard", "Timeline"), self.timeline, self)
        self.log_panel = Panel("", self.stack, self)
        self.log_panel.title.hide()
        self.log_panel.head.insertWidget(0, self.below)
        self.follow = self._tool(
            translate("Dashboard", "Hold"), translate("Dashboard", "Stand still to look closer; the engine goes on (Space)")
        )
        self.narrower = self._tool("−", translate("Dashboard", "More steps, narrower (−)"))
        self.wider = self._tool("+", translate("Dashboard", "Fewer steps, wider (+)"))
        self.save = self._tool(translate("Dashboard", "Export"), translate("Dashboard", "Save the timeline as PNG, SVG or JSON"))
        for button in (self.follow, self.narrower, self.wider, self.save):
            self.timeline_panel.buttons.addWidget(button)
        content = QWidget()
        content.setObjectName("dashboardContent")
        self._column = QVBoxLayout(content)
        self._column.setSpacing(14)
        for widget in (
            self.heading,
            self.chooser,
            self.controls,
            self.deck,
            self.cards,
            self.bus_panel,
            self.empty,
            self.kv_panel,
            self.timeline_panel,
            self.log_panel,
        ):
            self._column.addWidget(widget)
        self._column.addStretch(1)
        self.scroller = QScrollArea(self)
        self.scroller.setWidgetResizable(True)
        self.scroller.setFrameShape(QFrame.Shape.NoFrame)
        self.scroller.setWidget(content)
        leave_the_wheel(content)
        self.scroller.viewport().setAutoFillBackground(False)
        content.setAutoFillBackground(False)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(self.scroller)
        self._show_pictures(False)

    def _tool(self, words: str, tip: str) -> QPushButton:
        button = QPushButton(words, self)
        button.setProperty("kind", "quiet")
        button.setToolTip(tip)
        button.setAccessibleName(tip)
        return button

    def _connect(self) -> None:
        for view in (self.bus, self.kvmap, self.timeline, self.log):
            view.open_chat.connect(self.open_chat)
        for view in (self.bus, self.kvmap, self.timeline):
            view.seat_hovered.connect(self._mark_seat)
        self.bus.cancel.connect(lambda request_id: self._ask(lambda: self._engine.cancel(request_id)))
        self.chooser.changed.connect(lambda: self._change_source(None))
        self.deck.source_changed.connect(self._change_source)
        self.deck.moved.connect(self._look)
        self.deck.panel.compared.connect(self.twin.show_comparison)
        self.bus.set_priority.connect(self._set_priority)
        self.controls.run_demo.connect(self.run_demo)
        self.empty.run_demo.connect(self.run_demo)
        self.deck.lesson.run_demo.connect(self.run_demo)
        self.heading.restart.connect(lambda: self._ask(self._engine.restart))
        self.timeline.step_selected.connect(self.log.show_step)
        self.log.step_selected.connect(self.timeline.select)
        self.timeline.hold_changed.connect(
            lambda held: self.follow.setText(translate("Dashboard", "Follow") if held else translate("Dashboard", "Hold"))
        )
        self.follow.clicked.connect(lambda: self.timeline.hold(not self.timeline.held))
        self.narrower.clicked.connect(lambda: self.timeline.zoom(-1))
        self.wider.clicked.connect(lambda: self.timeline.zoom(1))
        self.save.clicked.connect(self._choose_file)
        self.below.asked.connect(self._show_below)
        in_sequence(self.timeline, *self.below.buttons.values(), self.log.chat)

    # ------------------------------------------------------------------------------------------------------------- slots

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._pace.reset()
        self.sampler.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.sampler.stop()
        self.cards.look_away()
        self.bus.settle()
        self.deck.look_away()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        side = max(24 if self.width() >= 900 else 14, (self.width() - WIDEST) // 2)
        self._column.setContentsMargins(side, 20 if self.width() >= 900 else 14, side, 24)

    def _take(self, snapshot: Snapshot, time_s: float) -> None:
        """A new snapshot: who got on or off at once, everything else some three times a second."""
        self.deck.count()
        if self._playback is None:
            self.chooser.look(snapshot)
        people = people_of(snapshot)
        if people != self._people or self._playback is not None:  # a recording that is dragged moves the bus at once
            self._people = people
            self.bus.show_snapshot(snapshot)
        self._pace.follow(snapshot.rates.step_s)
        rules = (snapshot.state, snapshot.policy, snapshot.token_budget, len(snapshot.seats), snapshot.error)
        if self._pace.ready() or rules != self._rules:
            self._rules = rules
            self._show(snapshot, time_s)

    def _age(self, snapshot: Snapshot, time_s: float) -> None:
        """Nothing new: what was held back is shown, and the sixty seconds move on."""
        if self._pace.behind:
            self._pace.behind = False
            self._show(snapshot, time_s)
        if self._playback is None:  # a recording's time stands still with it
            self.cards.show_snapshot(snapshot, time_s)
        self.bus.flush()

    def _change_source(self, playback: Playback | None) -> None:
        """Show a recording, or the engine again: every view begins anew."""
        self._playback = playback
        self._source = self._engine if playback is None else playback
        self._jumped = playback is not None
        self._start_over()
        self.cards.show_past(())
        self.bus.settle()
        self._pace.reset()
        self.controls.freeze(playback is not None)
        self.controls.complain("")
        self.sampler.look_at(self._source)

    def _look(self, jumped: bool) -> None:
        """The recording shows another position."""
        dragging = self.deck.player.dragging  # then the figures follow at their usual pace, and catch up at the end
        if jumped:
            self._jumped = True
            if not dragging:
                self._pace.reset()
        if self.sampler.watching:
            self.sampler.sample()
            if self._pace.behind and not dragging:
                self._pace.behind = False
                self._show(self._source.snapshot, self._source.snapshot.time)

    def _start_over(self) -> None:
        self.timeline.clear()
        self.log.clear()
        self._seen_step = -1

    def _show(self, snapshot: Snapshot, time_s: float) -> None:
        """One snapshot, and the steps since the last one, into every view."""
        if snapshot.step < self._seen_step:  # another engine's steps, or the same one restarted
            self._start_over()
        records = self._source.history(max(0, self._seen_step)) if snapshot.step != self._seen_step else ()
        self._seen_step = snapshot.step
        self.heading.show_snapshot(snapshot, self._playback is not None)
        self.controls.show_snapshot(snapshot)
        if self._jumped and self._playback is not None:
            self.cards.show_past(self._playback.before(BUCKETS * BUCKET_S))
        else:
            self.cards.show_snapshot(snapshot, time_s)
        self._jumped = False
        self.bus.show_snapshot(snapshot)
        self.bus.flush()  # it keeps a pace of its own, for who moves in between
        self.kvmap.show_snapshot(snapshot)
        self.timeline.show_steps(records, len(snapshot.seats))
        self.log.show_steps(records)
        self.twin.show_snapshot(snapshot, self.timeline.grid.records)
        self._show_notes(snapshot)
        self._show_pictures(bool(self.timeline.grid.end or snapshot.seated or snapshot.waiting), snapshot)
        if self.empty.isVisibleTo(self):
            self.empty.show_snapshot(snapshot)

    def _show_notes(self, snapshot: Snapshot) -> None:
        kv, cells = snapshot.kv, self.kvmap.cells
        words = translate("Dashboard", "{0} a block").format(wording.tokens(kv.block_size)) if kv.block_size else ""
        if cells.group > 1:
            words += translate("Dashboard", ", one cell is {0} blocks").format(cells.group)
        if words != self.kv_panel.note.text():
            self.kv_panel.note.setText(words)
        words = translate("Dashboard", "rows are seats, each column is one step")
        if words != self.timeline_panel.note.text():
            self.timeline_panel.note.setText(words)

    def _show_pictures(self, there: bool, snapshot: Snapshot | None = None) -> None:
        """The pictures, or the card that says why there are none. What an engine does not tell has no picture; the heading says it."""
        blocks = there and snapshot is not None and snapshot.kv.total > 0
        steps = there and snapshot is not None and not steps_untold(snapshot)
        shown = (there, blocks, steps)
        if self._pictures != shown:
            before, self._pictures = self._pictures, shown
            self.empty.setVisible(not there)
            self.kv_panel.setVisible(blocks)
            self.timeline_panel.setVisible(steps)
            self.log_panel.setVisible(there)
            if there and not steps:
                self._show_below("twin")  # no step is told, so no decision either
            elif before is not None and before[0] and not before[2]:
                self._show_below("log")

    def _show_below(self, key: str) -> None:
        self.below.show_choice(key)
        self.stack.setCurrentWidget(self.log if key == "log" else self.twin)

    def _mark_seat(self, seat: int) -> None:
        sender = self.sender()
        for view in (self.bus, self.kvmap, self.timeline):
            view.mark_seat(-1 if view is sender and view is not self.timeline else seat)

    def _set_priority(self, request_id: str, priority: Priority) -> None:
        self._ask(lambda: self._engine.set_priority(request_id, priority))

    def _ask(self, command: Callable[[], object]) -> None:
        if self._playback is not None:
            self.controls.complain(translate("Dashboard", "This is a recording: nothing in it can be changed. Go back to live first."))
            return
        try:
            command()
        except EngineError as error:
            self.controls.complain(explained(error))

    def _choose_file(self) -> None:
        dialog = QFileDialog(self, translate("Dashboard", "Save the timeline"), f"omnibus-{self._seen_step}.png")
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilters(
            [translate("Dashboard", "Picture (*.png)"), translate("Dashboard", "Drawing (*.svg)"), translate("Dashboard", "Data (*.json)")]
        )
        dialog.fileSelected.connect(self.export)
        dialog.open()
