"""How long the window's thread is busy with a frame while many tabs stream: on a scripted engine, and on the real one.

On the real one the window's thread shares the interpreter, and the cores, with the engine; whatever it waits for them counts, since a
person waits, too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from app.bench.crowd import LONG_TEXT
from app.bench.stage import LONG_ANSWER, PROMPT, SEATS
from engine import StagedEngine

if TYPE_CHECKING:
    from app.window.main_window import MainWindow

FRAME_S = 0.016
FIRST_WORDS_S = 120.0

Settle = Callable[[], None]


def scripted_frames(window: MainWindow, engine: StagedEngine, settle: Settle, tabs: int, frames: int) -> list[float]:
    """Seconds of each frame in which every tab gets a token of made-up text. Some tab in the middle is in view."""
    for number in range(tabs):
        engine.texts.append(LONG_TEXT)
        _ask(window, f"Question {number}")
    window.switch(tabs // 2)
    while not all(seat is not None and seat.output_tokens for seat in engine.snapshot.seats):
        engine.step()
        settle()
    costs = []
    due = time.perf_counter()
    for _ in range(frames):
        engine.step()
        start = time.perf_counter()
        window.bridge.drain()
        settle()
        costs.append(time.perf_counter() - start)
        due = _wait(due)
    window.stop_all()
    return costs


def real_frames(window: MainWindow, settle: Settle, frames: int) -> list[float]:
    """Seconds of each frame that brought text to some of `SEATS` tabs, answered by an engine that runs by itself; frames without are not
    counted. An answer that ends is asked for again. Raises RuntimeError when a tab gets no words in two minutes."""
    chats = [_ask(window, PROMPT.format(number), LONG_ANSWER) for number in range(SEATS)]
    window.switch(SEATS // 2)
    late = time.monotonic() + FIRST_WORDS_S
    while not all(window.book[chat].messages[-1].text for chat in chats):
        if time.monotonic() > late:
            raise RuntimeError("not every tab was answered in time")
        settle()
        time.sleep(FRAME_S)
    costs: list[float] = []
    due = time.perf_counter()
    while len(costs) < frames:
        for chat in chats:
            if not window.answering.active(chat):
                window.send(chat, PROMPT.format("the next"))
        before = _written(window, chats)
        start = time.perf_counter()
        settle()
        cost = time.perf_counter() - start
        if _written(window, chats) != before:
            costs.append(cost)
        due = _wait(due)
    window.stop_all()
    return costs


def at(costs: list[float], percent: int) -> float:
    """A percentile, in milliseconds."""
    return statistics.quantiles(costs, n=100)[percent - 1] * 1000 if len(costs) > 1 else costs[0] * 1000


def _ask(window: MainWindow, words: str, most: int = 0) -> str:
    """A new chat in a tab of its own, not in view, with a question that is sent."""
    chat_id = window.book.new_chat().id
    if most:
        window.book.set_settings(chat_id, replace(window.book[chat_id].settings, max_tokens=most))
    window.add_tabs([chat_id])
    window.send(chat_id, words)
    return chat_id


def _written(window: MainWindow, chats: list[str]) -> int:
    """Characters that have come so far, in all of them."""
    return sum(len(message.text) for chat in chats for message in window.book[chat].messages)


def _wait(due: float) -> float:
    """Until the next frame; when the one after is due. A frame that took too long shifts those after it, as on a screen."""
    now = time.perf_counter()
    due = max(due + FRAME_S, now)
    time.sleep(due - now)
    return due
