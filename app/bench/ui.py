"""`omnibus bench ui`: what the window costs, on its real widgets and the real store, off screen and without a model.

Six figures: a streamed token in a short and in a long answer (the same, if writing is incremental), the time of a frame while 32 tabs
stream, opening a chat of 5,000 messages, opening the window on 10,000 chats, and the first find of a search in these. The engine is the
staged one: the real scheduler over made-up tokens. How long a start takes is told beside them. With `--real`, also frames of eight tabs
that the real engine answers, and a start until the model is ready; with `--blocks`, a streamed token of every kind of block instead.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.bench.crowd import LONG_TEXT, MESSAGES_OF_LONG_CHAT, SEARCHES, fill_store
from app.bench.document import add_json_option, write_json
from app.bench.growth import GROWTHS, token_costs
from app.bench.stage import offscreen, real_engine
from app.bench.start_up import start_ms
from app.bench.tabs import at, real_frames, scripted_frames

if TYPE_CHECKING:
    from PySide6.QtWidgets import QApplication

    from app.window.main_window import MainWindow

CHATS = 10_000
TABS = 32
FRAMES = 300
SEARCH_S = 30.0
SHORT, LONG = 1_000, 50_000  # characters
MIXED = tuple(f"word{number} " if number % 12 else f"word{number}.\n\n" for number in range(144))


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("ui", help="what the window costs: tokens, frames, large chats, many chats, search")
    parser.add_argument("--chats", type=int, default=CHATS, help=f"chats in the store (default: {CHATS:,})")
    parser.add_argument("--messages", type=int, default=MESSAGES_OF_LONG_CHAT, help="messages of the long chat")
    parser.add_argument("--frames", type=int, default=FRAMES, help=f"frames that are timed (default: {FRAMES})")
    parser.add_argument("--real", action="store_true", help="also what needs a model: frames of tabs it answers, a start until it is ready")
    parser.add_argument("--model", default="starter", help="the model of --real")
    parser.add_argument("--blocks", action="store_true", help="only what a token costs in one block that grows, of every kind")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Raises EngineError when there is no model for what needs one."""
    if min(args.chats, args.messages, args.frames) < 1:
        print("omnibus bench ui: --chats, --messages and --frames must be more than 0.", file=sys.stderr)
        return 2
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    app = offscreen()
    logging.getLogger("app").setLevel(logging.ERROR)
    if args.blocks:
        figures = measure_blocks(make_settle(app))
    else:
        with tempfile.TemporaryDirectory(prefix="omnibus-bench-") as folder:
            figures = measure(app, Path(folder), args.chats, args.messages, args.frames)
    told = {} if args.blocks else {"start_up_window_ms": round(start_ms("window"), 3)}
    if args.real and not args.blocks:
        figures |= told | measure_real(app, args.model, args.frames)
    wide = max(24, *(len(name) + 1 for name in figures | told))
    for name, value in (figures | told).items():
        print(f"{name:<{wide}}{value:>12,.2f}", file=sys.stderr if args.json == "-" else sys.stdout)
    return write_json(args.json, figures)


def measure(app: QApplication, folder: Path, chats: int, messages: int, frames: int) -> dict[str, float]:
    """Every figure, by its name in the document."""
    settle = make_settle(app)
    figures = {
        "token_us_at_1k_chars": token_us(settle, SHORT),
        "token_us_at_50k_chars": token_us(settle, LONG),
        "frame_ms_p99_32_tabs": frame_ms(settle, frames),
    }
    long_chat = fill_store(folder, chats, messages)
    figures |= library_figures(folder, settle, long_chat)
    names = ("token_us_at_1k_chars", "token_us_at_50k_chars", "frame_ms_p99_32_tabs", "open_5000_messages_ms", "window_10000_chats_ms")
    return {name: round(figures[name], 3) for name in (*names, "search_first_hit_ms")}


