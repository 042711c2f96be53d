"""What you can rely on, part four: starts after a bad end, a lost device, a sleeping machine, long days, idle hours."""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from PySide6.QtCore import QEvent, QObject, QTimer
from PySide6.QtWidgets import QApplication

from app.chats.model import AnswerState
from app.chats.schema import FILE
from app.theme import Theme
from app.window.library import Library
from app.window.main_window import MainWindow
from engine import EngineState, FinishReason, SamplingParams
from engine.lost_device import lost_device
from engine.scheduling.plan import Row, Sampled
from engine.types import ErrorInfo, FinishedEvent
from tests.app.conftest import settle
from tests.app.fakes import FakeEngine, Script
from tests.engine.made_up_model import PATIENCE, Workshop, make_engine, read, rests, wait_for

ROOT = Path(__file__).parents[2]
needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot stop a process and let it go on")


class Day:
    """The window over a scripted engine and the real store of a folder."""

    def __init__(self, folder: Path, **engine: Any) -> None:
        self.library, self.engine = Library(folder), FakeEngine(**engine)
        self.window = MainWindow(self.engine, self.library.book, Theme.dark())
        self.library.attach(self.window)
        self.window.show()
        self.closed = False
        settle()

    @property
    def asked(self) -> str:
        return "" if self.window.bar.isHidden() else self.window.bar.words

    def drain(self) -> None:
        self.window.bridge.drain()
        settle()

    def crash(self, folder: Path) -> Path:
        """The files as a power cut would leave them now."""
        assert self.library.book.commit(PATIENCE)
        shutil.copytree(self.library._store.path.parent, folder)  # type: ignore[union-attr]
        return folder

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.engine.close()
        self.window.shut_down()
        assert self.library.close(PATIENCE)
        self.window.deleteLater()
        settle()


@pytest.fixture
def days(qapp: Any, no_leftovers: None) -> Iterator[Any]:
    made: list[Day] = []

    def make(folder: Path, **engine: Any) -> Day:
        made.append(Day(folder, **engine))
        return made[-1]

    yield make
    for day in made:
        day.close()


def under_way(day: Day) -> list[str]:
    """Three chats: one has some words, one has a seat and none yet, one is queued."""
    day.engine.scripts.append(Script(["some ", "words ", "and ", "more"], prefill_ticks=0))
    day.engine.scripts.append(Script(["late"], prefill_ticks=50))
    chats = []
    for number in range(3):
        chats.append(day.window.new_chat())
        day.window.send(chats[-1], f"question {number}")
    day.engine.tick(2)
    day.drain()
    return chats


def test_r07_what_was_queued_or_being_written_is_offered_again_and_nothing_is_asked_by_itself(days: Any, tmp_path: Path) -> None:
    day = days(tmp_path / "one", seats=2)
    chats = under_way(day)
    copy = day.crash(tmp_path / "two")
    day = days(copy)
    assert "3 answers were queued or being written" in day.asked and day.engine.submitted == []
    assert set(chats) <= set(day.window.open_chats)
    day.window.bar.choose("go_on")
    assert [handle.chat_id for handle in day.engine.submitted] == chats and day.engine.continued == [True, False, False]
    day.engine.run()
    day.drain()
    said = [day.window.book[chat].last.text for chat in chats]
    assert said[0].startswith("some words ") and said[1:] == ["Hello, world."] * 2
    assert all(len(day.window.book[chat].messages) == 2 for chat in chats), "an answer without words is replaced, not added to"
    third = days(day.crash(tmp_path / "three"))
    assert third.asked == ""


def test_r07_leaving_them_is_an_answer_and_so_is_an_end_in_order(days: Any, tmp_path: Path) -> None:
    day = days(tmp_path / "one", seats=2)
    chats = under_way(day)
    left = days(day.crash(tmp_path / "two"))
    left.window.bar.choose("leave")
    again = days(left.crash(tmp_path / "three"))
    assert again.asked == "" and again.engine.submitted == []
    assert again.window.book[chats[0]].last.state is AnswerState.INTERRUPTED
    day.close()
    shutil.copytree(tmp_path / "one", tmp_path / "four")
    assert days(tmp_path / "four").asked == ""


def test_r07_a_crash_before_anybody_chose_offers_them_once_more(days: Any, tmp_path: Path) -> None:
    day = days(tmp_path / "one", seats=2)
    chats = under_way(day)
    second = days(day.crash(tmp_path / "two"))
    second.window.send(second.window.new_chat(), "something else")
    third = days(second.crash(tmp_path / "three"))
    assert "4 answers" in third.asked
    third.window.go_on(chats[0])  # by hand, before the bar is answered
    third.window.bar.choose("go_on")
    assert sorted(handle.chat_id for handle in third.engine.submitted).count(chats[0]) == 1


def test_r07_a_list_that_cannot_be_read_is_no_list(days: Any, tmp_path: Path) -> None:
    for number, text in enumerate(("{", "5", '["no such chat", 7]', "null")):
        library = Library(tmp_path / str(number))
        library.remember("under_way", text)
        assert library.close(PATIENCE)
        assert days(tmp_path / str(number)).asked == ""


