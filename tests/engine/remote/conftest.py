"""A scripted server, and remote engines whose pauses pass at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.remote.remote import RemoteConfig, RemoteEngine
from tests.engine.remote.scripted import Pauses, ScriptedServer, serving


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())  # what tests of other rooms left is not for these to answer
    yield
    assert not [thread.name for thread in threading.enumerate() if thread.name == "omnibus-remote" and thread not in before]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with serving(ScriptedServer()) as made:
        yield made


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def make_engine(pauses: Pauses) -> Iterator[Callable[..., RemoteEngine]]:
    made: list[RemoteEngine] = []

    def make(url: str, ready: bool = True, **more: Any) -> RemoteEngine:
        engine = RemoteEngine(RemoteConfig(url, **{"poll_s": 0.05} | more), sleep=pauses)
        made.append(engine)
        engine.start()
        if ready:
            engine.wait_ready(60)
        return engine

    yield make
    for engine in made:
        assert engine.close(60)
