"""`omnibus --self-test`: does this installation work? A window drawn without a screen, the starter model, and two chats at once.

Run on every bundle before it is given to anyone, and by anyone who wonders. Its chats lie in a folder of their own, not among the person's.
Exit status 0 when all of it worked; what did not is said on standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import platform
import sys
import tempfile
import threading
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.bench.document import add_json_option, write_json
from engine import Engine, EngineConfig, EngineState, begin_early
from engine.version import __version__

if TYPE_CHECKING:
    from PySide6.QtGui import QImage

    from app.window.main_window import MainWindow

PATIENCE_S = 300.0
TOKENS = 48
QUESTIONS = ("Name three things one can see from a bus.", "Write two sentences about rain.")
SIGNALS = 5000
FORMULA = r"\sum_{i=1}^{n} \frac{x_i^2}{\sqrt{2\pi}}"  # needs the fonts and tables that a bundle easily loses
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "PySide6-Essentials", "apsw")


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("self-test", help="try this installation: a window without a screen, the model, two chats at once")
    parser.add_argument("--screenshot", type=Path, metavar="FILE", help="keep the picture of the window")
    parser.add_argument("--model", default="starter", help=argparse.SUPPRESS)
    parser.add_argument("--linger", type=float, default=0.0, help=argparse.SUPPRESS)  # seconds before the end: something is kept meanwhile
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    gc.disable()  # until the window is shown, as in `app.window.start`
    begun = process_start()
    begin_early()
    from PySide6.QtWidgets import QApplication

    from app.loop import let_go, make_loop
    from app.theme import Theme, apply_theme
    from app.transcript import formula
    from app.window.library import Library
    from app.window.main_window import MainWindow

    app = QApplication.instance() or QApplication(["omnibus"])
    assert isinstance(app, QApplication)
    sys.setswitchinterval(0.001)
    apply_theme(app, Theme.dark())
    engine = Engine(EngineConfig(model=args.model))
    with tempfile.TemporaryDirectory(prefix="omnibus-self-test-") as folder:
        library = Library(Path(folder))
        window = MainWindow(engine, library.book, Theme.dark())
        library.attach(window)
        trial = Trial(window, engine, begun)
        with make_loop(app) as loop:
            loop.run_until_complete(trial.play())
            loop.run_until_complete(asyncio.sleep(args.linger))
        picture = window.grab().toImage()
        window.shut_down()
        trial.expect(engine.close(10), "the engine's thread did not end")
        trial.expect(library.close(), "the chats could not be saved")
        window.deleteLater()
    let_go(app)
    trial.expect(not is_blank(picture), "the window was drawn empty")
    trial.expect(formula.draw(FORMULA, 18, "#ffffff", True) is not None, "a formula could not be drawn")
    trial.expect(count_signals() == SIGNALS, "Qt's signals lose calls")
    left = [thread.name for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    trial.expect(not left, f"threads are left behind: {', '.join(left)}")
    if args.screenshot is not None:
        trial.expect(picture.save(str(args.screenshot)), f"{args.screenshot} could not be written")
    return report(trial, args.json)


class Trial:
    """What the window and the engine did.

    Attributes: problems (sentences); window_s, first_token_s (from the start of the process); two_chats_tok_s.
    """

    def __init__(self, window: MainWindow, engine: Engine, begun: float) -> None:
        self._window = window
        self._engine = engine
        self._begun = begun
        self.problems: list[str] = []
        self.window_s = 0.0
        self.first_token_s = 0.0
        self.two_chats_tok_s = 0.0

    def expect(self, good: bool, otherwise: str) -> None:
        if not good:
            self.problems.append(otherwise)

    async def play(self) -> None:
        """Show the window, ask two things in two tabs at once, and wait for both answers."""
        window, engine = self._window, self._engine
        window.show()
        await asyncio.sleep(0)
        window.repaint()
        self.window_s = time.time() - self._begun
        gc.enable()
        engine.start()
        chats = []
        for question in QUESTIONS:
            chat_id = window.new_chat()
            settings = window.book[chat_id].settings
            window.book.set_settings(chat_id, type(settings)(max_tokens=TOKENS))
            window.send(chat_id, question)
            chats.append(chat_id)
        most = 0
        first = 0.0
        deadline = time.monotonic() + PATIENCE_S
        while any(window.answering.active(chat_id) for chat_id in chats):
            if time.monotonic() > deadline or engine.snapshot.state is EngineState.FAILED:
                break
            most = max(most, engine.snapshot.seated)
            if not first and any(self._answer(chat_id) for chat_id in chats):
                first = time.time()
            await asyncio.sleep(0.01)
        ended = time.time()
        error = engine.snapshot.error
        self.expect(error is None, f"the engine failed: {error.message if error else ''}")
        self.expect(all(self._answer(chat_id) for chat_id in chats), "a chat got no answer")
        self.expect(most == len(chats), f"{most} of {len(chats)} chats were answered at once")
        if first:
            self.first_token_s = first - self._begun
            self.two_chats_tok_s = engine.snapshot.counters.output_tokens / max(ended - first, 1e-3)

    def _answer(self, chat_id: str) -> str:
        last = self._window.book[chat_id].last
        return last.text if last is not None and last.role.value == "assistant" else ""


def process_start() -> float:
    """When this process began, on the clock of `time.time`, in seconds.

    On Linux by the kernel's own count since the machine's start, to a hundredth of a second: psutil adds that to a start of the machine
    that the kernel tells in whole seconds, and is up to one too early.
    """
    with suppress(OSError, ValueError, IndexError):
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    import psutil

    return min(time.time(), psutil.Process().create_time())


def is_blank(picture: QImage) -> bool:
    """Whether a picture is one colour, or nothing at all."""
    if picture.isNull():
        return True
    points = [(x, y) for x in range(0, picture.width(), 7) for y in range(0, picture.height(), 7)]
    return len({picture.pixel(x, y) for x, y in points}) < 8


def count_signals() -> int:
    """Emit some thousand signals: a build of Qt for Python that loses references ends the process here, not in a chat."""
    from PySide6.QtCore import QObject, Signal

    class Bell(QObject):
        rung = Signal(bool)

    heard: list[bool] = []
    bell = Bell()
    bell.rung.connect(heard.append)
    for _ in range(SIGNALS):
        bell.rung.emit(True)
    return len(heard)


def versions() -> dict[str, str]:
    found = {"omnibus": __version__, "python": platform.python_version(), "system": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "unknown"
    found["bundle"] = "yes" if getattr(sys, "frozen", False) else "no"
    return found


def report(trial: Trial, path: str | None) -> int:
    document = {
        "ok": not trial.problems,
        "window_s": round(trial.window_s, 3),
        "first_token_s": round(trial.first_token_s, 3),
        "two_chats_tok_s": round(trial.two_chats_tok_s, 2),
        "versions": versions(),
    }
    for problem in trial.problems:
        print(f"omnibus: the self-test failed: {problem}.", file=sys.stderr)
    print(
        f"{'all is well' if document['ok'] else 'NOT WELL'}: window after {document['window_s']:.2f} s, first token after "
        f"{document['first_token_s']:.2f} s, two chats at {document['two_chats_tok_s']:.1f} tok/s",
        file=sys.stderr if path == "-" else sys.stdout,
    )
    return write_json(path, document) or (0 if document["ok"] else 1)
