from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from engine import Engine
from engine.server.serving import ApiServer
from tests.engine.made_up_model import PATIENCE, make_engine
from tests.engine.server.made_up_server import Client, ServedWorkshop, make_server


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    yield
    assert not [thread.name for thread in threading.enumerate() if thread.name in ("omnibus-engine", "omnibus-api")]


@pytest.fixture
def workshop() -> ServedWorkshop:
    return ServedWorkshop()


@pytest.fixture
def engine(workshop: ServedWorkshop) -> Iterator[Engine]:
    engine = make_engine(workshop)
    engine.wait_ready(PATIENCE)
    yield engine
    workshop.gate.set()
    workshop.steps.set()
    assert engine.close(PATIENCE)


@pytest.fixture
def server(engine: Engine, workshop: ServedWorkshop) -> Iterator[ApiServer]:
    server = make_server(engine)
    yield server
    workshop.steps.set()
    assert server.stop(PATIENCE)


@pytest.fixture
def client(server: ApiServer) -> Client:
    return Client(server)
