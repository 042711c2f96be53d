"""One decision at a time: who reads, who decodes, who has to leave, who waits and why."""

from __future__ import annotations

from itertools import pairwise

import pytest

from engine.scheduling.plan import MOST_SCORED
from engine.sim import Sim
from engine.types import DecisionKind, Phase, Policy, Priority, StepRecord, TokensEvent, WaitReason
from tests.engine.scheduling.make import Stop, admitted, make_sim, run_all


def step(sim: Sim) -> StepRecord:
    record = sim.core.step()
    assert record is not None
    return record


def rows(record: StepRecord) -> dict[str, int]:
    return {row.request_id: row.tokens for row in record.rows}


# ----------------------------------------------------------------------------------------------------------------- reading


def test_a_long_prompt_is_read_in_chunks_and_no_decode_is_ever_left_out() -> None:
    sim = make_sim(chunk=5)
    stop = Stop(sim)
    stop("talks", prompt=2, answer=30)
    step(sim)
    stop("reads", prompt=23, answer=2)
    seen = [rows(step(sim)) for _ in range(6)]
    assert seen == [{"talks": 1, "reads": 5}] * 4 + [{"talks": 1, "reads": 3}, {"talks": 1, "reads": 1}]


def test_without_decodes_beside_it_a_prompt_takes_the_whole_budget() -> None:
    sim = make_sim(chunk=5, token_budget=20)
    Stop(sim)("reads", prompt=50)
    assert [rows(step(sim)) for _ in range(3)] == [{"reads": 20}, {"reads": 20}, {"reads": 10}]


def test_decodes_come_first_even_when_they_fill_the_budget() -> None:
    sim = make_sim(seats=4, token_budget=4, chunk=4)
    stop = Stop(sim)
    for name in "abc":
        stop(name, prompt=1, answer=20)
    step(sim)
    stop("reads", prompt=9)
    seen = [rows(step(sim)) for _ in range(3)]
    assert seen == [{"a": 1, "b": 1, "c": 1, "reads": 1}] * 3


def test_the_shortest_prompt_is_read_first_with_a_floor_for_the_oldest() -> None:
    """Filling all alike would give the whole cohort its first token at the same late moment."""
    sim = make_sim(token_budget=16)
    stop = Stop(sim)
    stop("long", prompt=60)
    stop("short", prompt=12)
    stop("middle", prompt=20)
    assert rows(step(sim)) == {"short": 12, "long": 4}
    assert rows(step(sim)) == {"short": 1, "middle": 12, "long": 3}


def test_a_higher_class_is_read_before_a_shorter_prompt() -> None:
    sim = make_sim(token_budget=16)
    stop = Stop(sim)
    stop("back", prompt=12, priority=Priority.BACKGROUND)
    stop("front", prompt=40)
    assert rows(step(sim))["front"] == 16


# ------------------------------------------------------------------------------------------------------------ prefix hits


def test_a_second_question_reads_only_what_is_new() -> None:
    sim = make_sim(block_size=4)
    stop = Stop(sim)
    first = stop("first", prompt=[1] * 11, answer=2)
    run_all(sim)
    told = sim.tokens("first")
    second = stop("second", prompt=[1] * 11 + told + [2, 2], answer=2)
    record = step(sim)
    assert rows(record) == {"second": 15 - 12}
    assert second.cached_tokens == 12 and first.cached_tokens == 0
    assert sim.core.totals.cached_tokens == 12


def test_a_hit_leaves_the_last_token_to_compute() -> None:
    sim = make_sim(block_size=4)
    stop = Stop(sim)
    stop("first", prompt=[1] * 8, answer=1)
    run_all(sim)
    longer = stop("longer", prompt=[1] * 9, answer=1)
    assert rows(step(sim)) == {"longer": 1}
    assert longer.cached_tokens == 8
    shorter = stop("shorter", prompt=[1] * 7, answer=1)
    assert rows(step(sim)) == {"shorter": 1}
    assert shorter.cached_tokens == 6


