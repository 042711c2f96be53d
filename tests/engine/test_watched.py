"""What all engines share: listeners, waiting, several answers to one prompt."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from engine.engine import Engine
from engine.engines import Engines
from engine.handle import RequestHandle
from engine.remote.remote import RemoteEngine
from engine.types import EngineError, EngineState, ErrorInfo, RequestRefused, SamplingParams, Snapshot
from engine.watched import Listeners, Watched


class Bare(Watched):
    """An engine of which there is nothing but what is watched."""

    def __init__(self) -> None:
        super().__init__(Engine().snapshot)
        self.asked: list[tuple[int | None, str]] = []
        self.most = 99

    def submit(self, prompt: Any, params: SamplingParams | None = None, *, chat_id: str = "") -> RequestHandle:
        if len(self.asked) == self.most:
            raise RequestRefused("queue_full", "Full.")
        self.asked.append((params.seed if params else None, chat_id))
        return RequestHandle(f"r{len(self.asked)}", chat_id, self.cancelled.append)

    @property
    def cancelled(self) -> list[str]:
        return self.__dict__.setdefault("_cancelled", [])

    def tell(self, state: EngineState, error: ErrorInfo | None = None) -> Snapshot:
        snapshot = replace(self.snapshot, state=state, error=error)
        self._show(snapshot)
        return snapshot


def test_the_three_engines_stand_on_the_same_class() -> None:
    for kind in (Engine, Engines, RemoteEngine):
        assert issubclass(kind, Watched)
        assert kind.submit_several is Watched.submit_several and kind.add_listener is Watched.add_listener


def test_listeners_are_called_in_order_until_they_are_removed(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []
    listeners = Listeners()
    first = listeners.add(lambda: heard.append("first"))
    listeners.add(lambda: [][0])  # fails
    listeners.add(lambda: heard.append("last"))
    listeners()
    first()
    first()
    listeners()
    assert heard == ["first", "last", "last"] and len(listeners) == 2
    assert "a listener failed" in caplog.text
    caplog.clear()


def test_a_listener_may_remove_itself_and_add_others_while_it_is_called() -> None:
    heard: list[int] = []
    listeners = Listeners()
    removes: list[Any] = []
    removes.append(listeners.add(lambda: (removes[0](), listeners.add(lambda: heard.append(2)), heard.append(1))))  # type: ignore[func-returns-value]
    listeners()
    assert heard == [1]
    listeners()
    assert heard == [1, 2]


def test_a_wait_ends_with_what_was_waited_for() -> None:
    engine = Bare()
    with pytest.raises(TimeoutError, match="not ready after 0 s"):
        engine.wait_ready(0)
    heard: list[Snapshot] = []
    engine.add_listener(lambda: heard.append(engine.snapshot))
    threading.Thread(target=lambda: (engine.tell(EngineState.LOADING), engine.tell(EngineState.READY)), name="made-up").start()
    assert engine.wait_ready(60).state is EngineState.READY
    assert [snapshot.state for snapshot in heard][:1] == [EngineState.LOADING]
    engine.tell(EngineState.FAILED, ErrorInfo("no_file", "It is gone.", "Bring it back."))
    with pytest.raises(EngineError, match="It is gone") as caught:
        engine.wait_ready(0)
    assert (caught.value.code, caught.value.hint) == ("no_file", "Bring it back.")


def test_several_answers_have_seeds_in_a_row_and_one_chat_or_there_is_none() -> None:
    engine = Bare()
    assert len(engine.submit_several("hello", 3, SamplingParams(seed=2**63 - 2))) == 3
    seeds, chats = zip(*engine.asked, strict=True)
    assert seeds == (2**63 - 2, 2**63 - 1, 0) and len(set(chats)) == 1 and chats[0]
    engine.most = 5
    with pytest.raises(RequestRefused):
        engine.submit_several("hello", 3)
    assert engine.cancelled == ["r4", "r5"]
