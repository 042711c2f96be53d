"""The remote engine against servers that follow a script: answers, every way to fail, retries, cancels, losing the server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from engine.remote.remote import RemoteEngine
from engine.types import (
    Counters,
    EngineError,
    EngineState,
    FinishReason,
    Message,
    Phase,
    Policy,
    RequestRefused,
    SamplingParams,
)
from tests.engine.made_up_model import read, wait_for
from tests.engine.remote.scripted import CHAT, MODEL, Pauses, Request, ScriptedServer, end_of, serving, text_of

# ------------------------------------------------------------------------------------------------------------- answers


def test_an_answer_with_its_usage_and_what_was_asked(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    engine = make_engine(server.url, key="secret")
    assert (engine.snapshot.model.name, engine.snapshot.model.context) == (MODEL, 4096)
    params = SamplingParams(max_tokens=9, temperature=0.0, top_p=1.0, seed=3, stop=("\n",), min_p=0.1)
    events = read(engine.submit(CHAT, params))
    end = end_of(events)
    assert (text_of(events), end.reason) == ("Hello", FinishReason.STOP)
    assert (end.usage.prompt_tokens, end.usage.completion_tokens) == (7, 2)
    assert end.time.ttft is not None and end.time.total >= end.time.ttft
    (request,) = server.requests
    assert request.key == "Bearer secret"
    assert request.body == {
        "model": MODEL,
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "top_p": 1.0,
        "max_tokens": 9,
        "seed": 3,
        "min_p": 0.1,
        "stop": ["\n"],
    }
    assert engine.snapshot.counters == Counters(submitted=1, finished=1, prompt_tokens=7, output_tokens=2)


def test_comments_reasoning_and_the_length_limit(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    def script(request: Request) -> None:
        request.begin()
        request.raw(": keep-alive\n\n")
        request.piece(reasoning_content="hm")
        request.raw("event: message\n")
        request.piece("yes")
        request.raw(":\n\n")
        request.piece(finish="length")
        request.raw("data: [DONE]\n\n")

    server.scripts = [script]
    events = read(make_engine(server.url).submit(CHAT))
    assert text_of(events) == "<think>\nhm\n</think>\n\nyes"
    assert end_of(events).reason is FinishReason.LENGTH and end_of(events).usage.completion_tokens == 2


def test_no_more_than_allowed_at_once_and_the_tab_in_view_first(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    gate = threading.Event()

    def script(request: Request) -> None:
        request.begin()
        request.piece("a")
        gate.wait(60)
        request.piece(finish="stop")

    server.usual = script
    engine = make_engine(server.url, seats=1)
    first = engine.submit(CHAT, chat_id="one")
    wait_for_(engine, lambda: any(seat and seat.phase is Phase.DECODE for seat in engine.snapshot.seats))
    engine.set_chat_priority("behind", engine_priority("BACKGROUND"))
    behind, before = engine.submit([Message("user", "b")], chat_id="behind"), engine.submit([Message("user", "c")], chat_id="view")
    wait_for_(engine, lambda: engine.snapshot.waiting == 2)
    assert engine.snapshot.queue[0].chat_id == "view" or engine.snapshot.queue[1].chat_id == "view"
    gate.set()
    for handle in (first, behind, before):
        assert end_of(read(handle)).reason is FinishReason.STOP
    assert [request.body["messages"][-1]["content"] for request in server.requests] == ["hello", "c", "b"]


def engine_priority(name: str) -> Any:
    from engine.types import Priority

    return Priority[name]


def wait_for_(engine: RemoteEngine, holds: Callable[[], bool]) -> None:
    wait_for(engine, holds)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------- cut streams


def test_a_server_killed_in_mid_stream_is_no_normal_end_and_is_not_asked_again(
    server: ScriptedServer, make_engine: Callable[..., RemoteEngine]
) -> None:
    def script(request: Request) -> None:
        request.begin()
        request.piece("Half an ")
        request.piece("answer")
        request._handler.connection.shutdown(socket.SHUT_RDWR)

    server.scripts = [script]
    events = read(make_engine(server.url).submit(CHAT))
    end = end_of(events)
    assert text_of(events) == "Half an answer"
    assert end.reason is FinishReason.ERROR and end.error is not None and end.error.code == "stream_cut"
    assert "after 2 pieces" in end.error.message and "kept" in end.error.hint
    assert len(server.requests) == 1


@pytest.mark.parametrize("done", [True, False])
def test_a_stream_without_a_finish_reason_is_a_cut_one(
    server: ScriptedServer, make_engine: Callable[..., RemoteEngine], done: bool
) -> None:
    def script(request: Request) -> None:
        request.begin()
        request.piece("so far")
        if done:
            request.raw("data: [DONE]\n\n")

    server.scripts = [script]
    events = read(make_engine(server.url).submit(CHAT))
    end = end_of(events)
    assert text_of(events) == "so far" and end.error is not None and end.error.code == "stream_cut"
    assert len(server.requests) == 1


def test_an_error_within_the_stream(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    def script(request: Request) -> None:
        request.begin()
        request.piece("so far")
        request.event({"error": {"message": "CUDA out of memory", "code": 500}})

    server.scripts = [script]
    events = read(make_engine(server.url).submit(CHAT))
    end = end_of(events)
    assert text_of(events) == "so far" and end.error is not None and "CUDA out of memory" in end.error.message


def test_nonsense_in_the_stream(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    def script(request: Request) -> None:
        request.begin()
        request.raw("data: {not json}\n\n")

    server.scripts = [script, lambda request: request.refuse(200, "<html>Sign in</html>", Content_Type="text/html")]
    engine = make_engine(server.url)
    for _ in range(2):
        error = end_of(read(engine.submit(CHAT))).error
        assert error is not None and error.code == "remote_nonsense"


# ------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (401, "Unauthorized", "remote_key"),
        (403, "not yours", "remote_forbidden"),
        (404, "The model `x` does not exist.", "remote_model"),
        (400, "This model's maximum context length is 4096 tokens. However, you requested 9000.", "prompt_too_long"),
        (400, "the request exceeds the available context size", "prompt_too_long"),
        (400, "temperature must be positive", "remote_refused"),
        (500, "kaboom", "remote_failed"),
    ],
)
def test_refusals_in_clear_words_and_without_a_second_try(
    server: ScriptedServer, make_engine: Callable[..., RemoteEngine], status: int, message: str, code: str
) -> None:
    server.scripts = [lambda request: request.refuse(status, {"error": {"message": message}})]
    engine = make_engine(server.url, key="secret")
    error = end_of(read(engine.submit(CHAT))).error
    assert error is not None and error.code == code and error.hint
    assert message.rstrip(".") in error.message and "secret" not in error.message + error.hint
    assert len(server.requests) == 1
    assert end_of(read(engine.submit(CHAT))).reason is FinishReason.STOP  # the engine goes on


def test_a_busy_server_is_asked_again_when_it_says(
    server: ScriptedServer, make_engine: Callable[..., RemoteEngine], pauses: Pauses
) -> None:
    server.scripts = [
        lambda request: request.refuse(429, {"error": "slow down"}, Retry_After="7"),
        lambda request: request.refuse(503, "loading"),
    ]
    events = read(make_engine(server.url).submit(CHAT))
    assert text_of(events) == "Hello" and len(server.requests) == 3
    assert pauses.seconds[0] == 7.0 and 0.8 <= pauses.seconds[1] <= 1.2


def test_after_four_tries_it_is_given_up(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    server.usual = lambda request: request.refuse(503, "full")
    error = end_of(read(make_engine(server.url).submit(CHAT))).error
    assert error is not None and error.code == "remote_busy" and "4 times" in error.message
    assert len(server.requests) == 4


def test_a_wrong_key_stops_the_engine_until_a_restart(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    server.models_status = 401
    engine = make_engine(server.url, ready=False)
    with pytest.raises(EngineError) as caught:
        engine.wait_ready(60)
    assert caught.value.code == "remote_key"
    with pytest.raises(RequestRefused):
        engine.submit(CHAT)
    server.models_status = 200
    engine.restart()
    wait_for_(engine, lambda: engine.snapshot.state is EngineState.READY)


def test_a_model_that_is_not_there_is_told_with_those_that_are(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    with pytest.raises(EngineError) as caught:
        make_engine(server.url, model="other")
    assert caught.value.code == "remote_model" and MODEL in caught.value.hint


def test_https_where_there_is_none(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    with pytest.raises(EngineError) as caught:
        make_engine(server.url.replace("http:", "https:"))
    assert caught.value.code == "remote_tls" and "https" in caught.value.hint


def test_a_web_page_is_no_api(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    server.models = "<html></html>"
    with pytest.raises(EngineError) as caught:
        make_engine(server.url)
    assert caught.value.code == "remote_nonsense"


# ------------------------------------------------------------------------------------------------ losing and finding it


def test_requests_wait_for_a_server_that_is_not_there_yet(make_engine: Callable[..., RemoteEngine], pauses: Pauses) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    engine = make_engine(f"http://127.0.0.1:{port}/v1", ready=False)
    wait_for_(engine, lambda: "cannot be reached" in engine.snapshot.model.stage)
    handle = engine.submit(CHAT)
    wait_for_(engine, lambda: engine.snapshot.waiting == 1 and len(pauses.seconds) >= 3)
    with serving(ScriptedServer(), port):
        assert text_of(read(handle)) == "Hello"
    assert pauses.seconds[:3] == [1.0, 2.0, 4.0]


def test_a_server_that_goes_away_is_looked_for_and_found_again(make_engine: Callable[..., RemoteEngine]) -> None:
    script = ScriptedServer()
    with serving(script):
        engine = make_engine(script.url)
        port = script.port
    error = end_of(read(engine.submit(CHAT))).error
    assert error is not None and error.code == "remote_unreachable"
    wait_for_(engine, lambda: engine.snapshot.state is EngineState.LOADING)
    with serving(ScriptedServer(), port):
        wait_for_(engine, lambda: engine.snapshot.state is EngineState.READY)
        assert text_of(read(engine.submit(CHAT))) == "Hello"


def test_a_cancel_closes_the_connection(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    left = threading.Event()

    def script(request: Request) -> None:
        request.begin()
        try:
            for _ in range(1000):
                request.piece("a" * 4000)
                threading.Event().wait(0.005)
        except OSError:
            left.set()
            raise

    server.scripts = [script]
    engine = make_engine(server.url)
    handle = engine.submit(CHAT)
    handle.wait(60)
    handle.cancel()
    assert end_of(read(handle)).reason is FinishReason.CANCELLED
    assert left.wait(60)


def test_closing_ends_everyone(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    gate = threading.Event()
    server.usual = lambda request: (request.begin(), gate.wait(60), None)[-1]
    engine = make_engine(server.url, seats=2)
    handles = [engine.submit(CHAT) for _ in range(5)]
    assert engine.close(60)
    gate.set()
    assert {end_of(read(handle)).reason for handle in handles} == {FinishReason.CANCELLED}
    assert engine.snapshot.state is EngineState.CLOSED
    with pytest.raises(RequestRefused):
        engine.submit(CHAT)


# ---------------------------------------------------------------------------------------------------------------- rules


def test_what_only_an_engine_here_can_do_is_refused(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    engine = make_engine(server.url)
    for action in (engine.clear_cache, engine.unload, lambda: engine.resize_pool(3), lambda: engine.configure(policy=Policy.STATIC)):
        with pytest.raises(EngineError) as caught:
            action()
        assert caught.value.code == "not_remote"
    with pytest.raises(RequestRefused):
        engine.submit([1, 2, 3])
    with pytest.raises(EngineError):
        engine.start_recording().result(60)
    assert engine.history() == () and engine.count_tokens("x") is None


def test_paused_nothing_is_sent(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    engine = make_engine(server.url)
    engine.pause()
    wait_for_(engine, lambda: engine.snapshot.state is EngineState.PAUSED)
    handle = engine.submit(CHAT)
    wait_for_(engine, lambda: engine.snapshot.waiting == 1)
    assert server.requests == []
    engine.resume()
    assert text_of(read(handle)) == "Hello"


def test_the_metrics_fill_the_snapshot_and_the_key_goes_to_its_own_server_alone(
    server: ScriptedServer, make_engine: Callable[..., RemoteEngine]
) -> None:
    server.metrics = (
        "# HELP vllm:num_requests_running x\n"
        'vllm:num_requests_running{engine="0"} 2.0\nvllm:num_requests_running{engine="1"} 1.0\n'
        'vllm:num_requests_waiting{engine="0"} 5\nvllm:kv_cache_usage_perc{engine="0"} 0.25\n'
        'vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1.0\n'
    )
    engine = make_engine(server.url, key="secret")
    wait_for_(engine, lambda: engine.snapshot.kv.total == 1000)
    snapshot = engine.snapshot
    assert snapshot.seated == 3 and {seat.title for seat in snapshot.seats if seat} == {"another client"}
    assert (snapshot.waiting, snapshot.kv.referenced, snapshot.kv.block_size, snapshot.kv.owners) == (5, 250, 16, b"")
    assert set(server.keys_at_metrics) == {"Bearer secret"}
    with serving(ScriptedServer()) as other:
        other.metrics = "vllm:num_requests_running 0\n"
        make_engine(server.url, key="secret", metrics_url=other.url.replace("/v1", "/metrics"))
        for _ in range(6000):
            if other.keys_at_metrics:
                break
            threading.Event().wait(0.01)
        assert set(other.keys_at_metrics) == {""}


def test_metrics_elsewhere_fill_the_same_dashboard(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    """As with vLLM behind a gateway, or on Ray: the API's own address has other things at /metrics, or nothing."""
    server.metrics = "gateway_requests_total 5\n"
    with serving(ScriptedServer()) as other:
        other.metrics = 'ray_vllm_num_requests_running{ReplicaId="a"} 2\nray_vllm_num_requests_waiting{ReplicaId="a"} 3\n'
        engine = make_engine(server.url, key="secret", metrics_url=other.url.replace("/v1", "/metrics"))
        wait_for_(engine, lambda: (engine.snapshot.seated, engine.snapshot.waiting) == (2, 3))
        assert not server.keys_at_metrics and set(other.keys_at_metrics) == {""}
        other.metrics = "vllm:num_requests_running 1\n"  # and it stays where it was found
        wait_for_(engine, lambda: engine.snapshot.seated == 1)


