"""What the bus shows is what the snapshot says, seat by seat and place by place."""

from __future__ import annotations

import random
from dataclasses import replace

from app.dashboard import wording
from app.dashboard.bus_layout import bus_layout
from app.dashboard.capsule import fitting
from app.dashboard.riders import ChipCell, bus_cells
from engine import Phase, Policy, Priority, QueueView, WaitReason
from tests.app.dashboard.sim_engine import SimEngine


def test_every_seat_and_place_of_a_random_run():
    dice = random.Random(7)
    engine = SimEngine(seats=4, blocks=40, block_size=8)
    engine.sim.core.scheduler.growth.typical = 2.0  # answers grow longer than expected: somebody has to step aside
    for _ in range(4):
        engine.board(4, 140)
    seen = set()
    for _ in range(400):
        if dice.random() < 0.15 and engine.snapshot.waiting < 12:
            engine.board(dice.randint(1, 150), dice.randint(1, 60))
        if dice.random() < 0.02:
            engine.configure(policy=dice.choice(list(Policy)), seats=dice.randint(2, 6))
        engine.step()
        snapshot, cells = engine.snapshot, bus_cells(engine.snapshot)
        assert len(cells.seats) == len(snapshot.seats) and cells.waiting == snapshot.waiting
        assert cells.taken == snapshot.seated
        for index, (view, cell) in enumerate(zip(snapshot.seats, cells.seats, strict=True)):
            assert (view is None) == (cell is None)
            if view is None or cell is None:
                continue
            seen.add(view.phase)
            assert (cell.seat, cell.number, cell.request_id, cell.chat_id) == (index, index + 1, view.request_id, view.chat_id)
            assert cell.title == view.title and cell.reading == (view.phase is Phase.PREFILL)
            assert cell.level == view.computed_tokens / (view.prompt_tokens + view.max_output_tokens)
            line = cell.lines[0]
            if cell.reading:
                assert str(view.computed_tokens) in line and str(view.known_tokens) in line
            else:
                assert line.startswith(str(view.output_tokens)) and str(view.max_output_tokens - view.output_tokens) in line
            assert bool(cell.marks) == bool(view.preemptions)
        for view, chip in zip(snapshot.queue, cells.chips, strict=True):
            assert (chip.place, chip.request_id, chip.title) == (view.place, view.request_id, view.title)
            assert chip.why == view.detail and chip.when == wording.expected(view.expected_start_s)
    assert seen == {Phase.PREFILL, Phase.DECODE}
    assert engine.snapshot.counters.preemptions > 0


def test_words_are_made_for_people():
    assert [wording.seconds(value) for value in (None, 0.0421, 0.5, 1.25, 12.2, 75.0, 7260.0)] == [
        wording.DASH,
        "42 ms",
        "0.50 s",
        "1.2 s",
        "12 s",
        "1 min 15 s",
        "2 h 01 min",
    ]
    assert (wording.tokens(1), wording.tokens(2), wording.count(12345), wording.rate(99.96)) == ("1 token", "2 tokens", "12,345", "100")
    assert (wording.expected(None), wording.expected(0.1), wording.expected(3.4)) == ("", "soon", "in ~3 s")
    assert wording.size(3 << 30) == "3.0 GB"
    assert wording.setting("policy static, seats 4") == "Tour bus, seats 4" and wording.setting("policy in_flight") == "City bus"


def test_nobody_boards_soon_while_the_engine_is_paused():
    waits = QueueView(1, "r", "c", "Chat", Priority.BACKGROUND, WaitReason.SEATS, "2 of 2 seats are taken", 9, 1, 0.5, 0.1)
    assert ChipCell(waits).when == "soon"
    assert ChipCell(replace(waits, reason=WaitReason.PAUSED)).marks == ""


def test_the_longest_wording_that_fits_is_chosen(dressed):
    lines = ("31 tokens, 35 left · 11.4 tok/s", "31, 35 left", "31")
    assert fitting(lines, 1000, 12) == lines[0]
    assert fitting(lines, 80, 12) == lines[1]
    assert fitting(lines, 1, 12) not in lines


def test_the_layout_keeps_everyone_inside_and_apart():
    for width in (300, 480, 560, 640, 900, 1160):
        for seats in (1, 3, 8, 16, 17, 32, 33, 64):
            for waiting in (0, 1, 3, 40):
                layout = bus_layout(width, seats, waiting)
                places = [*layout.seats, *layout.chips]
                assert len(layout.seats) == seats and len(layout.chips) <= waiting
                for place in places:
                    assert place.left() >= 0 and place.right() <= width + 1 and place.bottom() <= layout.height
                for place in layout.seats:
                    assert layout.body.contains(place.center())
                assert not any(a.intersects(b) for index, a in enumerate(places) for b in places[index + 1 :])
                assert waiting == 0 or layout.chips