def test_twins_that_come_together_compute_their_long_beginning_once() -> None:
    sim = make_sim(block_size=4, token_budget=100)
    stop = Stop(sim)
    prefix = [7] * 64
    stop("one", prompt=[*prefix, 1])
    two = stop("two", prompt=[*prefix, 2])
    assert rows(step(sim)) == {"one": 65}
    assert two.wait_reason is WaitReason.PREFIX and two.wait_detail == "one is computing the same beginning"
    assert rows(step(sim)) == {"one": 1, "two": 1}


def test_where_nobody_decodes_yet_the_first_token_does_not_wait_for_all_prompts() -> None:
    sim = make_sim(seats=4, token_budget=200, chunk=10)
    stop = Stop(sim)
    stop("first", prompt=70)
    assert rows(step(sim)) == {"first": 70}, "alone it has the whole step"
    sim.core.cancel("first")
    for name, length in (("long", 150), ("middle", 90), ("short", 40)):
        stop(name, prompt=length)
    assert rows(step(sim)) == {"short": 40, "long": 13, "middle": 1}, "the oldest has its quarter"
    assert rows(step(sim)) == {"short": 1, "middle": 8, "long": 2}, "a chunk, once somebody decodes"


def test_a_short_beginning_is_computed_twice_rather_than_waited_for() -> None:
    sim = make_sim(block_size=4, token_budget=200, chunk=200)
    stop = Stop(sim)
    for number, name in enumerate(("one", "two")):
        stop(name, prompt=[*[7] * 63, number])
    assert rows(step(sim)) == {"one": 64, "two": 64}
    assert sim.core.pool.referenced == 15 + 2  # and kept once all the same


def test_a_twin_does_not_wait_when_it_has_been_passed_often_enough() -> None:
    sim = make_sim(block_size=4, seats=4, token_budget=8, chunk=4, overtake_limit=1)
    stop = Stop(sim)
    stop("talks", prompt=1, answer=40)
    step(sim)
    stop("one", prompt=[7] * 101, answer=2)
    step(sim)
    two = stop("two", prompt=[7] * 100 + [1], answer=2)
    stop("other", prompt=2, answer=1)
    records = [step(sim)]
    assert admitted(records) == {"other": 3} and two.overtaken == 1
    records.append(step(sim))
    assert admitted(records)["two"] == 4
    assert sim.core.requests["one"].remaining > 64  # long before its twin was done
    run_all(sim)


def test_a_twin_whose_model_died_is_not_waited_for() -> None:
    sim = make_sim(block_size=4, token_budget=4)
    stop = Stop(sim)
    stop("one", prompt=[7] * 80)
    two = stop("two", prompt=[7] * 80)
    step(sim)
    assert two.seat is None
    sim.core.cancel("one")
    assert rows(step(sim)) == {"two": 4}


# --------------------------------------------------------------------------------------------------------------- preemption


def test_when_blocks_run_out_the_last_to_board_gives_its_back_and_comes_back_first() -> None:
    sim = make_sim(blocks=6, block_size=2, seats=2)
    sim.core.scheduler.growth.typical = 0.0  # nothing is kept for growth
    stop = Stop(sim)
    old = stop("old", prompt=3, answer=8, ignore_eos=False)
    young = stop("young", prompt=3, answer=8, ignore_eos=False)
    records = run_all(sim)
    assert (old.preemptions, young.preemptions) == (0, 1)
    why = [decision for record in records for decision in record.decisions if decision.kind is DecisionKind.PREEMPT]
    assert [decision.request_id for decision in why] == ["young"]
    assert why[0].detail == "old needed a block and none was free; gives back 3 blocks"
    assert len(sim.tokens("young")) == len(sim.tokens("old")) == 8
    assert sim.core.totals.preemptions == 1


