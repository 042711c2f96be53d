"""Who boards next: class, who lost a seat, the least-served chat, arrival; lifting and aging."""

from __future__ import annotations

from engine.scheduling.queue import WaitingQueue
from engine.scheduling.request import RequestState
from engine.types import Priority
from tests.engine.scheduling.make import make_queue, make_request


def names(queue: WaitingQueue) -> list[str]:
    """In boarding order, everyone boarding without being served anything."""
    order: list[str] = []
    waiting = list(queue)
    while len(queue):
        request = next(iter(queue.candidates()))
        order.append(request.id)
        queue.remove(request)
    for request in waiting:
        queue.add(request, 0.0)
    return order


def add(queue: WaitingQueue, *requests: RequestState, now: float = 0.0) -> None:
    for request in requests:
        queue.add(request, now)


def test_a_higher_class_boards_first_and_arrival_decides_within_a_chat() -> None:
    queue = make_queue()
    add(queue, make_request("idle", priority=Priority.IDLE), make_request("first"), make_request("second"))
    assert names(queue) == ["first", "second", "idle"]
    assert [request.id for request in queue.in_order(10)] == ["first", "second", "idle"]


def test_the_least_served_chat_boards_first() -> None:
    queue = make_queue()
    one, other = make_request("one", "a"), make_request("other", "b")
    add(queue, one, other)
    queue.served(one, 10)
    assert names(queue) == ["other", "one"]
    queue.served(other, 11)
    assert names(queue) == ["one", "other"]


def test_the_places_shown_count_what_boarding_will_charge() -> None:
    """Three waiting requests of one chat do not all come before another chat's."""
    queue = make_queue()
    add(queue, *(make_request(f"a{number}", "a", tokens=5) for number in range(3)), make_request("b", "b", tokens=5))
    assert [request.id for request in queue.in_order(10)] == ["a0", "b", "a1", "a2"]
    assert [request.id for request in queue.in_order(2)] == ["a0", "b"]


def test_a_chat_that_comes_back_is_lifted_to_the_least_served_that_waits() -> None:
    queue = make_queue()
    stays = [make_request(f"stays{number}", "stays") for number in range(2)]
    add(queue, *stays)
    queue.served(stays[0], 100)
    add(queue, make_request("back", "back"))
    assert queue.fairness.counter(0, "back") == 100
    assert queue.fairness.counter(1, "back") == 0  # the other classes are another matter


def test_where_nobody_waits_it_is_lifted_to_the_one_that_left_last() -> None:
    queue = make_queue()
    last = make_request("last", "last")
    add(queue, last)
    queue.remove(last)
    queue.served(last, 70)
    add(queue, make_request("new", "new"))
    assert queue.fairness.counter(0, "new") == 70


def test_a_lift_never_lowers() -> None:
    queue = make_queue()
    rich, poor = make_request("rich", "rich"), make_request("poor", "poor")
    queue.served(rich, 50)
    add(queue, poor, rich)
    assert queue.fairness.counter(0, "rich") == 50


def test_who_lost_a_seat_boards_first_in_its_class_by_arrival() -> None:
    queue = make_queue()
    early, late, fresh, front = (make_request(name, name) for name in ("early", "late", "fresh", "front"))
    early.priority = late.priority = fresh.priority = Priority.BACKGROUND
    late.preemptions = early.preemptions = 1
    add(queue, fresh, late, early, front)
    assert names(queue) == ["front", "early", "late", "fresh"]


def test_waiting_too_long_lifts_a_class_at_a_time() -> None:
    queue = make_queue(aging_s=10)
    old, young = make_request("old", priority=Priority.API), make_request("young", priority=Priority.API)
    queue.add(old, 0.0)
    queue.add(young, 5.0)
    queue.age(9.9)
    assert (old.level, young.level) == (2, 2)
    queue.age(10.0)
    assert (old.level, young.level) == (1, 2)
    queue.age(100.0)
    assert (old.level, young.level) == (0, 1)  # one class a time, however late one looks
    queue.age(110.0)
    assert (old.level, young.level) == (0, 0)


def test_a_change_of_class_keeps_what_waiting_has_earned() -> None:
    queue = make_queue(aging_s=10)
    request = make_request("r", priority=Priority.API)
    queue.add(request, 0.0)
    queue.age(10.0)
    queue.reclass(request, Priority.BACKGROUND, 11.0)
    assert (request.priority, request.level) == (Priority.BACKGROUND, 0)
    queue.reclass(request, Priority.IDLE, 12.0)
    assert request.level == 2  # one class above its own, still


def test_a_request_that_moves_to_its_chats_other_class_keeps_its_place_by_arrival() -> None:
    queue = make_queue()
    first, second, third = (make_request(name) for name in ("first", "second", "third"))
    first.priority = Priority.BACKGROUND
    add(queue, first, second, third)
    queue.reclass(first, Priority.FOREGROUND, 1.0)
    assert names(queue) == ["first", "second", "third"]


def test_looking_at_candidates_changes_nothing() -> None:
    queue = make_queue()
    add(queue, *(make_request(f"r{number}", f"c{number % 3}", priority=Priority(number % 2)) for number in range(9)))
    before = [request.id for request in queue.candidates()]
    assert [request.id for request in queue.candidates()] == before
    next(iter(queue.candidates()))  # one that stops early puts back what it looked at
    assert [request.id for request in queue.candidates()] == before


def test_a_chats_next_request_is_offered_once_its_first_has_boarded() -> None:
    queue = make_queue()
    add(queue, make_request("a0", "a"), make_request("a1", "a"), make_request("b0", "b"))
    seen = []
    for request in queue.candidates():
        seen.append(request.id)
        if request.id == "a0":
            queue.remove(request)
            queue.served(request, 100)
    assert seen == ["a0", "b0", "a1"]


def test_the_version_tells_whether_the_order_may_have_changed() -> None:
    queue = make_queue()
    waiting, elsewhere = make_request("w", "w"), make_request("e", "e")
    queue.add(waiting, 0.0)
    before = queue.version
    queue.served(elsewhere, 5)
    assert queue.version == before
    queue.served(waiting, 5)
    assert queue.version > before


def test_the_heap_stays_small_whatever_is_served_and_cancelled() -> None:
    queue = make_queue()
    stands = make_request("stands", "stands")
    queue.add(stands, 0.0)
    for number in range(2000):
        request = make_request(f"r{number}", f"c{number}")
        queue.add(request, 0.0)
        queue.served(stands, 1)
        queue.remove(request)
    assert len(queue._levels[0].heap) < 200
    assert names(queue) == ["stands"]


def test_forgetting_idle_chats_forgives_no_one_and_keeps_the_living() -> None:
    """Only counters that a lift would restore anyway may go."""
    fairness = make_queue().fairness
    fairness.MOST_IDLE = 2
    for chat in ("seated", "gone", "rich", "poor", "poorer"):
        fairness.arrive(chat)
    fairness.lift(0, "poor", 50)
    fairness.served[0].update({"rich": 80.0, "poorer": 10.0, "gone": 50.0, "seated": 5.0})
    for chat in ("rich", "poor", "poorer", "gone"):
        fairness.leave(chat)
    assert fairness.served[0] == {"rich": 80.0, "seated": 5.0}
