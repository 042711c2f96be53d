"""The states of the window that are worth a picture, played on an engine on a stage: the same pictures at every run, without a model.

Owns the scripts. A scene builds what it shows, brings it to the moment, and returns the widget; `app/shot.py` takes the picture. The text
in the chats is made up here; nothing of a person's is read or kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QApplication, QWidget

from app.chats.book import ChatBook
from app.dashboard import DashboardPage
from app.loop import let_go
from app.theme import Theme, apply_theme
from app.window.main_window import MainWindow
from engine import FinishedEvent, FinishReason, Policy, Priority, StagedEngine, TimeSplit, Usage

DASHBOARD_WIDTH, MOST_HEIGHT = 1240, 2400
WAIT_S = 20.0  # for what a thread of the dashboard's works out

# Own tokens of the prompt, of the answer, and when it comes, in steps from the start: long and short, as people are.
CROWD = (
    (60, 210, 0, "Trip to Lisbon in May"),
    (24, 22, 0, "Names for a small boat"),
    (90, 150, 0, "Refactor the parser"),
    (18, 30, 0, "Why is the sky blue?"),
    (40, 96, 0, "Letter to the landlord"),
    (30, 26, 0, "Haiku about rain"),
    (150, 120, 4, "Summary of the meeting"),
    (22, 40, 6, "Dinner for six, no nuts"),
    (36, 170, 10, "Bedtime story with a fox"),
    (64, 60, 16, "SQL for monthly totals"),
    (28, 34, 24, "Rust lifetimes, gently"),
    (48, 80, 40, "Proof that √2 is irrational"),
    (20, 48, 60, "What to read next"),
    (32, 64, 75, "Packing list"),
)
FROM_A_PROGRAM = 9  # this one of them came over the API
STREAMED = (
    "A tour bus leaves with its group and takes nobody on until the last of them is home. *In-flight batching* drives like a city bus: at "
    "every step, whoever is done gets off, and the next in line takes the seat.\n\n"
    "1. **Every step** carries one token for everyone aboard.\n"
    "2. A short answer is *not* held up by a long one.\n"
    "3. No seat rides empty while somebody waits.\n\n"
    "```python\nwhile riders:\n    board(queue, free_seats)\n    for rider in riders:\n        rider.token = model.step(rider)\n"
    "    riders = [rider for rider in riders if not rider.done]\n```\n\n"
    "The more unequal the answers are, the more the tour bus loses: with one long story and five short replies it drives most of the way"
)
ANSWERED = (
    "Light from the sun is scattered by the air, and blue light far more than red, since scattering grows with the fourth power of the "
    "frequency. So from every direction but the sun's own, blue reaches the eye.\n\n"
    "| time of day | path through the air | colour |\n|---|---|---|\n| noon | short | blue |\n"
    "| evening | some forty times longer | red |\n\n"
    "At sunset the path is so long that the blue is scattered *out* of the line of sight, and what remains is red."
)
QUESTIONS = (
    ("Why is the sky blue, and the sunset red?", ANSWERED),
    ("And why not violet?", "Violet is scattered even more, but the sun sends less of it, and the eye is less sensitive to it."),
    (
        "Give me the formula.",
        "Rayleigh's law: the intensity goes with\n\n```\nI ~ 1 / wavelength^4\n```\n\nso 400 nm scatters nine times as much as 700 nm.",
    ),
)


@dataclass
class Stage:
    """What a scene plays on. `put_away` ends all that it made."""

    app: QApplication
    theme: Theme
    scale: float = 1.0
    ends: list[Callable[[], object]] = field(default_factory=list)

    def dashboard(self, engine: StagedEngine) -> DashboardPage:
        page = DashboardPage(engine, self.theme, clock=lambda: engine.sim.clock.now)
        page.resize(DASHBOARD_WIDTH, 900)
        page.show()
        page.sampler.stop()  # the scene looks, at moments of its own
        self.ends += [page.shut_down, page.close, page.deleteLater]
        return page

    def window(self, engine: StagedEngine, book: ChatBook, width: int = 1280, height: int = 840) -> MainWindow:
        window = MainWindow(engine, book, self.theme)
        window.resize(width, height)
        window.show()
        self.ends += [lambda: engine.close(), window.shut_down, window.deleteLater]
        return window

    def settle(self) -> None:
        for _ in range(4):
            self.app.processEvents()
            QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)

    def wait_for(self, there: Callable[[], bool]) -> None:
        """Run events until something that a thread works out is there. Raises TimeoutError."""
        deadline = time.monotonic() + WAIT_S
        while not there():
            if time.monotonic() > deadline:
                raise TimeoutError("a scene did not get to its moment")
            self.app.processEvents()
            time.sleep(0.005)

    def put_away(self) -> None:
        for end in self.ends:
            end()
        self.ends.clear()
        self.settle()


def play(engine: StagedEngine, page: DashboardPage, steps: int, crowd: bool = True) -> None:
    """Let people come and the engine step, the dashboard looking ten times a second of the engine's time."""
    looked = engine.sim.clock.now
    for step in range(steps):
        if crowd:
            for number, (prompt, answer, at, title) in enumerate(CROWD):
                if at == step:
                    priority = Priority.API if number == FROM_A_PROGRAM else Priority.FOREGROUND if number == 0 else Priority.BACKGROUND
                    engine.board(prompt, answer, title=title, priority=priority)
        engine.step()
        if engine.sim.clock.now - looked >= 0.1:
            looked = engine.sim.clock.now
            page.sampler.sample()
    look(page)