def test_cached_blocks_give_way_before_anyone_has_to_leave() -> None:
    sim = make_sim(blocks=6, block_size=2, seats=2)
    stop = Stop(sim)
    stop("gone", prompt=6, answer=1)
    run_all(sim)
    cached = sim.core.pool.cached
    stop("stays", prompt=3, answer=8)
    records = run_all(sim)
    assert sim.core.totals.preemptions == 0 and sim.core.totals.evictions >= cached - 1
    assert any(decision.kind is DecisionKind.EVICT for record in records for decision in record.decisions)


def test_a_chores_blocks_give_way_before_those_of_a_chat_that_may_come_back() -> None:
    """A title is read once; the chat was there before it, and still is when somebody else needs room."""
    sim = make_sim(blocks=12, block_size=4, seats=1)
    stop = Stop(sim)
    chat, chore = [1] * 17, [2] * 17
    stop("chat", prompt=chat, answer=1)
    run_all(sim)
    stop("title", prompt=chore, answer=1, priority=Priority.IDLE)
    run_all(sim)
    stop("other", prompt=22, answer=1)
    run_all(sim)
    assert sim.core.totals.evictions > 0
    stop("title again", prompt=chore, answer=1, priority=Priority.IDLE)
    stop("chat again", prompt=chat, answer=1)
    run_all(sim)
    ends = {name: sim.end(name) for name in ("chat again", "title again")}
    cached = {name: end.usage.cached_tokens for name, end in ends.items() if end is not None}
    assert cached["chat again"] == 16 > cached["title again"]


def test_a_higher_class_takes_the_seat_of_the_lowest() -> None:
    sim = make_sim(seats=2)
    stop = Stop(sim)
    api = stop("api", answer=20, priority=Priority.API)
    idle = stop("idle", answer=20, priority=Priority.IDLE)
    step(sim)
    stop("front", answer=3)
    record = step(sim)
    assert idle.seat is None and api.seat is not None
    assert idle.wait_reason is WaitReason.PREEMPTED
    assert rows(record) == {"api": 1, "front": 4}
    records = run_all(sim)
    assert admitted(records)["idle"] == record.step + 3  # as soon as the front one is done
    assert len(sim.tokens("idle")) == 20


def test_an_equal_class_takes_nobodys_seat_and_the_tour_bus_knows_no_classes_under_way() -> None:
    sim = make_sim(seats=1)
    stop = Stop(sim)
    stop("rides", answer=5)
    step(sim)
    stop("waits", answer=1)
    step(sim)
    assert sim.core.requests["rides"].seat is not None
    sim = make_sim(seats=1, policy=Policy.STATIC)
    stop = Stop(sim)
    stop("rides", answer=5, priority=Priority.IDLE)
    step(sim)
    stop("waits", answer=1)
    step(sim)
    assert sim.core.requests["rides"].seat is not None


def test_only_as_many_leave_as_must() -> None:
    sim = make_sim(blocks=12, block_size=2, seats=4)
    sim.core.scheduler.growth.typical = 0.0
    stop = Stop(sim)
    for name in ("one", "two", "three"):
        stop(name, prompt=7, answer=9, ignore_eos=False, priority=Priority.BACKGROUND)  # 4 blocks each: the pool is full
    step(sim)
    stop("front", prompt=9, answer=1, ignore_eos=False)  # 5 blocks: two have to leave
    step(sim)
    assert [name for name, request in sim.core.requests.items() if request.seat is None] == ["two", "three"]


def test_blocks_that_only_the_leaving_share_count_as_freed() -> None:
    sim = make_sim(blocks=10, block_size=2, seats=4)
    sim.core.scheduler.growth.typical = 0.0
    stop = Stop(sim)
    prefix = [5] * 12
    stop("first", prompt=[*prefix, 1], answer=3, priority=Priority.BACKGROUND)
    step(sim)
    stop("second", prompt=[*prefix, 2], answer=3, priority=Priority.BACKGROUND)
    step(sim)
    assert sim.core.pool.referenced == 6 + 2
    stop("front", prompt=19, answer=1)  # needs all ten
    assert set(rows(step(sim))) == {"front"}


