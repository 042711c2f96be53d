"""END: closing in every state, threads and tasks at the end, faults that must not vanish, and what is left on the machine."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QPushButton, QWidget

from app.bridge import EngineBridge
from app.chats.model import AnswerState
from app.chats.store import ChatStore
from app.loop import Tasks, make_loop
from app.window.logs import FaultLog
from engine import FinishReason, SamplingParams
from engine.text.codec import Codec
from tests.app.conftest import settle
from tests.app.window.test_start import BROKEN, PATIENT, POLITE, finish, start_program
from tests.cases.scripted import scripted_engine
from tests.engine.made_up_model import PATIENCE, the_end, wait_for

# The real window and start-up over an engine that really steps, for ever, on a made-up model.
STREAMING = """
import argparse, sys
import app.window.start as start
from engine import Engine
from tests.engine.made_up_model import Workshop
workshop = Workshop(blocks=4096, context=100_000)
real = start.Engine
start.Engine = lambda config: real(config, opener=workshop.open)
sub = argparse.ArgumentParser().add_subparsers()
start.add_parser(sub)
arguments = ["--data", sys.argv[1], "--seats", "4"]
for number in range(6):
    arguments += ["--ask", f"question {number}"]
import threading, time
def tell():
    while len(workshop.opened) == 0:
        time.sleep(0.01)
    workshop.stepping.wait(60)
    time.sleep(0.5)
    print("streaming", flush=True)
