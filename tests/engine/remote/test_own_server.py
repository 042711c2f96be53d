"""Both ends ours: the remote engine over our own API gives what the engine behind it gives, and its dashboard what that engine tells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.engine import Engine
from engine.remote.remote import RemoteConfig, RemoteEngine
from engine.server.serving import ApiServer
from engine.types import EngineError, FinishReason, Message, SamplingParams
from tests.engine.made_up_model import PATIENCE, make_engine, read, wait_for
from tests.engine.server.made_up_server import TOKEN, ServedWorkshop, make_server

PARAMS = SamplingParams(max_tokens=20, temperature=0.0, seed=1, ignore_eos=True)
CHAT = [Message("user", "hello")]


@pytest.fixture
def workshop() -> ServedWorkshop:
    return ServedWorkshop()


@pytest.fixture
def served(workshop: ServedWorkshop) -> Iterator[tuple[Engine, ApiServer]]:
    engine = make_engine(workshop)
    engine.wait_ready(PATIENCE)
    server = make_server(engine)
    yield engine, server
    workshop.steps.set()
    assert server.stop(PATIENCE)
    assert engine.close(PATIENCE)


@pytest.fixture
def remote(served: tuple[Engine, ApiServer]) -> Iterator[RemoteEngine]:
    with RemoteEngine(RemoteConfig(f"http://127.0.0.1:{served[1].port}/v1", TOKEN, poll_s=0.05)) as made:
        made.wait_ready(60)
        yield made


def test_the_same_answer_at_both_ends(served: tuple[Engine, ApiServer], remote: RemoteEngine) -> None:
    here = served[0].submit(CHAT, PARAMS).result(60)
    there = remote.submit(CHAT, PARAMS).result(60)
    assert (there.text, there.reason, there.usage.completion_tokens) == (here.text, FinishReason.LENGTH, 20)
    assert there.usage.prompt_tokens == here.usage.prompt_tokens


def test_many_at_once(remote: RemoteEngine) -> None:
    handles = [remote.submit([Message("user", f"number {number}")], PARAMS) for number in range(24)]
    assert {handle.result(30).reason for handle in handles} == {FinishReason.LENGTH}


def test_seats_and_blocks_are_those_of_the_engine_behind(
    served: tuple[Engine, ApiServer], remote: RemoteEngine, workshop: ServedWorkshop
) -> None:
    engine, _ = served
    wait_for(remote, lambda: remote.snapshot.kv.total == engine.snapshot.kv.total)  # type: ignore[arg-type]
    workshop.steps.clear()
    handle = remote.submit(CHAT, PARAMS, title="mine")
    wait_for(remote, lambda: any(seat and seat.title == "mine" for seat in remote.snapshot.seats))  # type: ignore[arg-type]
    assert len(remote.snapshot.seats) == len(engine.snapshot.seats)
    workshop.steps.set()
    assert read(handle)


def test_a_cancel_frees_the_seat_behind(served: tuple[Engine, ApiServer], remote: RemoteEngine, workshop: ServedWorkshop) -> None:
    engine, _ = served
    workshop.steps.clear()
    handle = remote.submit(CHAT, SamplingParams(max_tokens=500, ignore_eos=True))
    assert workshop.stepping.wait(60)
    handle.cancel()
    workshop.steps.set()
    wait_for(engine, lambda: engine.snapshot.counters.cancelled == 1 and engine.snapshot.seated == 0)


def test_a_wrong_token(served: tuple[Engine, ApiServer]) -> None:
    with RemoteEngine(RemoteConfig(f"http://127.0.0.1:{served[1].port}", "wrong-" + TOKEN)) as wrong:
        with pytest.raises(EngineError) as caught:
            wrong.wait_ready(60)
        assert caught.value.code == "remote_key"
