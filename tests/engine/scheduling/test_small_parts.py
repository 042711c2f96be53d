"""The parts that learn or tell: the chunk tuner, the growth estimate, the forecast, the time ledger, a request's derived state."""

from __future__ import annotations

import random

import pytest

from engine.kv.pool import ROOT, chain_hash
from engine.scheduling.chunk import TRUSTED, ChunkTuner, count_within, weight_of
from engine.scheduling.forecast import forecast
from engine.scheduling.growth import GrowthEstimate
from engine.scheduling.request import TimeLedger
from engine.snapshot import SnapshotBuilder
from engine.types import EngineState, FinishReason, ModelView, Phase, Policy
from tests.engine.scheduling.make import Stop, admitted, make_request, make_sim

# ------------------------------------------------------------------------------------------------------------- chunk tuner


@pytest.mark.parametrize("slope", [0.0, 0.0002, 0.003, 0.01])
def test_a_weight_holds_as_many_positions_as_it_says(slope: float) -> None:
    for start in (0, 1, 100, 5000):
        for weight in (0.0, 0.5, 1.0, 16.0, 100.0, 512.0):
            count = count_within(weight, start, slope)
            assert weight_of(start, count, slope) <= weight + 1e-6 < weight_of(start, count + 1, slope) + 2e-6


def test_a_chunk_far_into_a_prompt_is_shorter_and_takes_as_long() -> None:
    """A position 1000 tokens on costs twice as much as the first here: no step of a prompt of 8,000 passes its target by far."""
    tuner = ChunkTuner(128, target_s=0.15, most=1024)
    rnd = random.Random(2)
    computed, longest = 0, 0.0
    lengths = []
    for _ in range(3):
        tuner.observe(0.03, 0)
    while computed < 8000:
        count = max(1, count_within(tuner.chunk, computed, tuner.slope))
        pairs = count * (computed + (count - 1) / 2)
        duration = (0.03 + 0.001 * (count + pairs / 1000)) * rnd.uniform(0.95, 1.05)
        if len(lengths) == 20:
            duration *= 30  # another program took the processor once
        elif len(lengths) > TRUSTED:
            longest = max(longest, duration)
        lengths.append(count)
        tuner.observe(duration, count, pairs)
        computed += count
    assert longest < 0.2 and tuner.slope == pytest.approx(0.001, rel=0.4)
    assert lengths[-1] < lengths[5] / 3


def feed(tuner: ChunkTuner, base_s: float, token_s: float, steps: int, noise: float = 0.0) -> None:
    """Steps of a machine that takes base + token x prefill, every third without prefill."""
    rnd = random.Random(1)
    for number in range(steps):
        prefill = 0 if number % 3 == 0 else tuner.chunk
        cost = (base_s + token_s * prefill) * (1 + noise * rnd.uniform(-1, 1))
        tuner.observe(cost, prefill)


@pytest.mark.parametrize("first", [16, 64, 500])
def test_the_chunk_converges_to_what_fits_the_target(first: int) -> None:
    tuner = ChunkTuner(first, target_s=0.15, most=512)
    feed(tuner, base_s=0.05, token_s=0.001, steps=60, noise=0.1)
    assert 75 <= tuner.chunk <= 130  # (0.15 - 0.05) / 0.001
    assert tuner.prefill_rate == pytest.approx(1000, rel=0.25)
    assert tuner.decode_step_s == pytest.approx(0.05, rel=0.15)


def test_the_chunk_follows_a_machine_that_becomes_slower() -> None:
    tuner = ChunkTuner(64, target_s=0.15, most=512)
    feed(tuner, 0.05, 0.0005, 60)
    fast = tuner.chunk
    feed(tuner, 0.05, 0.002, 60)
    assert tuner.chunk < fast / 3


def test_the_chunk_stays_within_its_bounds() -> None:
    slow = ChunkTuner(64, target_s=0.1, most=512)
    feed(slow, 0.2, 0.1, 20)  # decoding alone takes longer than the target
    assert slow.chunk == ChunkTuner.SMALLEST
    fast = ChunkTuner(64, target_s=0.1, most=200)
    feed(fast, 0.001, 1e-6, 20)
    assert fast.chunk == 200


def test_a_fixed_chunk_stays_and_a_standing_clock_teaches_nothing() -> None:
    fixed = ChunkTuner(64, target_s=0.1, most=512, adapt=False)
    feed(fixed, 0.2, 0.1, 20)
    assert fixed.chunk == 64
    still = ChunkTuner(64, target_s=0.1, most=512)
    assert still.observe(0.0, 64) == 64 and still.observe(-1.0, 64) == 64
    assert still.prefill_rate is None


# --------------------------------------------------------------------------------------------------------- growth estimate


def test_growth_is_exact_where_the_length_is_known() -> None:
    growth = GrowthEstimate(block_size=4, typical=64)
    request = make_request("r", tokens=6, ignore_eos=True)
    request.limit = 15
    assert growth.remaining(request) == 9
    assert growth.blocks(request) == 4 - 2
    request.tokens += [0] * 9
    assert growth.blocks(request) == 0


def test_growth_learns_from_past_answers_and_never_exceeds_the_limit() -> None:
    growth = GrowthEstimate(block_size=4, typical=64)
    request = make_request("r", tokens=4)
    before = growth.remaining(request)
    for _ in range(60):
        growth.learn(8)
    assert growth.typical == pytest.approx(8, abs=0.5)
    assert growth.remaining(request) < before / 4
    request.limit = 5
    assert growth.remaining(request) <= 1


