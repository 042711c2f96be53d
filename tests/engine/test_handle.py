"""The caller's end of a request: order, coalescing, one call to on_ready, cancelling, waiting from threads and from asyncio."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from engine.handle import RequestHandle
from engine.types import ErrorInfo, Event, FinishedEvent, FinishReason, TimeSplit, TokensEvent, Usage

SPLIT = TimeSplit(1.0, 2.0, 3.0, 0.0, ttft=3.0)


def make_handle(on_ready: list[RequestHandle] | None = None) -> tuple[RequestHandle, list[str]]:
    """A handle, and the ids that it asked to cancel."""
    cancelled: list[str] = []
    told = None if on_ready is None else on_ready.append
    return RequestHandle("r1", "c1", cancelled.append, told), cancelled


def token(text: str, *ids: int) -> TokensEvent:
    return TokensEvent("r1", text, ids)


def the_end(reason: FinishReason = FinishReason.STOP, error: ErrorInfo | None = None) -> FinishedEvent:
    return FinishedEvent("r1", reason, Usage(3, 2), SPLIT, error)


def test_unread_text_joins_into_one_event_and_the_end_comes_last_and_once() -> None:
    handle, _ = make_handle()
    assert handle.poll() == []
    for event in (token("He", 1), token("", 2), token("llo", 3, 4)):
        handle.put(event)
    assert handle.poll() == [token("Hello", 1, 2, 3, 4)]
    assert handle.poll() == []
    handle.put(token("!", 5))
    handle.put(the_end())
    assert handle.ended
    assert handle.poll() == [token("!", 5), the_end()]
    assert handle.poll() == []
    handle.put(token("late", 6))
    handle.put(the_end())
    assert handle.poll() == []


def test_a_token_without_text_is_still_told() -> None:
    handle, _ = make_handle()
    handle.put(token("", 7))
    assert handle.poll() == [token("", 7)]


def test_on_ready_is_called_once_until_the_next_poll() -> None:
    told: list[RequestHandle] = []
    handle, _ = make_handle(told)
    handle.put(token("a", 1))
    handle.put(token("b", 2))
    assert told == [handle]
    handle.poll()
    handle.poll()
    assert told == [handle]
    handle.put(token("c", 3))
    handle.put(the_end())
    assert told == [handle, handle]
    handle.poll()
    assert told == [handle, handle]


def test_on_ready_is_not_called_again_when_a_cancel_swallowed_what_was_unread() -> None:
    told: list[RequestHandle] = []
    handle, _ = make_handle(told)
    handle.put(token("a", 1))
    handle.cancel()
    handle.put(the_end(FinishReason.CANCELLED))
    assert told == [handle]
    assert handle.poll() == [the_end(FinishReason.CANCELLED)]


def test_a_reader_that_fails_does_not_fail_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    def fails(handle: RequestHandle) -> None:
        raise ValueError("made-up")

    handle = RequestHandle("r1", "c1", lambda request_id: None, fails)
    with caplog.at_level(logging.ERROR):
        handle.put(token("a", 1))
    assert "on_ready of request r1 failed" in caplog.text
    assert handle.poll() == [token("a", 1)]


def test_after_a_cancel_there_are_no_tokens_and_asking_twice_is_once() -> None:
    handle, cancelled = make_handle()
    handle.put(token("unread", 1))
    handle.cancel()
    handle.cancel()
    handle.put(token("late", 2))
    assert cancelled == ["r1"]
    assert handle.poll() == []
    handle.put(the_end(FinishReason.CANCELLED))
    assert handle.poll() == [the_end(FinishReason.CANCELLED)]


def test_one_that_ends_by_itself_while_it_is_being_cancelled_is_cancelled_for_its_reader() -> None:
    """Its text was swallowed: to call it complete would be a lie."""
    handle, _ = make_handle()
    handle.cancel()
    handle.put(token("rest", 1))
    handle.put(the_end(FinishReason.STOP))
    assert handle.poll() == [the_end(FinishReason.CANCELLED)]


def test_an_error_is_told_even_to_one_who_cancelled() -> None:
    handle, _ = make_handle()
    handle.cancel()
    error = ErrorInfo("model_changed", "another model")
    handle.put(the_end(FinishReason.ERROR, error))
    assert handle.poll() == [the_end(FinishReason.ERROR, error)]


def test_cancelling_after_the_end_asks_nobody_and_swallows_nothing() -> None:
    handle, cancelled = make_handle()
    handle.put(token("all", 1))
    handle.put(the_end())
    handle.cancel()
    assert cancelled == []
    assert handle.poll() == [token("all", 1), the_end()]


# --------------------------------------------------------------------------------------------------------------- waiting


def test_wait_returns_when_something_comes_and_at_once_after_the_end() -> None:
    handle, _ = make_handle()
    assert handle.wait(0.0) == []
    threading.Timer(0.01, handle.put, [token("a", 1)]).start()
    assert handle.wait(60) == [token("a", 1)]
    handle.put(the_end())
    assert handle.wait(60) == [the_end()]
    assert handle.wait(60) == []


def test_result_collects_to_the_end() -> None:
    handle, _ = make_handle()

    def engine() -> None:
        for event in (token("a", 1), token("b", 2), the_end(FinishReason.LENGTH)):
            handle.put(event)

    thread = threading.Thread(target=engine)
    thread.start()
    result = handle.result(60)
    thread.join()
    assert (result.text, result.token_ids, result.reason, result.usage, result.time) == (
        "ab",
        (1, 2),
        FinishReason.LENGTH,
        Usage(3, 2),
        SPLIT,
    )


def test_result_says_when_nothing_comes_and_when_there_is_nothing_left() -> None:
    handle, _ = make_handle()
    with pytest.raises(TimeoutError, match="gave nothing for 0.0 s"):
        handle.result(0.0)
    handle.put(the_end())
    handle.result(60)
    with pytest.raises(RuntimeError, match="read already"):
        handle.result(60)


# --------------------------------------------------------------------------------------------------------------- asyncio


async def collect(handle: RequestHandle) -> list[Event]:
    return [event async for event in handle]


def test_events_can_be_awaited() -> None:
    handle, _ = make_handle()

    async def scene() -> list[Event]:
        reader = asyncio.create_task(collect(handle))
        await asyncio.sleep(0)
        engine = threading.Thread(target=lambda: [handle.put(event) for event in (token("a", 1), token("b", 2), the_end())])
        engine.start()
        events = await asyncio.wait_for(reader, 10)
        engine.join()
        return events

    events = asyncio.run(scene())
    assert "".join(event.text for event in events if isinstance(event, TokensEvent)) == "ab"
    assert events[-1] == the_end()
    assert not handle._wakers


def test_what_came_before_the_reader_is_there_at_once() -> None:
    handle, _ = make_handle()
    handle.put(token("a", 1))
    handle.put(the_end())
    assert asyncio.run(asyncio.wait_for(collect(handle), 10)) == [token("a", 1), the_end()]


def test_reading_after_the_end_was_read_ends_at_once() -> None:
    handle, _ = make_handle()
    handle.put(the_end())
    handle.poll()
    assert asyncio.run(asyncio.wait_for(collect(handle), 10)) == []


def test_two_readers_share_and_both_end() -> None:
    handle, _ = make_handle()

    async def scene() -> list[list[Event]]:
        readers = [asyncio.create_task(collect(handle)) for _ in range(2)]
        await asyncio.sleep(0)
        handle.put(token("a", 1))
        handle.put(the_end())
        return await asyncio.wait_for(asyncio.gather(*readers), 10)

    one, other = asyncio.run(scene())
    assert sorted(map(len, (one, other))) == [0, 2]


def test_a_reader_that_gives_up_leaves_nothing_behind() -> None:
    handle, _ = make_handle()

    async def scene() -> None:
        reader = asyncio.create_task(collect(handle))
        await asyncio.sleep(0)
        assert len(handle._wakers) == 1
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader

    asyncio.run(scene())
    assert not handle._wakers
    handle.put(token("a", 1))
    assert handle.poll() == [token("a", 1)]


def test_a_loop_that_was_closed_meanwhile_does_not_stop_the_engine() -> None:
    handle, _ = make_handle()
    loop = asyncio.new_event_loop()
    reader = loop.create_task(collect(handle))
    loop.run_until_complete(asyncio.sleep(0))
    wakers = list(handle._wakers)
    reader.cancel()
    loop.run_until_complete(asyncio.gather(reader, return_exceptions=True))
    loop.close()
    for wake in wakers:  # as if the engine had copied the list just before
        wake()
    handle.put(token("a", 1))
    assert handle.poll() == [token("a", 1)]