# ---------------------------------------------------------------------------------------------------------- a lost device

LOST = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be reported later"


class LostDevice(Workshop):
    """Whose device fails for good at the third step."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def open(self, *given: Any) -> Any:
        opened = super().open(*given)
        forward = opened.runner.forward

        def failing(rows: Sequence[Row]) -> list[Sampled | None]:
            self.calls += 1
            if self.calls >= 3:
                raise RuntimeError(LOST)
            return forward(rows)

        opened.runner.forward = failing  # type: ignore[method-assign]
        return opened


def test_r11_a_lost_device_stops_the_engine_at_once_and_blames_nobody() -> None:
    logging.disable(logging.CRITICAL)
    workshop = LostDevice()
    try:
        with make_engine(workshop, seats=2) as engine:
            engine.wait_ready(PATIENCE)
            handles = [engine.submit(f"x{number}", SamplingParams(max_tokens=40)) for number in range(5)]
            ends = [read(handle)[-1] for handle in handles]
            wait_for(engine, lambda: engine.snapshot.state is EngineState.FAILED)
            assert engine.snapshot.error is not None and engine.snapshot.error.code == "device_lost"
            assert "illegal memory access" in engine.snapshot.error.message and "Restart Omnibus" in engine.snapshot.error.hint
            for end in ends:
                assert isinstance(end, FinishedEvent) and end.reason is FinishReason.ERROR
                assert end.error is not None and end.error.code == "device_lost"
            assert workshop.calls == 3, "nothing is tried on it any more"
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    "words, lost",
    [
        (LOST, True),
        ("CUDA error: device-side assert triggered", True),
        ("HIP error: unspecified launch failure", True),
        ("CUDA error: uncorrectable ECC error encountered", True),
        ("CUDA out of memory. Tried to allocate 2 GiB", False),
        ("CUDA error: invalid configuration argument", False),
        ("shape mismatch at an illegal memory access", False),
    ],
)
def test_r11_which_errors_mean_it(words: str, lost: bool) -> None:
    assert lost_device(RuntimeError(words)) is lost and not lost_device(ValueError(words))


def test_r11_the_window_starts_the_program_again_and_offers_to_go_on(days: Any, tmp_path: Path) -> None:
    day = days(tmp_path / "one", seats=2)
    error = ErrorInfo("device_lost", "The graphics processor failed.", "Restart Omnibus.")
    day.engine.scripts += [Script(["some ", "words"], prefill_ticks=0, error=error), Script([], prefill_ticks=0, error=error)]
    chats = []
    for number in range(2):
        chats.append(day.window.new_chat())
        day.window.send(chats[-1], f"question {number}")
    day.engine.run()
    day.drain()
    day.engine.state = EngineState.FAILED
    day.window.progress.show(_with_error(day, error))
    assert day.window.parts.engine_bar.keys[0] == "relaunch"
    closed: list[bool] = []
    day.window.closed.connect(lambda: closed.append(True))
    day.window.parts.engine_bar.choose("relaunch")
    assert closed and day.window.starts_again
    day.close()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    day = days(tmp_path / "two")
    assert "2 answers were queued" in day.asked and day.engine.submitted == []
    day.window.bar.choose("go_on")
    assert [handle.chat_id for handle in day.engine.submitted] == chats


def _with_error(day: Day, error: ErrorInfo) -> Any:
    from dataclasses import replace

    return replace(day.engine.snapshot, state=EngineState.FAILED, error=error)


AGAIN = """
import os, sys
sys.path.insert(0, {root!r})
from app.again import start_again
print(os.getpid(), sys.argv[1:], flush=True)
if "AGAIN" not in os.environ:
    os.environ["AGAIN"] = "1"
    sys.exit(start_again())
"""


def test_r11_the_new_process_has_the_same_command_line(tmp_path: Path) -> None:
    script = tmp_path / "script with a space.py"
    script.write_text(AGAIN.format(root=str(ROOT)), encoding="utf-8")
    done = subprocess.run([sys.executable, "-B", str(script), "--data", "a b"], capture_output=True, text=True, timeout=60, check=True)
    first, second = done.stdout.splitlines()
    assert first.partition(" ")[2] == second.partition(" ")[2] == "['--data', 'a b']"
    assert sys.platform == "win32" or first == second, "the very same process, so that whoever waits for it goes on waiting"


# ------------------------------------------------------------------------------------------------------------------ sleep

SLEEPER = """
import sys
sys.path.insert(0, {root!r})
import threading, time, json
from engine import SamplingParams
from engine.types import FinishedEvent, TokensEvent
from tests.engine.made_up_model import PATIENCE, Workshop, make_engine
workshop = Workshop()
with make_engine(workshop, seats=2) as engine:
    engine.wait_ready(PATIENCE)
    handles = [engine.submit(f"x{{number}}", SamplingParams(max_tokens=30)) for number in range(4)]
    workshop.steps.clear()
    print("asleep", flush=True)
    sys.stdin.readline()
    workshop.steps.set()
    said, worst = [], 0.0
    for handle in handles:
        tokens, ends = 0, 0
        while not ends:
            for event in handle.wait(PATIENCE):
                tokens += event.tokens if isinstance(event, TokensEvent) else 0
                if isinstance(event, FinishedEvent):
                    ends += 1
                    times = event.time
                    worst = min(worst, times.waited, times.prefill, times.decode)
            rates = engine.snapshot.rates
            worst = min(worst, rates.tok_s, rates.itl_p95_s)
        said.append(tokens)
    print(json.dumps([said, worst, engine.snapshot.state.value]), flush=True)