def test_a_minimum_is_expected_and_a_long_answer_is_expected_to_go_on() -> None:
    growth = GrowthEstimate(block_size=4, typical=8)
    asked = make_request("asked", tokens=4, min_tokens=100)
    assert growth.remaining(asked) == 100
    talks = make_request("talks", tokens=4)
    talks.tokens += [0] * 80
    assert growth.remaining(talks) > 0


def test_room_is_kept_for_less_than_is_expected_and_a_person_is_told_what_is_expected() -> None:
    growth = GrowthEstimate(block_size=4, typical=64)
    request = make_request("r", tokens=4)
    assert growth.expected(request) == 64 and growth.remaining(request) == 64 * growth.SHARE
    request.limit = 24
    assert growth.expected(request) == growth.remaining(request) == 20


# ---------------------------------------------------------------------------------------------------------------- forecast


def test_nothing_is_forecast_before_anything_is_measured() -> None:
    sim = make_sim()
    Stop(sim)("r")
    assert forecast(sim.core.scheduler, None, None) is None
    (view,) = SnapshotBuilder().build(sim.core, EngineState.READY, ModelView(), sim.clock.now).line
    assert view.expected_start_s is None


@pytest.mark.parametrize("policy", list(Policy))
def test_the_forecast_comes_close_where_lengths_are_known(policy: Policy) -> None:
    """Every answer's length is known, so the forecast must be about right: within a few steps of what then happens."""
    sim = make_sim(seats=3, policy=policy, token_budget=256)
    stop = Stop(sim)
    rnd = random.Random(4)
    for number in range(15):
        stop(f"r{number:02}", prompt=4, answer=rnd.randint(8, 24))
    for _ in range(3):
        sim.core.step()
    waiting = sim.core.scheduler.queue.in_order(64)
    now, itl = sim.clock.now, sim.core.measures.itl_s
    future = forecast(sim.core.scheduler, itl, sim.core.tuner.prefill_rate)
    assert future is not None and itl is not None
    starts = future.starts(map(sim.core.scheduler.queue.standing, waiting))
    records = []
    while sim.core.busy:
        record = sim.core.step()
        assert record is not None
        records.append(record)
    boarded = admitted(records)
    times = {record.step: record.time for record in records}
    for request, start in zip(waiting, starts, strict=True):
        really = times[boarded[request.id]] - now
        assert abs(start - really) <= 0.25 * really + 4 * itl, (request.id, start, really)
    if policy is Policy.STATIC:
        assert starts[0] == starts[1] == starts[2] < starts[3] == starts[4]  # by the busload
    else:
        assert starts == sorted(starts)


def test_the_forecast_knows_that_taken_seats_above_the_offer_are_not_filled() -> None:
    sim = make_sim(seats=3)
    stop = Stop(sim)
    for name, answer in (("a", 10), ("b", 20), ("c", 30), ("waits", 1)):
        stop(name, answer=answer)
    for _ in range(3):
        sim.core.step()
    sim.core.configure(seats=1)
    itl = sim.core.measures.itl_s
    future = forecast(sim.core.scheduler, itl, None)
    assert future is not None and itl is not None
    (start,) = future.starts(sim.core.scheduler.queue.standings)
    assert start == pytest.approx(27 * itl)


# -------------------------------------------------------------------------------------------------- ledger, derived state


def test_the_ledger_sums_to_the_whole_and_a_clock_that_jumps_back_books_nothing() -> None:
    ledger = TimeLedger(10.0)
    ledger.charge("waited", 11.0)
    ledger.charge("prefill", 10.5)
    ledger.charge("prefill", 13.0)
    ledger.token(13.0)
    ledger.charge("decode", 20.0)
    split = ledger.split()
    assert (split.waited, split.prefill, split.decode, split.preempted) == (1.0, 2.0, 7.0, 0.0)
    assert split.total == 10.0 and split.ttft == 3.0
    assert ledger.spent("decode", "decode", 21.5) == 8.5 and ledger.spent("decode", "preempted", 21.5) == 7.0


def test_a_request_goes_from_waiting_through_prefill_and_decode_to_its_end() -> None:
    request = make_request("r", tokens=3)
    seen = [request.phase]
    request.seat = 0
    seen.append(request.phase)
    request.computed = 2
    seen.append(request.phase)  # one token short of its first answer: still reading
    request.computed = 3
    request.tokens.append(9)
    seen.append(request.phase)
    request.finish = FinishReason.STOP
    seen.append(request.phase)
    assert seen == [Phase.WAITING, Phase.PREFILL, Phase.PREFILL, Phase.DECODE, Phase.FINISHED]
    assert (request.known, request.output, request.output_len, request.remaining) == (4, [9], 1, 1)


def test_addresses_are_extended_as_the_answer_grows() -> None:
    request = make_request("r", tokens=4)
    first = request.hashes(2, 2)
    request.tokens += [1, 2]
    assert request.hashes(3, 2)[:2] == first
    assert request.hashes(3, 2)[2] == chain_hash(first[1], [1, 2])
    assert first[0] == chain_hash(ROOT, request.tokens[:2])
    assert request.hashes(1, 2) == first[:1]