def test_a_prefix_that_only_a_leaving_rider_holds_is_kept_for_the_newcomer() -> None:
    """Its blocks are not freed by the other's leaving: the newcomer needs room beside them."""
    sim = make_sim(blocks=8, block_size=2, seats=4)
    sim.core.scheduler.growth.typical = 0.0
    stop = Stop(sim)
    prefix = [5] * 8
    stop("back", prompt=[*prefix, 1], answer=9, ignore_eos=False, priority=Priority.IDLE)
    stop("middle", prompt=3, answer=9, ignore_eos=False, priority=Priority.BACKGROUND)
    step(sim)
    assert sim.core.pool.referenced == 7
    front = stop("front", prompt=[*prefix, 2, 2, 2, 2, 2], answer=2)  # 7 blocks, 4 of them the prefix
    step(sim)
    sim.core.scheduler.audit()
    assert front.seat is not None and front.cached_tokens == 8
    assert sim.core.requests["middle"].seat is None  # one block of its own and one free were not enough
    run_all(sim)


# -------------------------------------------------------------------------------------------------------- admission, growth


def test_room_for_what_the_seated_are_expected_to_say_is_kept_free() -> None:
    sim = make_sim(blocks=10, block_size=2)
    stop = Stop(sim)
    stop("rides", prompt=3, answer=11)  # 2 blocks now, 7 in the end: its length is known, as it ignores the end of text
    step(sim)
    waits = stop("waits", prompt=7, answer=1)
    step(sim)
    assert waits.seat is None and waits.wait_reason is WaitReason.BLOCKS
    assert waits.wait_detail == "needs 4 blocks, 8 available, 5 kept for growth"
    records = run_all(sim)
    assert sim.core.totals.preemptions == 0
    assert admitted(records)["waits"] == 12  # 7 + 4 blocks never fit beside each other


def test_a_small_one_passes_a_large_one_only_so_often() -> None:
    sim = make_sim(blocks=10, block_size=2, seats=4, overtake_limit=2)
    sim.core.scheduler.growth.typical = 0.0
    stop = Stop(sim)
    stop("rides", prompt=9, answer=40, ignore_eos=False)
    step(sim)
    large = stop("large", prompt=15, answer=1, ignore_eos=False)
    for number in range(5):
        stop(f"small{number}", prompt=1, answer=1, ignore_eos=False)
    records = [step(sim) for _ in range(4)]
    assert set(admitted(records)) == {"small0", "small1"}
    assert large.overtaken == 2 and large.seat is None
    records = run_all(sim)
    assert admitted(records)["large"] <= admitted(records)["small2"]


def test_nobody_passes_one_that_lost_its_seat() -> None:
    sim = make_sim(blocks=8, block_size=2, seats=3)
    sim.core.scheduler.growth.typical = 0.0
    stop = Stop(sim)
    stop("front", prompt=9, answer=6, ignore_eos=False)
    lost = stop("lost", prompt=5, answer=6, ignore_eos=False, priority=Priority.BACKGROUND)
    step(sim)
    while lost.seat is not None:
        step(sim)
    small = stop("small", prompt=1, answer=1, ignore_eos=False, priority=Priority.BACKGROUND)
    step(sim)
    assert small.seat is None and small.wait_reason is WaitReason.TURN
    assert small.wait_detail == "lost lost its seat and boards first"
    records = run_all(sim)
    assert admitted(records)["lost"] <= admitted(records)["small"]


def test_fewer_seats_unseat_nobody_and_free_ones_are_not_filled() -> None:
    sim = make_sim(seats=3)
    stop = Stop(sim)
    for name, answer in (("a", 3), ("b", 6), ("c", 9), ("d", 2)):
        stop(name, answer=answer)
    step(sim)
    sim.core.configure(seats=1)
    assert set(rows(step(sim))) == {"a", "b", "c"}
    records = run_all(sim)
    assert admitted(records)["d"] == 10


def test_more_seats_are_filled_at_the_next_step() -> None:
    sim = make_sim(seats=1)
    stop = Stop(sim)
    for name in "abc":
        stop(name, answer=9)
    assert set(rows(step(sim))) == {"a"}
    sim.core.configure(seats=3)
    assert set(rows(step(sim))) == {"a", "b", "c"}