def test_a_page_of_metrics_where_tensorrt_llm_has_it_is_found(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    server.metrics, server.metrics_path = "trtllm_num_requests_running 2\n", "/prometheus/metrics"
    engine = make_engine(server.url, key="secret")
    wait_for_(engine, lambda: engine.snapshot.seated == 2)
    assert set(server.keys_at_metrics) == {"Bearer secret"}


def test_the_slots_of_a_llama_cpp_fill_the_seats(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    gate = threading.Event()

    def script(request: Request) -> None:
        request.begin()
        request.piece("a")
        gate.wait(60)
        request.piece(finish="stop")

    server.scripts = [script]
    server.metrics = "llamacpp:requests_processing 0\nllamacpp:requests_deferred 3\n"
    server.slots = [{"id": place, "n_ctx": 100, "is_processing": False} for place in range(4)]
    engine = make_engine(server.url, key="secret")
    wait_for_(engine, lambda: len(engine.snapshot.seats) == 4)
    handle = engine.submit(CHAT, title="mine")
    mine = {"is_processing": True, "n_ctx": 100, "n_prompt_tokens": 41, "n_prompt_tokens_cache": 30, "next_token": [{"n_decoded": 1}]}
    theirs = {"is_processing": True, "n_ctx": 100, "n_prompt_tokens": 70, "next_token": [{"n_decoded": 50, "n_remain": 20}]}
    server.metrics = "llamacpp:requests_processing 1\n"
    server.slots = [server.slots[0], mine, *server.slots[2:]]
    wait_for_(engine, lambda: any(seat and seat.prompt_tokens == 40 for seat in engine.snapshot.seats))
    seat = next(seat for seat in engine.snapshot.seats if seat)
    assert (seat.title, seat.cached_tokens, seat.known_tokens, seat.output_tokens) == ("mine", 30, 41, 1)
    server.metrics = "llamacpp:requests_processing 2\n"
    server.slots = [theirs, mine, {**server.slots[2], "n_prompt_tokens": 25}, server.slots[3]]
    wait_for_(engine, lambda: engine.snapshot.seated == 2)
    wait_for_(engine, lambda: engine.snapshot.kv.cached == 25)
    other = next(seat for seat in engine.snapshot.seats if seat and seat.title != "mine")
    assert (other.prompt_tokens, other.output_tokens, other.max_output_tokens) == (20, 50, 70)
    kv = engine.snapshot.kv
    assert (kv.total, kv.referenced, kv.cached, kv.free, kv.block_size) == (400, 111, 25, 264, 1)
    gate.set()
    assert end_of(read(handle)).reason is FinishReason.STOP


def test_a_server_without_such_pages_is_asked_for_slots_once(server: ScriptedServer, make_engine: Callable[..., RemoteEngine]) -> None:
    engine = make_engine(server.url, poll_s=0.005)
    for _ in range(3):
        assert text_of(read(engine.submit(CHAT))) == "Hello"
    for _ in range(6000):
        if server.asked.count("/metrics") >= 4:
            break
        threading.Event().wait(0.01)
    assert server.asked.count("/slots") == 1


def test_a_server_that_fails_time_after_time_is_left_alone_for_a_while(
    server: ScriptedServer, make_engine: Callable[..., RemoteEngine], pauses: Pauses
) -> None:
    engine = make_engine(server.url)
    seen: list[str] = []
    remove = engine.add_listener(lambda: seen.append(engine.snapshot.model.stage))
    server.usual = lambda request: request.refuse(500, "kaboom")
    for _ in range(4):
        assert end_of(read(engine.submit(CHAT))).reason is FinishReason.ERROR
    server.scripts = [lambda request: request.answer("one", " good one")]
    assert text_of(read(engine.submit(CHAT))) == "one good one"
    for _ in range(4):
        read(engine.submit(CHAT))
    assert pauses.seconds == [], "not so many in a row"
    read(engine.submit(CHAT))
    server.usual = lambda request: request.answer("well", " again")
    assert text_of(read(engine.submit(CHAT))) == "well again"
    assert pauses.seconds == [15.0] and any("5 times in a row" in stage for stage in seen)
    remove()


@pytest.mark.parametrize("done", [True, False])
def test_a_stream_that_ends_before_its_first_word_is_asked_for_again(
    server: ScriptedServer, make_engine: Callable[..., RemoteEngine], pauses: Pauses, done: bool
) -> None:
    """llama_cpp.server breaks off the answer under way when another question comes."""

    def script(request: Request) -> None:
        request.begin()
        request.piece(role="assistant")
        if done:
            request.raw("data: [DONE]\n\n")

    server.scripts = [script, script]
    assert text_of(read(make_engine(server.url).submit(CHAT))) == "Hello"
    assert len(server.requests) == 3 and len(pauses.seconds) == 2
