"""City bus against tour bus, step by step: the design's six riders on three seats, and switching between them under way."""

from __future__ import annotations

from engine.sim import expected_answer
from engine.types import FinishReason, Phase, Policy, StepRecord
from tests.engine.scheduling.make import Stop, admitted, make_sim, run_all

RIDERS = {"A": 8, "B": 2, "C": 6, "D": 4, "E": 5, "F": 8}  # tokens of each answer


def ride(policy: Policy) -> tuple[list[StepRecord], dict[str, int], dict[str, list[int]], int]:
    """Records, the step at which each got off, what each said, and the idle seat-steps."""
    sim = make_sim(policy=policy)
    stop = Stop(sim)
    for name, answer in RIDERS.items():
        stop(name, prompt=3, answer=answer)
    records, finished = [], {}
    while sim.core.busy:
        record = sim.core.step()
        assert record is not None
        records.append(record)
        for name in RIDERS:
            if sim.end(name) and name not in finished:
                finished[name] = record.step
    assert all(sim.end(name).reason is FinishReason.LENGTH for name in RIDERS)  # type: ignore[union-attr]
    return records, finished, {name: sim.tokens(name) for name in RIDERS}, sim.core.totals.idle_seat_steps


def test_the_tour_bus_leaves_holes_until_its_group_is_done() -> None:
    records, finished, _, idle = ride(Policy.STATIC)
    assert len(records) == 16
    assert admitted(records) == {"A": 1, "B": 1, "C": 1, "D": 9, "E": 9, "F": 9}
    assert finished == {"A": 8, "B": 2, "C": 6, "D": 12, "E": 13, "F": 16}
    assert idle == (6 + 2) + (4 + 3)  # B's and C's holes, then D's and E's
    assert [len(record.rows) for record in records] == [3, 3, 2, 2, 2, 2, 1, 1, 3, 3, 3, 3, 2, 1, 1, 1]


def test_the_city_bus_fills_a_seat_at_the_step_after_it_came_free() -> None:
    records, finished, _, idle = ride(Policy.IN_FLIGHT)
    assert admitted(records) == {"A": 1, "B": 1, "C": 1, "D": 3, "E": 7, "F": 7}
    assert finished == {"A": 8, "B": 2, "C": 6, "D": 6, "E": 11, "F": 14}
    assert len(records) == 14
    # The seats that the newcomers took are those that were left.
    seats = {row.request_id: row.seat for record in records for row in record.rows}
    assert seats["D"] == seats["B"]
    assert {seats["E"], seats["F"]} == {seats["C"], seats["D"]}
    assert idle == 3 * 14 - sum(RIDERS.values())


def test_both_say_the_same_and_what_each_says_alone() -> None:
    _, _, static, _ = ride(Policy.STATIC)
    _, _, in_flight, _ = ride(Policy.IN_FLIGHT)
    assert static == in_flight
    for number, (name, answer) in enumerate(RIDERS.items()):
        assert static[name] == expected_answer([100 + number] * 3, number, answer)


def test_twins_board_the_tour_bus_together() -> None:
    """Waiting for the other's prefix would mean waiting for the next bus."""
    sim = make_sim(policy=Policy.STATIC, block_size=2)
    stop = Stop(sim)
    stop("one", prompt=[5] * 9)
    stop("two", prompt=[5] * 9)
    assert admitted(run_all(sim)) == {"one": 1, "two": 1}


def test_switching_to_the_city_bus_opens_the_doors_at_once_and_back_closes_them() -> None:
    sim = make_sim(seats=2, policy=Policy.STATIC)
    stop = Stop(sim)
    stop("long", answer=12)
    stop("short", answer=2)
    stop("next", answer=2)
    stop("last", answer=2)
    for _ in range(4):
        sim.core.step()
    assert sim.core.requests["next"].seat is None
    sim.core.configure(policy=Policy.IN_FLIGHT)
    record = sim.core.step()
    assert record is not None and admitted([record]) == {"next": 5}
    sim.core.configure(policy=Policy.STATIC)
    records = run_all(sim)
    assert admitted(records)["last"] == 13  # the step after the long one got off


def test_a_record_tells_who_was_read_who_decoded_and_who_was_held() -> None:
    sim = make_sim(seats=2, chunk=4)
    stop = Stop(sim)
    stop("talks", prompt=4, answer=9)
    sim.core.step()
    stop("reads", prompt=10, answer=2)
    record = sim.core.step()
    assert record is not None
    assert [(row.request_id, row.phase, row.tokens) for row in record.rows] == [("talks", Phase.DECODE, 1), ("reads", Phase.PREFILL, 4)]
    assert record.seats_total == 2 and record.held == ()
