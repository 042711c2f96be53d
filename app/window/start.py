"""`omnibus`: opens the window, starts the engine behind it, and ends both.

Owns the order of things: the window is shown before anything imports torch; at the end the window goes first, then the engine, the loop,
the store. Importing this module imports no Qt, so that the start-up guards can speak first.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.again import start_again
from engine import KV_CLASSES, Engine, EngineConfig, Engines, EngineState, begin_early

if TYPE_CHECKING:
    from PySide6.QtWidgets import QApplication

    from app.window.instance import Knock
    from app.window.main_window import MainWindow

log = logging.getLogger(__name__)

CLOSE_S = 2.0  # what the engine may take to end; past that the process ends without it
SWITCH_INTERVAL_S = 0.001  # the engine's Python and the window's share one interpreter lock


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("window", help="open the window (what `omnibus` alone does)")
    parser.add_argument("--model", default="starter", help="a model folder, a GGUF file, or `starter` (the default)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, mps, …; several with commas share the layers")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16")
    parser.add_argument("--kv-class", choices=KV_CLASSES, default="auto", help="what the chats' keys and values are kept in")
    parser.add_argument("--seats", type=int, default=EngineConfig().seats, help="how many chats are answered at once")
    parser.add_argument("--theme", choices=("system", "dark", "light"), default="system")
    parser.add_argument("--data", type=Path, help="the folder in which chats are kept")
    parser.add_argument("--safe-mode", action="store_true", help="without the tabs of last time, shortcuts of the engine, and the theme")
    parser.add_argument("--dashboard", choices=("off", "beside", "full"), default="off", help="show the dashboard at start")
    # For scripts and screenshots: open a tab for each text, take a picture of the window some seconds after the model is
    # there, and end. For measurements: say on standard output that the window is painted, or the model ready, and end.
    parser.add_argument("--ask", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--screenshot", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--after", type=float, default=10.0, help=argparse.SUPPRESS)
    parser.add_argument("--until", choices=("window", "model"), default="", help=argparse.SUPPRESS)
    parser.add_argument("--size", default="", help=argparse.SUPPRESS)


@dataclass(frozen=True, slots=True)
class Script:
    """What a scripted start does; nothing by default."""

    asks: tuple[str, ...] = ()
    screenshot: Path | None = None
    after: float = 10.0
    until: str = ""


def run(args: argparse.Namespace) -> int:
    """Open the window and return when it is closed. Raises EngineError for a configuration that is out of range."""
    gc.disable()  # the making of a window leaves no garbage, and looking for it takes a tenth of the time; see `live`
    try:
        return _run(args)
    finally:
        gc.enable()


def _run(args: argparse.Namespace) -> int:
    from PySide6.QtCore import Qt
    from PySide6.QtWidgets import QApplication

    from app.loop import make_loop
    from app.settings import SettingsFile
    from app.theme import Theme, app_icon, apply_theme, resize_to_fit
    from app.translations import install
    from app.window.instance import Instance
    from app.window.library import Library, chats_folder
    from app.window.logs import FaultLog
    from app.window.main_window import MainWindow

    engine = Engines(Engine(config_of(args)))
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    QApplication.setHighDpiScaleFactorRoundingPolicy(Qt.HighDpiScaleFactorRoundingPolicy.PassThrough)
    app = QApplication(sys.argv[:1])
    app.setApplicationName("omnibus")
    app.setApplicationDisplayName("Omnibus")
    app.setDesktopFileName("omnibus")
    app.setWindowIcon(app_icon())
    app.setQuitOnLastWindowClosed(False)  # the end is ours to order
    instance = Instance(chats_folder(args.data))
    if not instance.first:
        return _point_at_the_first(instance.knock(_double_clicked(args.model)), chats_folder(args.data))
    begin_early()
    faults = FaultLog()
    library = Library(args.data)
    settings = SettingsFile(None if args.safe_mode else chats_folder(args.data))
    chosen = args.theme if args.theme != "system" or args.safe_mode else settings.settings.theme
    theme = Theme.named(chosen)
    install(app, settings.settings.language)
    apply_theme(app, theme)
    window = MainWindow(engine, library.book, theme)
    resize_to_fit(window, window.width(), window.height())
    library.attach(window, tabs=not args.safe_mode)
    window.titling.enabled = not args.safe_mode
    if args.safe_mode:
        window.setWindowTitle("Omnibus (safe mode)")
    window.models.attach(library.remembered("models"), library.remember)
    instance.knocked.connect(window.come_forward)
    instance.brought.connect(window.models.choose)
    window.preferences.attach(settings, fixed_theme=args.theme != "system")
    if args.size:
        width, height = (int(part) for part in args.size.lower().split("x"))
        window.resize(width, height)
    if args.dashboard != "off":
        window.parts.set_dashboard(args.dashboard)
    loop = make_loop(app)
    try:
        with loop:
            script = Script(tuple(args.ask), args.screenshot, args.after, args.until)
            ended = loop.run_until_complete(live(app, window, engine, script))
        if not ended:
            log.warning("the engine did not end within %.1f s; leaving without it", CLOSE_S)
    finally:
        library.close()
        instance.close()
        faults.close()
    if window.starts_again:
        return start_again()
    if not ended:
        _leave_without_engine()
    return 0


def config_of(args: argparse.Namespace) -> EngineConfig:
    """The engine that was asked for; in safe mode the slow one with nothing clever about it, on the CPU."""
    if args.safe_mode:
        return EngineConfig(model=args.model, device="cpu", seats=args.seats, plain=True)
    return EngineConfig(model=args.model, device=args.device, dtype=args.dtype, kv_class=args.kv_class, seats=args.seats)


def _double_clicked(model: str) -> str:
    """The place of a model that was asked for by its file; the first start may have another folder to count from."""
    return str(Path(model).expanduser().absolute()) if Path(model).expanduser().is_file() else ""


def _point_at_the_first(knock: Knock, folder: Path) -> int:
    """Another process holds the folder: say so, and what came of it."""
    from app.window.instance import Knock

    if knock is Knock.HEARD:
        print("Omnibus is open already; its window was brought to the front.")
        return 0
    if knock is Knock.STUCK:
        print(f"omnibus: Omnibus is open already on the chats in {folder}, but it does not answer.", file=sys.stderr)
        print("Wait a little and start again. If it stays so, end its process (its chats are kept),", file=sys.stderr)
        print("or start with --data and another folder.", file=sys.stderr)
        return 1
    print(f"omnibus: another Omnibus uses the chats in {folder}, but shows no window.", file=sys.stderr)
    print("Wait until it has ended (an import, perhaps), or start with --data and another folder.", file=sys.stderr)
    return 1


async def live(app: QApplication, window: MainWindow, engine: Engines, script: Script) -> bool:
    """Show the window, start the engine, wait for the end, and end everything in order. Returns whether the engine's thread ended."""
    from app.loop import QuitSignals, Tasks

    loop = asyncio.get_running_loop()
    tasks = Tasks(loop)
    over = asyncio.Event()
    window.closed.connect(over.set)
    app.aboutToQuit.connect(over.set)  # the session ends
    signals = QuitSignals(over.set, app)
    window.show()
    if script.until == "window":
        window.repaint()
        print("window", flush=True)
        over.set()
    await _first_paint(window)
    gc.enable()
    if script.until != "window":
        engine.start()
    if script.asks or script.screenshot or script.until == "model":
        tasks.spawn(_play(window, engine, script), "script")
    await over.wait()
    window.shut_down()
    await tasks.cancel_all()
    signals.close()
    return engine.close(CLOSE_S)


