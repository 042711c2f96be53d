"""The timeline's memory says what the step records say, however long the run."""

from __future__ import annotations

import random

import numpy as np

from app.dashboard.steps import CAPACITY, DECODE, EMPTY, HELD, PREFILL, WASTED, StepGrid
from app.dashboard.twin_rows import step_sheet
from engine import Phase, Policy, SeatStep, StepRecord
from tests.app.dashboard.sim_engine import SimEngine


def expected_state(record: StepRecord, seat: int) -> int:
    for row in record.rows:
        if row.seat == seat:
            return PREFILL if row.phase is Phase.PREFILL else DECODE
    if seat in record.held:
        return HELD
    taken = {row.seat for row in record.rows} | set(record.held)
    free = record.seats_total - len(taken)
    if seat in [place for place in range(record.seats_total) if place not in taken][: max(0, free)]:
        return WASTED if record.waiting else EMPTY
    return 0


def test_every_seat_step_of_a_random_run():
    dice = random.Random(11)
    engine, grid = SimEngine(seats=4, blocks=64, block_size=8), StepGrid()
    for _ in range(400):
        if dice.random() < 0.15 and engine.snapshot.waiting < 8:
            engine.board(dice.randint(1, 90), dice.randint(1, 40))
        if dice.random() < 0.03:
            engine.configure(policy=dice.choice(list(Policy)), seats=dice.randint(2, 6))
        engine.step()
        grid.extend(engine.history(grid.last_step))
    records = engine.history()
    states, requests, _ = grid.view(grid.first, grid.end)
    assert grid.end == len(records)
    for column, record in enumerate(records):
        assert [int(state) for state in states[:, column]] == [expected_state(record, seat) for seat in range(states.shape[0])]
        for row in record.rows:
            assert requests[row.seat, column] > 0
    waste, counters = grid.waste(grid.first, grid.end), engine.snapshot.counters
    assert waste.empty == counters.idle_seat_steps
    assert waste.seat_steps == counters.idle_seat_steps + counters.seat_steps
    assert 0 < waste.wasted < waste.empty
    assert sum(row[3] for row in step_sheet(records).rows) == counters.idle_seat_steps
    assert sum(row[4] for row in step_sheet(records).rows) == waste.wasted
    assert {int(state) for state in np.unique(states)} >= {EMPTY, WASTED, PREFILL, DECODE}


def make_record(step: int, seats: int = 3) -> StepRecord:
    rows = tuple(SeatStep(seat, f"r{step // 50}-{seat}", "c", Phase.DECODE, 1) for seat in range(seats) if (step + seat) % 3)
    return StepRecord(step, step * 0.1, 0.1, seats, rows, waiting=step % 2)


def test_it_slides_and_keeps_the_newest():
    grid = StepGrid()
    for step in range(1, 3 * CAPACITY + 77):
        assert grid.extend([make_record(step), make_record(step)]) == 1
    assert (grid.end, len(grid.records), grid.last_step) == (3 * CAPACITY + 76, CAPACITY, 3 * CAPACITY + 76)
    states, _, _ = grid.view(0, grid.end)
    assert states.shape == (3, CAPACITY)
    for column in (0, 1, CAPACITY // 2, CAPACITY - 1):
        record = grid.record(grid.first + column)
        assert [int(state) for state in states[:, column]] == [expected_state(record, seat) for seat in range(3)]
        assert grid.column_of(record.step) == grid.first + column
    assert grid.record(grid.first - 1) is None and grid.column_of(1) is None
    assert len(grid.titles) < 1000


def test_stretches_are_whole_rides_and_whole_holes():
    engine, grid = SimEngine(seats=2, policy=Policy.STATIC), StepGrid()
    engine.board(20, 4, title="short")
    engine.board(20, 12, title="long")
    engine.board(20, 3, title="next")
    engine.step(17)
    grid.extend(engine.history())
    stretches = grid.stretches(grid.first, grid.end, 1)
    rides = {grid.title(run.request): run for run in stretches if run.state == DECODE}
    assert set(rides) == {"short", "long", "next"}
    hole = next(run for run in stretches if run.state == WASTED and run.seat == rides["short"].seat and run.start >= rides["short"].stop)
    assert hole.start == rides["short"].stop and hole.stop == rides["long"].stop
    assert [run for run in grid.stretches(grid.first, grid.end, 100)] == []
    assert sum(run.stop - run.start for run in grid.runs(grid.first, grid.end)) == 2 * len(grid.records)