def measure_real(app: QApplication, model: str, frames: int) -> dict[str, float]:
    """What only a model can show, by its name in the document."""
    from app.chats.book import ChatBook

    settle = make_settle(app)
    figures = {"start_up_model_ms": start_ms("model", model)}
    with real_engine(model) as engine:
        window = _window(ChatBook(), engine)
        costs = real_frames(window, settle, frames)
        figures |= {"frame_ms_p50_8_tabs_real": at(costs, 50), "frame_ms_p99_8_tabs_real": at(costs, 99)}
        _close(window, settle)
    return {name: round(value, 3) for name, value in figures.items()}


def measure_blocks(settle: Callable[[], None]) -> dict[str, float]:
    """Microseconds of a token, on the mean (some tokens end a part of what was drafted), of every kind of block, short and long."""
    figures = {}
    for name, growth in GROWTHS.items():
        for length in (SHORT, LONG):
            costs = _costs(settle, growth.text(length), growth.tokens, growth.unfolded)
            figures[f"{name}, {length:,} characters"] = round(statistics.fmean(costs) * 1e6, 1)
    return figures


def make_settle(app: QApplication) -> Callable[[], None]:
    """Everything that is due now, painting included."""
    from PySide6.QtCore import QCoreApplication, QEvent

    def settle() -> None:
        app.processEvents()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)

    return settle


# ------------------------------------------------------------------------------------------------------------------- streaming


def token_us(settle: Callable[[], None], length: int) -> float:
    """Microseconds that one more token costs an answer of `length` characters that is in view: taken in, written, painted. Median."""
    return statistics.median(_costs(settle, (LONG_TEXT * (length // len(LONG_TEXT) + 1))[:length], MIXED)) * 1e6


def frame_ms(settle: Callable[[], None], frames: int) -> float:
    """The 99th percentile of the time that the window's thread needs for a frame while 32 tabs each get a token in it."""
    from app.chats.book import ChatBook
    from engine import StagedEngine

    engine = StagedEngine(seats=TABS, blocks=TABS * 80, token_budget=4096)
    window = _window(ChatBook(), engine)
    costs = scripted_frames(window, engine, settle, TABS, frames)
    _close(window, settle)
    return at(costs, 99)


# ---------------------------------------------------------------------------------------------------------------------- library


def library_figures(folder: Path, settle: Callable[[], None], long_chat: str) -> dict[str, float]:
    """Opening the window on a folder of chats, opening its longest chat, and searching."""
    from app.window.library import Library

    start = time.perf_counter()
    library = Library(folder)
    window = _window(library.book)
    library.attach(window)
    settle()
    opened = time.perf_counter() - start
    start = time.perf_counter()
    window.open_chat(long_chat)
    settle()
    long = time.perf_counter() - start
    found = max(statistics.median(search_ms(window, settle, words) for _ in range(5)) for words in SEARCHES)
    library.close()
    _close(window, settle)
    return {"window_10000_chats_ms": opened * 1000, "open_5000_messages_ms": long * 1000, "search_first_hit_ms": found}


def search_ms(window: MainWindow, settle: Callable[[], None], words: str) -> float:
    """Milliseconds from the last key of a search to its first find in the list."""
    card = window.overlays.search_card
    window.overlays.open_search()
    card.field.clear()
    settle()
    card.list.clear()
    start = time.perf_counter()
    card.field.setText(words)
    while not card.list.count():
        settle()
        if time.perf_counter() - start > SEARCH_S:
            raise RuntimeError(f"the search for {words!r} found nothing")
    cost = time.perf_counter() - start
    card.close_card()
    return cost * 1000


# ---------------------------------------------------------------------------------------------------------------------- private


def _costs(settle: Callable[[], None], text: str, tokens: Sequence[str], unfolded: bool = False) -> list[float]:
    """See `token_costs`; in a window of its own."""
    from app.chats.book import ChatBook

    window = _window(ChatBook())
    costs = token_costs(window, settle, text, tokens, unfolded)
    _close(window, settle)
    return costs


def _window(book: Any, engine: Any = None) -> MainWindow:
    from app.theme import Theme
    from app.window.main_window import MainWindow
    from engine import StagedEngine

    window = MainWindow(engine or StagedEngine(), book, Theme.dark())
    window.show()
    return window


def _close(window: MainWindow, settle: Callable[[], None]) -> None:
    window.shut_down()
    window.deleteLater()
    settle()