threading.Thread(target=tell, name="test-tells", daemon=True).start()
sys.exit(start.run(sub.choices["window"].parse_args(arguments)))
"""


@pytest.mark.case("END-01")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl+C"])
def test_quitting_while_chats_are_written_ends_the_process_and_keeps_the_text(tmp_path: Path, number: int) -> None:
    program = [sys.executable, "-c", STREAMING, str(tmp_path)]
    environment = os.environ | {"QT_QPA_PLATFORM": "offscreen"}
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None and process.stdout.readline() == "streaming\n"
    assert psutil.Process(process.pid).children() == []
    process.send_signal(number)
    status, _, err = finish(process)
    assert (status, err) == (0, "")
    store = ChatStore(tmp_path / "chats.db")
    chats = store.load()
    assert store.close() and len(chats) == 6
    from app.chats.book import ChatBook

    again = ChatStore(tmp_path / "chats.db")
    book = ChatBook(again)
    states = {book[chat.id].last.state for chat in chats}  # type: ignore[union-attr]
    assert states <= {AnswerState.STOPPED, AnswerState.DONE} and any(book[chat.id].last.text for chat in chats)  # type: ignore[union-attr]
    assert again.close()


@pytest.mark.case("END-02")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
@pytest.mark.parametrize("load", [PATIENT, POLITE, BROKEN], ids=["deaf load", "polite load", "failed load"])
def test_quitting_during_a_load_never_aborts(load: str) -> None:
    process = start_program(load, "--ask", "hello")
    assert process.stdout.readline() == "loading False\n"  # the window came first, torch has not been imported
    process.send_signal(signal.SIGTERM)
    status, _, err = finish(process)
    assert (status, err) == (0, "")


@pytest.mark.case("END-05")
def test_tasks_are_cancelled_and_awaited_at_the_end(qapp: Any, no_leftovers: None, caplog: pytest.LogCaptureFixture) -> None:
    loop = make_loop(qapp)
    ended: list[int] = []

    async def sleeper(number: int) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(number)

    async def main() -> None:
        tasks = Tasks(loop)
        for number in range(20):
            tasks.spawn(sleeper(number), f"sleeper {number}")
        await asyncio.sleep(0.02)
        await tasks.cancel_all()

    with caplog.at_level(logging.WARNING):
        loop.run_until_complete(main())
        loop.close()
        asyncio.set_event_loop(None)
        gc.collect()
    assert sorted(ended) == list(range(20)) and "pending" not in caplog.text


@pytest.mark.case("END-08")
def test_no_fault_vanishes_wherever_it_happens(qapp: Any, no_leftovers: None, tmp_path: Path, capsys: Any, qtbot: Any) -> None:
    class Painter(QWidget):
        def paintEvent(self, event: object) -> None:
            raise RuntimeError("in paintEvent")

    def fail(where: str) -> None:
        raise RuntimeError(where)

    faults = FaultLog(tmp_path)
    loop = make_loop(qapp)
    try:
        button, painter = QPushButton(), Painter()
        button.clicked.connect(lambda: fail("in a slot"))
        with qtbot.captureExceptions() as caught:
            button.click()
            QTimer.singleShot(0, lambda: fail("in a timer"))
            painter.show()
            painter.repaint()
            qtbot.wait(30)
        assert len(caught) >= 3
        for kind, error, trace in caught:
            faults._on_exception(kind, error, trace)  # pytest-qt sits where the log's own hook is
        thread = threading.Thread(target=fail, args=("in a thread",), name="omnibus-test")
        thread.start()
        thread.join()

        async def work() -> None:
            fail("in a task")

        async def main() -> None:
            tasks = Tasks(loop)
            tasks.spawn(work(), "failing")
            while len(tasks):
                await asyncio.sleep(0)

        loop.run_until_complete(main())
        painter.hide()
        button.deleteLater()
        painter.deleteLater()
        settle()
    finally:
        loop.close()
        asyncio.set_event_loop(None)
        faults.close()
    text = (tmp_path / "omnibus.log").read_text(encoding="utf-8")
    for where in ("in a slot", "in a timer", "in paintEvent", "in a thread", "in a task"):
        assert where in text and "Traceback" in text, where


@pytest.mark.case("END-09")
def test_an_engine_that_speaks_to_a_window_that_is_gone_is_not_heard_and_breaks_nothing(qapp: Any, no_leftovers: None) -> None:
    heard: list[str] = []

    class Handle:
        def __init__(self, name: str) -> None:
            self.id = name

    first = EngineBridge(lambda handles: heard.extend(handle.id for handle in handles))  # type: ignore[arg-type]
    halt = threading.Event()

    def speak() -> None:
        number = 0
        while not halt.wait(0.001):
            first.ready(Handle(f"old {number}"))  # type: ignore[arg-type]
            number += 1

    thread = threading.Thread(target=speak, name="test-engine")
    thread.start()
    settle()
    first.close()
    settle()
    before = len(heard)
    second = EngineBridge(lambda handles: heard.extend(handle.id for handle in handles))  # type: ignore[arg-type]
    second.ready(Handle("new"))  # type: ignore[arg-type]
    settle()
    halt.set()
    thread.join()
    settle()
    assert heard[before:] == ["new"]
    second.close()
    first.deleteLater()
    second.deleteLater()
    settle()


@pytest.mark.model
@pytest.mark.case("END-10")
def test_stop_works_while_a_model_says_nothing_one_can_see(codec: Codec) -> None:
    invisible = 0  # a control token: it makes no text, and it does not end an answer when that is ignored
    with scripted_engine(codec, [invisible], context=400) as engine:
        handle = engine.submit("x", SamplingParams(max_tokens=390, ignore_eos=True))
        assert handle.wait(PATIENCE)
        handle.cancel()
        assert the_end(handle).reason is FinishReason.CANCELLED
        wait_for(engine, lambda: engine.snapshot.seated == 0)
        assert engine.snapshot.kv.referenced == 0
        whole = engine.submit("x", SamplingParams(max_tokens=100, ignore_eos=True)).result(PATIENCE)
        assert whole.text == "" and whole.reason is FinishReason.LENGTH


@pytest.mark.case("END-13")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["in order", "killed"])
def test_nothing_is_left_that_takes_room_or_blocks_the_next_start(tmp_path: Path, how: int) -> None:
    temp = tmp_path / "tmp"
    temp.mkdir()
    data = tmp_path / "data"
    environment = os.environ | {"QT_QPA_PLATFORM": "offscreen", "TMPDIR": str(temp)}
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", STREAMING, str(data)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        assert process.stdout is not None and process.stdout.readline() == "streaming\n", "the one before left something that blocks"
        process.send_signal(how)
        process.wait(60)
        process.stdout.close()
        assert not psutil.pid_exists(process.pid) or psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
    assert sum(path.stat().st_size for path in temp.rglob("*") if path.is_file()) < 1 << 20
