"""The program from outside, as a process: pictures, safe mode, and what becomes of faults. (How it ends in each state:
tests/cases/test_shutdown.py.)"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time

from app.window.logs import FaultLog

# The real start-up, with an engine whose model loads for as long as the test wants.
PROGRAM = """
import argparse, sys, threading
import app.window.start as start
from engine import Engine, EngineConfig

def opener(config, progress, cancelled):
    assert "app.window.main_window" in sys.modules
    print("loading", "torch" in sys.modules, flush=True)
    {load}

real = start.Engine
start.Engine = lambda config: real(config, opener=opener)
sub = argparse.ArgumentParser().add_subparsers()
start.add_parser(sub)
args = sub.choices["window"].parse_args({arguments!r})
sys.exit(start.run(args))
"""
PATIENT = "threading.Event().wait(60)"  # deep in a call that cannot be interrupted
POLITE = (
    "\n    while not cancelled(): threading.Event().wait(0.01)\n    from engine import ModelError\n    raise ModelError('cancelled', 'x')"
)
BROKEN = "from engine import ModelError; raise ModelError('model_damaged', 'The model file is damaged.', 'Fetch it again.')"


def start_program(load: str, *arguments: str) -> subprocess.Popen:
    code = PROGRAM.format(load=load, arguments=list(arguments))
    environment = os.environ | {"QT_QPA_PLATFORM": "offscreen"}
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen, timeout: float = 60) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out, err


def test_a_scripted_start_takes_its_picture_and_ends(tmp_path):
    picture = tmp_path / "deep" / "window.png"
    arguments = (
        "--ask",
        "one",
        "--ask",
        "two",
        "--dashboard",
        "beside",
        "--theme",
        "light",
        "--screenshot",
        str(picture),
        "--after",
        "0.5",
    )
    status, out, err = finish(start_program(BROKEN, *arguments))
    assert (status, err) == (0, "")
    assert picture.stat().st_size > 10_000


def test_safe_mode_asks_for_nothing_clever_and_leaves_the_tabs_alone(tmp_path):
    import argparse

    import app.window.start as start

    sub = argparse.ArgumentParser().add_subparsers()
    start.add_parser(sub)
    parse = sub.choices["window"].parse_args
    safe = start.config_of(parse(["--safe-mode", "--device", "cuda"]))
    assert safe.plain and safe.device == "cpu"
    assert not start.config_of(parse([])).plain
    for arguments in (["--data", str(tmp_path)], ["--data", str(tmp_path), "--safe-mode"]):
        picture = tmp_path / "window.png"
        told = (*arguments, "--ask", "one", "--screenshot", str(picture), "--after", "0.1")
        status, _, err = finish(start_program(BROKEN, *told))
        assert (status, err) == (0, "")
    from app.chats.store import ChatStore

    store = ChatStore(tmp_path / "chats.db", lambda words: None)
    assert len(store.load()) == 2, "chats are kept in safe mode, too"
    assert str(store.session("window")).count("chat") <= 2 or store.session("window")
    store.close()


def fail_while_holding(let_go: list[bool]) -> None:
    class Held:
        def __del__(self):
            let_go.append(True)

    held = Held()
    assert held
    raise RuntimeError("in a slot")


def test_faults_of_every_kind_go_to_the_log(qapp, tmp_path, capsys):
    from PySide6.QtCore import qWarning

    faults = FaultLog(tmp_path)
    try:
        qWarning("from Qt")
        thread = threading.Thread(target=lambda: 1 / 0, name="omnibus-test")
        thread.start()
        thread.join()
        let_go = []
        try:
            fail_while_holding(let_go)
        except RuntimeError as error:
            sys.excepthook(type(error), error, error.__traceback__)
        assert let_go == [True]  # what the frame held, a painter perhaps, is gone

        class Dying:
            def __del__(self):
                raise ValueError("while dying")

        Dying()
        logging.getLogger("omnibus").info("a line")
    finally:
        faults.close()
    text = (tmp_path / "omnibus.log").read_text(encoding="utf-8")
    for words in ("from Qt", "ZeroDivisionError", "omnibus-test", "in a slot", "while dying", "a line"):
        assert words in text, words
    assert "in a slot" in capsys.readouterr().err
    assert faults.folder == tmp_path
    assert time.time() - (tmp_path / "crash.log").stat().st_mtime < 60


def test_the_last_crash_is_kept_for_whoever_asks(qapp, tmp_path):
    FaultLog(tmp_path).close()
    FaultLog(tmp_path).close()
    assert not (tmp_path / "crash-before.log").exists()  # nothing had happened
    (tmp_path / "crash.log").write_text("Fatal Python error: Aborted")
    FaultLog(tmp_path).close()
    assert "Aborted" in (tmp_path / "crash-before.log").read_text() and not (tmp_path / "crash.log").read_text()


def test_a_log_that_cannot_be_written_is_no_reason_not_to_start(qapp, tmp_path):
    (tmp_path / "file").write_text("")
    faults = FaultLog(tmp_path / "file" / "logs")
    try:
        logging.getLogger("omnibus").info("a line")
    finally:
        faults.close()
    assert "a line" in (faults.folder / "omnibus.log").read_text()