@pytest.mark.parametrize("waits", [Priority.FOREGROUND, Priority.BACKGROUND])
def test_reasons_are_told_in_numbers(waits: Priority) -> None:
    sim = make_sim(seats=2)
    stop = Stop(sim)
    stop("a", answer=9)
    stop("b", answer=9)
    request = stop("c", priority=waits)
    step(sim)
    assert (request.wait_reason, request.wait_detail) == (WaitReason.SEATS, "2 of 2 seats are taken")
    sim.core.configure(policy=Policy.STATIC)
    step(sim)
    assert (request.wait_reason, request.wait_detail) == (WaitReason.GROUP, "the present group is still riding")


# ------------------------------------------------------------------------------------------------------------------ phases


def test_recomputation_is_prefill_and_costs_the_request_time_of_its_own() -> None:
    sim = make_sim(seats=1, block_size=4)
    stop = Stop(sim)
    back = stop("back", prompt=8, answer=6, priority=Priority.BACKGROUND)
    for _ in range(3):
        step(sim)
    stop("front", prompt=4, answer=2)
    step(sim)
    assert back.phase is Phase.WAITING and back.output_len == 3
    sim.core.clear_cache()
    step(sim)
    record = step(sim)
    assert record.rows[0].phase is Phase.PREFILL and record.rows[0].tokens == 11
    run_all(sim)
    end = sim.end("back")
    assert end is not None and end.time.preempted > 0 and end.time.decode > 0
    assert end.time.total == pytest.approx(sim.clock.now)
    assert end.usage.cached_tokens == 0


def test_the_wait_for_a_seat_that_was_lost_is_no_waiting_in_line() -> None:
    sim = make_sim(seats=1)
    stop = Stop(sim)
    stop("back", answer=6, priority=Priority.BACKGROUND)
    for _ in range(3):
        step(sim)
    came = sim.clock.now
    stop("front", answer=9)
    while sim.end("front") is None:
        step(sim)
    took = sim.clock.now - came
    run_all(sim)
    end = sim.end("back")
    assert end is not None and end.time.waited == 0 and end.time.preempted >= took > 0
    assert end.time.total == pytest.approx(sim.clock.now)


def test_boarding_numbers_grow() -> None:
    sim = make_sim(seats=2)
    stop = Stop(sim)
    requests = [stop(f"r{number}", answer=2) for number in range(6)]
    run_all(sim)
    assert all(one.boarding < other.boarding for one, other in pairwise(requests))


# ---------------------------------------------------------------------------------------------------------- prompt scores


def test_a_step_scores_no_more_of_prompts_than_its_memory_is_planned_for() -> None:
    """The logits of a scored position are as wide as the vocabulary."""
    sim = make_sim(blocks=400, token_budget=512, chunk=512)
    stop = Stop(sim)
    asked = {"long": 300, "short": 90, "plain": 100}
    for name, length in asked.items():
        stop(name, prompt=length, answer=2, prompt_logprobs=None if name == "plain" else 1)
    steps = []
    while sim.core.busy:
        before = {request.id: len(request.scored) for request in sim.core.requests.values()}
        seated = dict(sim.core.requests)
        record = step(sim)
        scored = {name: len(request.scored) - before[name] for name, request in seated.items()}
        steps.append((rows(record), sum(scored.values())))
    assert max(count for _, count in steps) == MOST_SCORED
    assert steps[0][0] == {"short": MOST_SCORED * 3 // 4, "long": MOST_SCORED // 4, "plain": 100}, "the oldest has its share"
    for name in ("long", "short"):
        (scores,) = [event.prompt_logprobs for event in sim.events[name] if isinstance(event, TokensEvent) and event.prompt_logprobs]
        assert len(scores) == asked[name]
    assert len(steps) <= 2 + -(-(300 + 90) // MOST_SCORED) + 2
