"""`omnibus bench idle`: what an open window with a loaded model costs while nobody asks anything.

The real window over the real engine, one answer first, then silence: the processor time of the whole process in that silence, as a share of
a core, and how often it was woken.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from app.bench.document import add_json_option, write_json
from engine import Engine, EngineConfig

MOST = 0.5  # per cent of a core
SETTLE_S = 5.0


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("idle", help="what an open window costs while nothing is asked")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the silence is measured (default: 30)")
    parser.add_argument("--model", default="starter")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """0 within what is promised, 1 not, or the document could not be written. Raises EngineError when there is no model."""
    if not 0 < args.seconds < math.inf:
        print("omnibus bench idle: --seconds must be more than 0.", file=sys.stderr)
        return 2
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from PySide6.QtWidgets import QApplication

    from app.loop import let_go, make_loop
    from app.theme import Theme
    from app.window.library import Library
    from app.window.main_window import MainWindow

    app = QApplication.instance() or QApplication(sys.argv[:1])
    engine = Engine(EngineConfig(model=args.model))
    with tempfile.TemporaryDirectory(prefix="omnibus-idle-") as folder:
        library = Library(Path(folder))
        window = MainWindow(engine, library.book, Theme.dark())
        library.attach(window)
        window.show()
        with make_loop(app) as loop:  # type: ignore[arg-type]
            figures = loop.run_until_complete(_measure(window, engine, args.seconds))
        window.shut_down()
        engine.close(10.0)
        library.close()
        window.deleteLater()
    let_go(app)  # type: ignore[arg-type]
    out = sys.stderr if args.json == "-" else sys.stdout
    print(f"idle: {figures['idle_core_percent']:.3f} % of a core, woken {figures['woken_per_s']:.1f} times a second", file=out)
    return write_json(args.json, figures) or (1 if figures["idle_core_percent"] > MOST else 0)


async def _measure(window: Any, engine: Engine, seconds: float) -> dict[str, float]:
    import psutil

    engine.start()
    await asyncio.get_running_loop().run_in_executor(None, engine.wait_ready, 300.0)
    chat = window.new_chat()
    window.send(chat, "Say hello.")
    while window.answering.active(chat):
        await asyncio.sleep(0.05)
    await asyncio.sleep(SETTLE_S)
    process = psutil.Process()
    started, used, switches = time.monotonic(), process.cpu_times(), process.num_ctx_switches()
    await asyncio.sleep(seconds)
    spent, now, woken = time.monotonic() - started, process.cpu_times(), process.num_ctx_switches()
    busy = (now.user - used.user) + (now.system - used.system)
    return {
        "idle_core_percent": round(100.0 * busy / spent, 4),
        "woken_per_s": round((woken.voluntary - switches.voluntary) / spent, 2),
        "seconds": round(spent, 1),
    }
