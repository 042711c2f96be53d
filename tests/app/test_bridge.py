"""The hand-off: one ring until it is heard, order kept, nothing lost, first tokens at once, at most one drain a frame."""

from __future__ import annotations

import threading

from app.bridge import FRAME_S, EngineBridge, Mailbox
from tests.app.conftest import settle
from tests.app.fakes import FakeHandle


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def make_handle(number: int) -> FakeHandle:
    return FakeHandle(number, f"c{number}", "", 0, (), None)


def test_a_mailbox_rings_once_until_it_is_taken():
    rings = []
    box: Mailbox[str] = Mailbox(lambda: rings.append(1))
    box.put("a", "a")
    box.put("b", "b")
    box.put("a", "a again")
    assert len(rings) == 1
    assert box.take() == ["a again", "b"]
    assert box.take() == []
    box.put("c", "c")
    assert len(rings) == 2


def test_something_urgent_rings_once_more():
    rings = []
    box: Mailbox[int] = Mailbox(lambda: rings.append(1))
    box.put(1, 1)
    box.put(2, 2, urgent=True)
    box.put(3, 3, urgent=True)
    assert len(rings) == 2
    assert box.urgent
    box.take()
    assert not box.urgent


def test_every_item_from_many_threads_is_taken():
    taken: list[int] = []
    rung = threading.Event()
    box: Mailbox[int] = Mailbox(rung.set)
    threads = [threading.Thread(target=lambda base=base: [box.put(base + i, base + i) for i in range(500)]) for base in (0, 1000, 2000)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) or rung.is_set():
        if rung.wait(0.01):
            rung.clear()
            taken += box.take()
    for thread in threads:
        thread.join()
    taken += box.take()
    assert sorted(taken) == [base + i for base in (0, 1000, 2000) for i in range(500)]
    assert [item for item in taken if item < 1000] == list(range(500))  # each thread's own order


def test_the_first_event_of_a_request_comes_at_once_the_others_once_a_frame(qapp, no_leftovers):
    clock = FakeClock()
    drains: list[list[str]] = []
    bridge = EngineBridge(lambda handles: drains.append([handle.id for handle in handles]), clock=clock)
    first, second = make_handle(1), make_handle(2)
    bridge.ready(first)
    settle()
    assert drains == [["r1"]]
    clock.now += FRAME_S / 4
    bridge.ready(first)
    settle()
    assert drains == [["r1"]]  # its frame is not over
    bridge.ready(second)  # new: does not wait, and takes along what does
    settle()
    assert drains == [["r1"], ["r1", "r2"]]
    clock.now += FRAME_S * 2
    bridge.ready(second)
    bridge.ready(first)
    settle()
    assert drains[2:] == [["r2", "r1"]]
    bridge.close()


def test_what_waits_for_its_frame_comes_by_the_timer(qapp, qtbot, no_leftovers):
    drains: list[int] = []
    bridge = EngineBridge(lambda handles: drains.append(len(handles)))
    handle = make_handle(1)
    bridge.ready(handle)
    settle()
    bridge.ready(handle)
    qtbot.waitUntil(lambda: len(drains) == 2, timeout=30_000)
    bridge.close()


def test_a_closed_bridge_takes_nothing_and_says_nothing(qapp, no_leftovers):
    drains: list[int] = []
    bridge = EngineBridge(lambda handles: drains.append(1))
    bridge.ready(make_handle(1))
    bridge.close()
    bridge.ready(make_handle(2))
    settle()
    assert drains == []


def test_a_thousand_rings_from_a_thread_lose_nothing_and_coalesce(qapp, qtbot, no_leftovers):
    heard: list[str] = []
    drains: list[int] = []

    def deliver(handles: list[FakeHandle]) -> None:
        drains.append(1)
        for handle in handles:
            heard.extend(event.text for event in handle.poll())

    bridge = EngineBridge(deliver)  # type: ignore[arg-type]
    handle = make_handle(1)
    handle.on_ready = bridge.ready  # type: ignore[assignment]
    thread = threading.Thread(target=lambda: [handle.say(f"{number} ") for number in range(1000)])
    thread.start()
    qtbot.waitUntil(lambda: "".join(heard).endswith("999 "), timeout=30_000)
    thread.join()
    assert "".join(heard) == "".join(f"{number} " for number in range(1000))
    assert len(drains) < 500
    bridge.close()