def look(page: DashboardPage) -> None:
    """Take in the last snapshot whole, with nobody on the way between two places."""
    page.bus.settle()
    page._pace.reset()
    page.sampler.latest = None
    page.sampler.sample()
    page.bus.settle()


def whole(stage: Stage, page: DashboardPage) -> DashboardPage:
    """As high as its content, so that the picture shows all of it."""
    stage.settle()
    layout = page._column
    height = layout.heightForWidth(page.width()) if layout.hasHeightForWidth() else layout.sizeHint().height()
    page.resize(page.width(), min(MOST_HEIGHT, height + 8))
    stage.settle()
    look(page)
    stage.settle()
    return page


# ----------------------------------------------------------------------------------------------------------- the dashboard


def empty(stage: Stage) -> QWidget:
    """Before anything was asked."""
    page = stage.dashboard(StagedEngine(seats=6))
    look(page)
    return whole(stage, page)


def in_flight(stage: Stage) -> QWidget:
    """The crowd on the city bus."""
    return _demo(stage, Policy.IN_FLIGHT)


def static(stage: Stage) -> QWidget:
    """The same crowd, at the same moment, on the tour bus."""
    return _demo(stage, Policy.STATIC)


def _demo(stage: Stage, policy: Policy) -> QWidget:
    engine = StagedEngine(seats=6, blocks=160, policy=policy)
    page = stage.dashboard(engine)
    play(engine, page, 120)
    return whole(stage, page)


def pressure(stage: Stage) -> QWidget:
    """Too few blocks for all who ride: somebody steps aside."""
    engine = StagedEngine(seats=6, blocks=46)
    page = stage.dashboard(engine)
    for step in range(400):
        if step < len(CROWD):
            prompt, answer, _, title = CROWD[step]
            engine.board(prompt, answer, title=title)
        engine.step()
        page.sampler.sample()
        if engine.snapshot.counters.preemptions >= 2 and step > 60:
            break
    play(engine, page, 3, crowd=False)
    return whole(stage, page)