async def _first_paint(window: MainWindow) -> None:
    """Give the window its first frames before torch's import takes the interpreter in bursts."""
    for _ in range(3):
        await asyncio.sleep(0.02)
    window.parts.repaint()


async def _play(window: MainWindow, engine: Engines, script: Script) -> None:
    """Open a tab for each text; take the picture `after` seconds from when the model was there, or could not be loaded; close."""
    first = None
    for text in script.asks:
        chat_id = window.new_chat()
        window.send(chat_id, text)
        first = first or chat_id
    if first:
        window.open_chat(first)
    if script.screenshot is not None or script.until:
        while engine.snapshot.state in (EngineState.STARTING, EngineState.LOADING):
            await asyncio.sleep(0.01)
    if script.until:
        print("model" if engine.snapshot.state is EngineState.READY else "no model", flush=True)
        window.close()
    if script.screenshot is not None:
        await asyncio.sleep(script.after)
        script.screenshot.parent.mkdir(parents=True, exist_ok=True)
        if not window.grab().save(str(script.screenshot)):
            log.error("the picture could not be written to %s", script.screenshot)
        window.answering.stop_all()
        window.close()


def _leave_without_engine() -> None:
    """The engine sits in one long call (an import, a forward pass of a large model) and cannot be joined. Everything that matters is
    stored; a daemon thread inside torch while the interpreter is taken down could only crash."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(0)
