"""A dressed application, a clock that stands still, and engines for the dashboard's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QApplication

from app.dashboard import DashboardPage
from app.theme import Theme, apply_theme
from tests.app.dashboard.sim_engine import SimEngine


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def dressed(qapp: QApplication) -> Iterator[QApplication]:
    """The application in the dark theme; undressed again, so that other tests find it as it was."""
    apply_theme(qapp, Theme.dark())
    yield qapp
    qapp.setStyleSheet("")


@pytest.fixture
def make_page(dressed: QApplication, qtbot, clock: Clock) -> Iterator[Callable[..., DashboardPage]]:
    """Make a page that is shown, and is gone without a trace when the test is over."""
    pages: list[tuple[DashboardPage, SimEngine]] = []

    def make(engine: SimEngine, width: int = 1200, height: int = 900) -> DashboardPage:
        page = DashboardPage(engine, Theme.dark(), clock=clock)
        page.bus.motion._still = lambda: True
        page.resize(width, height)
        page.show()
        pages.append((page, engine))
        return page

    yield make
    for page, engine in pages:
        page.close()
        page.shut_down()
        assert not page.deck.player.playing
        assert not page.sampler.running and not page.bus.motion.running, "a hidden dashboard still runs a timer"
        assert engine.listeners == 0, "a hidden dashboard still listens"
        page.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


@pytest.fixture
def tick(clock: Clock) -> Callable[..., None]:
    """Step the engine and let the page look, with time enough between two looks that nothing is held back."""

    def go(page: DashboardPage, engine: SimEngine, steps: int = 1) -> None:
        engine.step(steps)
        clock.now += 1.0
        page.sampler.sample()

    return go