def replay(stage: Stage) -> QWidget:
    """A recording, halfway through."""
    page, _ = _recorded(stage)
    page.deck.replay()
    stage.wait_for(lambda: page.deck.replaying)
    page.sampler.stop()
    playback = page.deck.player.playback
    assert playback is not None
    page.deck.player.slider.setValue(len(playback) // 2)
    return whole(stage, page)


def compare(stage: Stage) -> QWidget:
    """Both policies on the arrivals of one recording."""
    page, _ = _recorded(stage)
    page.deck.compare()
    stage.wait_for(lambda: page.deck.panel.view.comparison is not None)
    return whole(stage, page)


def _recorded(stage: Stage) -> tuple[DashboardPage, StagedEngine]:
    engine = StagedEngine(seats=6, blocks=160)
    page = stage.dashboard(engine)
    page.deck.toggle_record()
    stage.wait_for(lambda: page.deck.recording)
    play(engine, page, 320)
    page.deck.stop_recording()
    stage.wait_for(lambda: page.deck.tape is not None)
    return page, engine


# ----------------------------------------------------------------------------------------------------------- the window


def chat_empty(stage: Stage) -> QWidget:
    """The first thing anyone sees."""
    window = stage.window(StagedEngine(seats=6), ChatBook())
    stage.settle()
    return window


def chat_streaming(stage: Stage) -> QWidget:
    """An answer on its way, others beside it, one in the queue."""
    engine = StagedEngine(seats=3)
    book = _book()
    window = stage.window(engine, book)
    engine.texts.append(STREAMED)
    first = window.new_chat()
    window.send(first, "How is in-flight batching different from a fixed batch? Show it in code, too.")
    for text in ("Plan three days in Lisbon", "Explain lifetimes in Rust, gently", "A bedtime story with a fox"):
        engine.texts.append(STREAMED)
        window.send(window.new_chat(), text)
    window.open_chat(first)
    for _ in range(96):
        engine.step()
        window.bridge.drain()
    window.monitor.wake()
    window.monitor._sample()
    window.parts.strip.sampler.sample()
    stage.settle()
    return window


def chat_beside(stage: Stage) -> QWidget:
    """Chat and dashboard side by side."""
    window = chat_streaming(stage)
    assert isinstance(window, MainWindow)
    window.resize(1600, 900)
    window.parts.set_dashboard("beside")
    stage.settle()
    return window


def chat_long(stage: Stage) -> QWidget:
    """A long conversation, at its end."""
    book = _book()
    chat = book.new_chat()
    for turn in range(12):
        question, answer = QUESTIONS[turn % len(QUESTIONS)]
        _say(book, chat.id, question, answer)
    window = stage.window(StagedEngine(seats=6), book)
    window.open_chat(chat.id)
    stage.settle()
    if (page := window.page(chat.id)) is not None:
        page.view.scroll_to_end()
    stage.settle()
    return window


def chat_answered(stage: Stage) -> QWidget:
    """A short conversation, read to its end: the picture for either theme."""
    book = _book()
    chat = book.new_chat()
    for question, answer in QUESTIONS[:2]:
        _say(book, chat.id, question, answer)
    window = stage.window(StagedEngine(seats=6), book)
    window.open_chat(chat.id)
    stage.settle()
    return window


def _book() -> ChatBook:
    """Some older chats for the sidebar."""
    book = ChatBook()
    for title in ("Trip to Lisbon in May", "Refactor the parser", "Dinner for six, no nuts"):
        chat = book.new_chat()
        _say(book, chat.id, title, "Gladly. What matters most to you?")
    return book


def _say(book: ChatBook, chat_id: str, question: str, answer: str) -> None:
    book.add_user(chat_id, question)
    message = book.begin_answer(chat_id)
    book.append(message, answer)
    tokens = len(answer) // 4
    book.finish(chat_id, message, FinishedEvent("", FinishReason.STOP, Usage(40, tokens), TimeSplit(0.1, 0.4, tokens / 18, 0.0, 0.5)))


# name of the file: (scene, theme)
SCENES: dict[str, tuple[Callable[[Stage], QWidget], str]] = {
    "dashboard-empty": (empty, "dark"),
    "dashboard-city-bus": (in_flight, "dark"),
    "dashboard-tour-bus": (static, "dark"),
    "dashboard-pressure": (pressure, "dark"),
    "dashboard-replay": (replay, "dark"),
    "dashboard-compare": (compare, "dark"),
    "dashboard-light": (in_flight, "light"),
    "chat-empty": (chat_empty, "dark"),
    "chat-streaming": (chat_streaming, "dark"),
    "chat-beside": (chat_beside, "dark"),
    "chat-long": (chat_long, "dark"),
    "chat-light": (chat_answered, "light"),
    "chat-dark": (chat_answered, "dark"),
}


def picture_of(name: str, app: QApplication, save: Callable[[QWidget], None]) -> None:
    """Play one scene and hand its widget to `save`; all of it is gone afterwards."""
    scene, theme_name = SCENES[name]
    theme = Theme.named(theme_name)
    apply_theme(app, theme)
    stage = Stage(app, theme)
    try:
        save(scene(stage))
    finally:
        stage.put_away()
        let_go(app)
