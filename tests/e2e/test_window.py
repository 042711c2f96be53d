"""Eight tabs, one bus: the real window over the real engine and the starter model, offscreen."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QApplication, QWidget

from app.chats.book import ChatBook
from app.chats.model import AnswerState, ChatSettings
from app.theme import Theme, apply_theme
from app.window.main_window import MainWindow
from engine import Engine, Message, Phase, SamplingParams

pytestmark = [pytest.mark.model, pytest.mark.slow]

QUESTIONS = [
    "What is the capital of France?",
    "Count from one to twenty.",
    "Name five fruits.",
    "Write two sentences about rain.",
    "Who wrote Hamlet?",
    "Say hello in Spanish: ¡hola! ¿qué tal?",
    "List three colours and an emoji for each.",
    "Explain gravity to a child.",
]


def settle() -> None:
    for _ in range(3):
        QApplication.processEvents()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


def until(condition: Callable[[], bool], seconds: float = 200.0) -> None:
    """Run the window until something is so; the bound is only there to end a test that hangs."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        settle()
        time.sleep(0.002)


@pytest.fixture
def window(qapp: QApplication, engine: Engine) -> Iterator[MainWindow]:
    apply_theme(qapp, Theme.dark())
    window = MainWindow(engine, ChatBook(), Theme.dark())
    window.parts.set_dashboard("beside")
    window.resize(1500, 950)
    window.show()
    settle()
    yield window
    window.shut_down()
    window.deleteLater()
    until(lambda: not engine.snapshot.seated and not engine.snapshot.waiting)
    settle()


def ask(window: MainWindow, question: str, tokens: int) -> str:
    chat_id = window.new_chat()
    window.book.set_settings(chat_id, ChatSettings(temperature=0.0, max_tokens=tokens))
    window.send(chat_id, question)
    return chat_id


def busy(window: MainWindow) -> bool:
    return bool(window.answering.active_chats)


def answer_alone(engine: Engine, question: str, tokens: int) -> str:
    engine.clear_cache()
    params = SamplingParams(temperature=0.0, max_tokens=tokens, top_p=0.95)
    return engine.submit([Message("user", question)], params).result(120).text


def test_eight_tabs_stream_at_once_and_say_what_each_says_alone(window: MainWindow, engine: Engine) -> None:
    chats = [ask(window, question, 24) for question in QUESTIONS]
    together = 0
    finished = 0

    def done() -> bool:
        nonlocal together, finished
        together = max(together, sum(seat is not None and seat.phase is Phase.DECODE for seat in engine.snapshot.seats))
        finished = sum(not window.answering.active(chat) for chat in chats)
        return finished == len(chats)

    until(done)
    assert together >= 6  # the shortest answers may be over before the last tab boards
    for chat_id, question in zip(chats, QUESTIONS, strict=True):
        answer = window.book[chat_id].last
        assert answer is not None and answer.state is AnswerState.DONE
        assert answer.text == answer_alone(engine, question, 24)
        assert "\ufffd" not in answer.text
        assert answer.time is not None and answer.usage is not None and answer.usage.completion_tokens > 0


def test_stop_frees_the_seat_within_one_step(window: MainWindow, engine: Engine) -> None:
    chat_id = ask(window, "Write a very long story about a lighthouse.", 400)
    other = ask(window, "Count from one to one hundred.", 60)
    until(lambda: any(seat is not None and seat.chat_id == chat_id and seat.output_tokens > 3 for seat in engine.snapshot.seats))
    window.stop(chat_id)
    step = engine.snapshot.step
    until(lambda: all(seat is None or seat.chat_id != chat_id for seat in engine.snapshot.seats))
    text = window.book[chat_id].last.text  # type: ignore[union-attr]
    until(lambda: not busy(window))
    rode = [record.step for record in engine.history() for row in record.rows if row.chat_id == chat_id]
    assert max(rode) <= step + 1  # at most the step that was running when Stop was pressed
    stopped = window.book[chat_id].last
    assert stopped is not None and stopped.state is AnswerState.STOPPED and stopped.text == text
    assert window.book[other].last.state is AnswerState.DONE  # type: ignore[union-attr]
    until(lambda: engine.snapshot.kv.referenced == 0)


def test_a_closed_tab_keeps_writing_or_stops(window: MainWindow, engine: Engine) -> None:
    kept = ask(window, "Name five fruits.", 20)
    dropped = ask(window, "Write a very long story about the sea.", 400)
    ask(window, "Who wrote Hamlet?", 8)
    until(lambda: engine.snapshot.seated >= 2)
    window.close_tab(window.tabs.index_of(kept), "keep")
    window.close_tab(window.tabs.index_of(dropped), "stop")
    until(lambda: not busy(window))
    assert window.book[kept].last.text == answer_alone(engine, "Name five fruits.", 20)  # type: ignore[union-attr]
    assert window.book[dropped].last.state is AnswerState.STOPPED  # type: ignore[union-attr]
    window.open_tabs.reopen()
    assert dropped in window.open_chats


def test_switching_tabs_a_hundred_times_loses_and_leaks_nothing(window: MainWindow, engine: Engine) -> None:
    chats = [ask(window, question, 40) for question in QUESTIONS]
    for chat_id in chats:  # every page is there before things are counted
        window.open_chat(chat_id)
        settle()
    gc.collect()
    widgets = len(QApplication.allWidgets())
    for number in range(100):
        window.switch((number * 3) % len(chats))
        settle()
    until(lambda: not busy(window))
    settle()
    gc.collect()
    for chat_id, question in zip(chats, QUESTIONS, strict=True):
        answer = window.book[chat_id].last
        assert answer is not None and answer.state is AnswerState.DONE
        assert answer.text == answer_alone(engine, question, 40)
        window.open_chat(chat_id)
        settle()
        shown = window.page(chat_id).view.toPlainText()  # type: ignore[union-attr]
        words = [word for word in answer.text.replace("*", " ").replace("#", " ").split() if word.isalpha()]
        assert all(word in shown for word in words)
    # An answer's own row (its times, its buttons) may add a few; a hundred switches may not.
    assert len(QApplication.allWidgets()) - widgets < 40
    until(lambda: engine.snapshot.kv.referenced == 0)
    assert not [widget for widget in QApplication.topLevelWidgets() if isinstance(widget, QWidget) and widget.isModal()]