"""


@needs_signals
def test_r19_a_process_that_was_stopped_for_a_while_goes_on(tmp_path: Path) -> None:
    script = tmp_path / "sleeper.py"
    script.write_text(SLEEPER.format(root=str(ROOT)), encoding="utf-8")
    process = subprocess.Popen([sys.executable, "-B", str(script)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == "asleep\n"
        for _ in range(2):
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            threading.Event().wait(0.3)
            process.send_signal(signal.SIGCONT)
        process.stdin.write("\n")
        process.stdin.flush()
        said, worst, state = json.loads(process.stdout.readline())
        assert said == [30] * 4 and worst >= 0.0 and state == "ready"
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


# --------------------------------------------------------------------------------------------------------------- long days


def what_is_there(folder: Path) -> Counter[str]:
    """Objects of Qt by class, threads, and open files."""
    settle()
    gc.collect()
    process = psutil.Process()
    found = Counter(type(thing).__name__ for thing in gc.get_objects() if issubclass(type(thing), QObject))
    found["threads"] = threading.active_count()
    found["files"] = sum(str(folder) in file.path for file in process.open_files())
    return found


def test_r22_days_of_tabs_and_models_leave_nothing_behind(days: Any, tmp_path: Path) -> None:
    """The engine's days are `omnibus bench soak`; these are the window's: chats come, are answered, closed and deleted; models change."""
    day = days(tmp_path / "one")
    window = day.window
    sizes: list[int] = []
    counts: list[Counter[str]] = []
    for round_ in range(4):
        for number in range(12):
            chat = window.new_chat()
            window.send(chat, f"question {round_} {number}")
            if number % 4 == 1:
                window.stop(chat)
            day.engine.run()
            day.drain()
            window.close_tab(window.tabs.index_of(chat), "stop")
            if number % 3 == 0:
                window.chats.delete([chat])
            day.engine.load(f"model {number % 2}")
        settle()
        assert day.library.book.commit(PATIENCE)
        counts.append(what_is_there(tmp_path))
        sizes.append((tmp_path / "one" / FILE).stat().st_size)
    grown = {name: (counts[1][name], count) for name, count in counts[3].items() if count > counts[1][name]}
    assert not grown, f"more than two rounds ago: {grown}"
    assert sizes[3] - sizes[2] <= 2 * (sizes[2] - sizes[1]) + 65_536, "the database grows with what is said"


# ------------------------------------------------------------------------------------------------------------------- idle


class Counting(QObject):
    """Counts what reaches the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.events: Counter[str] = Counter()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.Timer, QEvent.Type.Paint, QEvent.Type.UpdateRequest):
            self.events[f"{type(watched).__name__} of {type(watched.parent()).__name__}: {event.type().name}"] += 1
        return False


def test_r27_an_idle_window_does_nothing(days: Any, tmp_path: Path) -> None:
    """How much that is of a core, with the real engine, is measured by `omnibus bench idle`."""
    day = days(tmp_path / "one")
    chat = day.window.new_chat()
    day.window.send(chat, "question")
    day.engine.run()
    day.drain()
    application = QApplication.instance()
    assert isinstance(application, QApplication)
    flash = application.cursorFlashTime()
    application.setCursorFlashTime(0)  # the blinking of the text cursor is the desktop's wish
    day.window.focus_composer()
    wait_ms(1500)  # what fades, fades; what looks whether there is more, sees that there is not
    counting = Counting()
    application.installEventFilter(counting)
    wait_ms(1500)
    application.removeEventFilter(counting)
    application.setCursorFlashTime(flash)
    assert not [name for name in counting.events if "Timer" not in name], f"an idle window paints: {counting.events}"
    assert sum(counting.events.values()) <= 6, f"an idle window is busy: {counting.events}"  # the machine's load is read twice a second


def wait_ms(milliseconds: int) -> None:
    over = threading.Event()
    QTimer.singleShot(milliseconds, over.set)
    while not over.is_set():
        QApplication.processEvents()
        over.wait(0.005)


def test_r27_an_idle_engine_takes_no_step_and_sleeps_without_an_end() -> None:
    with make_engine() as engine:
        engine.wait_ready(PATIENCE)
        read(engine.submit("x", SamplingParams(max_tokens=3)))
        wait_for(engine, lambda: engine.snapshot.seated == 0)
        assert rests(engine, 0.5)
