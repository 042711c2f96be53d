"""What is drawn is what the engine published: every seat, queue place, block, step, decision and counter, in all views.

The pictures are read back (`ink_spy`) and compared with the snapshot itself, by words and figures made here.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QPoint, QRect
from PySide6.QtGui import QImage

from app.dashboard import DashboardPage, EngineStrip, wording
from app.dashboard.capsule import body_color
from app.dashboard.ink import blend
from app.dashboard.kv_cells import LEVELS
from app.dashboard.stamps import Stamps
from app.dashboard.steps import ABSENT, EMPTY, WASTED
from app.dashboard.timeline_frame import GUTTER, rows_top
from app.theme import Theme
from engine import OWNER_CACHED, OWNER_FREE, OWNER_SEAT0, OWNER_SHARED, Phase, Policy, Priority, Snapshot
from tests.app.dashboard.ink_spy import Written, color_at, on_screen, read, spy_on
from tests.app.dashboard.sim_engine import SimEngine
from tests.app.dashboard.test_steps import expected_state

SIGNS = {Priority.FOREGROUND: "↑", Priority.BACKGROUND: "", Priority.API: "API", Priority.IDLE: "↓"}
SHEETS = ("seats", "queue", "blocks", "steps", "figures")


def begins(cut: str, whole: str) -> bool:
    """A text, or as much of it as there was room for."""
    return cut == whole or (cut.endswith("…") and whole.startswith(cut[:-1].rstrip()))


def in_words(seconds: float) -> str:
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.{2 if seconds < 0.995 else 1 if seconds < 9.95 else 0}f} s"


class Run:
    """A random load on the engine of the stage, with all that can be steered."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.engine = SimEngine(seats=4, blocks=44, block_size=8)
        self.engine.sim.core.scheduler.growth.typical = 2.0  # answers grow longer than expected: somebody has to step aside
        self.number = 0

    def turn(self) -> None:
        dice, engine = self.dice, self.engine
        if dice.random() < 0.3 and engine.snapshot.waiting < 8:
            self.number += 1
            engine.board(dice.randint(1, 150), dice.randint(3, 70), title=f"Chat {self.number}", priority=dice.choice(list(Priority)))
        if dice.random() < 0.04:
            engine.configure(policy=dice.choice(list(Policy)))
        if dice.random() < 0.04:
            engine.configure(seats=dice.randint(2, 6))
        if dice.random() < 0.04 and engine.snapshot.queue:
            engine.set_priority(engine.snapshot.queue[-1].request_id, Priority.FOREGROUND)
        if dice.random() < 0.04 and engine.snapshot.seated:
            engine.cancel(dice.choice([view.request_id for view in engine.snapshot.seats if view is not None]))
        engine.step()


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Written]:
    return spy_on(monkeypatch)


@pytest.mark.parametrize("seed", [3, 8])
def test_every_view_of_a_random_run(make_page, clock, written, seed):
    run = Run(seed)
    engine = run.engine
    page = make_page(engine, 1200, 2000)
    strip = EngineStrip(engine, Theme.dark())
    strip.resize(1200, 26)
    strip.show()
    seen: Counter[str] = Counter()
    try:
        for turn in range(150):
            run.turn()
            clock.now += 1.0
            page.sampler.sample()
            strip.sampler.sample()
            if turn % 5 and engine.snapshot.counters.preemptions in (0, seen["asides"]):
                continue
            snapshot = engine.snapshot
            seen["asides"] = snapshot.counters.preemptions
            QCoreApplication.processEvents()
            assert_bus(page, snapshot, written, seen)
            assert_cards(page, snapshot, written)
            assert_blocks(page, snapshot, written)
            assert_timeline(page, engine, written)
            assert_log(page, engine)
            assert_tables(page, engine)
            assert_strip(strip, snapshot, written)
    finally:
        strip.hide()
        strip.deleteLater()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert seen["reading"] and seen["answering"] and seen["empty"] and seen["waiting"] and seen["asides"]


def test_what_is_on_the_screen_is_what_would_be_painted_anew(make_page, clock):
    """Only what changed is painted, from what was kept: no place is forgotten, and nothing kept is stale."""
    run = Run(5)
    page = make_page(run.engine, 1000, 1900)
    for _ in range(3):
        QCoreApplication.processEvents()
    looked = 0
    for turn in range(90):
        run.turn()
        clock.now += 1.0
        page.sampler.sample()
        for _ in range(2):
            QCoreApplication.processEvents()
        if turn % 6 == 0:
            shown = on_screen(page)
            assert not shown.isNull()
            anew = painted_anew(page).convertToFormat(shown.format())
            differing = [
                (x, y) for y in range(0, anew.height(), 3) for x in range(0, anew.width(), 3) if anew.pixel(x, y) != shown.pixel(x, y)
            ]
            assert not differing, (turn, differing[:5])
            looked += 1
    assert looked == 15


def test_a_chat_that_is_renamed_is_so_in_every_view(make_page, clock):
    engine = SimEngine(seats=3)
    for number in range(3):
        engine.board(30, 400, title=f"Chat {number}")
    engine.step(12)
    page = make_page(engine, 1000, 1900)
    for title in ("Alps", "Beaches"):
        snapshot = engine.snapshot
        seats = tuple(view._replace(title=title) if view is not None and view.seat == 1 else view for view in snapshot.seats)
        engine.snapshot = replace(snapshot, seats=seats)
        clock.now += 1.0
        page.sampler.sample()
        for _ in range(3):
            QCoreApplication.processEvents()
        shown = on_screen(page)
        anew = painted_anew(page).convertToFormat(shown.format())
        for view in (page.bus, page.kvmap):
            at = QRect(view.mapTo(page, QPoint(0, 0)), view.size())
            assert shown.copy(at) == anew.copy(at), (title, view)
        assert title in page.kvmap.legend()[0][1].title


KEPT = ("_stamps", "_bank", "_pixels", "_index", "_sheet", "_chart", "_chart_key")  # pictures that a view keeps


def painted_anew(page: DashboardPage) -> QImage:
    """The page painted without anything that was kept; what was kept is there again afterwards, and grows as stale as it may."""
    views = (page.bus, page.kvmap, page.timeline, *page.cards.cards)
    kept = [(view, name, view.__dict__[name]) for view in views for name in KEPT if name in view.__dict__]
    for view in views:
        view._stamps = Stamps()
        view.theme_changed()
    image = page.grab().toImage()
    for view, name, value in kept:
        setattr(view, name, value)
    return image


def assert_bus(page: DashboardPage, snapshot: Snapshot, written: list[Written], seen: Counter[str]) -> None:
    found, image = read(written, page.bus)
    ground, ink = body_color(page.bus.ink), page.bus.ink
    assert len(page.bus.plan.seats) == len(snapshot.seats)
    for number, (rect, view) in enumerate(zip(page.bus.plan.seats, snapshot.seats, strict=True), start=1):
        kind, words = found.part(rect)
        if view is None:
            assert (kind, words) == ("paint_empty_seat", [str(number)])
            seen["empty"] += 1
            continue
        assert kind == "paint_seat" and words[0] == str(number)
        marks = "  ".join(sign for sign in (f"↻ {view.preemptions}" if view.preemptions else "", SIGNS[view.priority]) if sign)
        assert (marks in words) if marks else not {"↑", "↓", "API"} & set(words)
        assert any(begins(word, view.title) for word in words[1:] if word != marks)
        line = words[-1]
        if view.phase is Phase.PREFILL:
            seen["reading"] += 1
            assert f"{view.computed_tokens} of {view.known_tokens}" in line
            continue
        seen["answering"] += 1
        assert line.split(",")[0].split()[0] == str(view.output_tokens)
        assert f"{view.max_output_tokens - view.output_tokens} left" in line
        assert not view.tok_s or f"{view.tok_s:,.1f}" in line
        full, bare = (blend(ink.seat(number - 1), ground, share) for share in (0.36, 0.13))
        edge = rect.x() + rect.width() * view.computed_tokens / (view.prompt_tokens + view.max_output_tokens)
        y = rect.bottom() - 5
        if rect.x() + 60 < edge < rect.right() - 24:
            assert (color_at(image, edge - 3, y), color_at(image, edge + 3, y)) == (full, bare)
    shown = snapshot.queue[: len(page.bus.plan.chips)]
    for rect, view in zip(page.bus.plan.chips, shown, strict=True):
        kind, words = found.part(rect)
        when = "" if view.expected_start_s is None else "soon" if view.expected_start_s < 0.75 else f"in ~{view.expected_start_s:.0f} s"
        marks = " · ".join(sign for sign in (SIGNS[view.priority], when) if sign)
        assert kind == "paint_chip" and words[0] == str(view.place) and (not marks or marks in words)
        assert begins(words[-1], view.title) and any(begins(word, view.detail) for word in words)
        seen["waiting"] += 1
    more = snapshot.waiting - len(shown)
    assert (f"and {more} more" in found.words) if more else not any("more" in word for word in found.words if word.startswith("and "))
    assert str(snapshot.waiting) in found.words if snapshot.waiting else "nobody waits" in found.words
    assert ("Tour bus" if snapshot.policy is Policy.STATIC else "City bus") in found.words


def assert_cards(page: DashboardPage, snapshot: Snapshot, written: list[Written]) -> None:
    rates, kv = snapshot.rates, snapshot.kv
    riding = f"{rates.batch} riding, {in_words(rates.step_s)} a step" if rates.batch else "idle"
    measured = rates.ttft_p50_s > 0
    expected = (
        ("Speed", f"{rates.tok_s:.1f}", "tok/s", riding),
        (
            "Time to first token",
            in_words(rates.ttft_p50_s) if measured else "–",
            "p50",
            f"p95 {in_words(rates.ttft_p95_s)}" if measured else "nothing measured yet",
        ),
        (
            "Seats taken",
            str(sum(view is not None for view in snapshot.seats)),
            f"of {len(snapshot.seats)}",
            f"{snapshot.waiting} waiting" if snapshot.waiting else "no one waiting",
        ),
        ("KV blocks in use", str(kv.referenced), f"of {kv.total}", f"{kv.cached} cached, {kv.free} free"),
    )
    for card, words in zip(page.cards.cards, expected, strict=True):
        assert tuple(read(written, card)[0].words) == words
    last = [card.rings[0].values[-1] for card in page.cards.cards]
    assert last == [rates.tok_s, rates.ttft_p50_s if measured else None, float(snapshot.seated), float(kv.referenced)]


def assert_blocks(page: DashboardPage, snapshot: Snapshot, written: list[Written]) -> None:
    found, image = read(written, page.kvmap)
    owners = list(memoryview(snapshot.kv.owners).cast("H"))
    tally, bank, side = Counter(owners), page.kvmap._bank, page.kvmap._bank.pitch
    for block, owner in enumerate(owners):
        row, column = divmod(block, page.kvmap._columns)
        tile = int(bank.tiles[owner * LEVELS + LEVELS - 1][side // 3, 1])
        assert image.pixel(column * side + 1, row * side + side // 3) == tile, block
    for owner, word in ((OWNER_SHARED, "shared"), (OWNER_CACHED, "cached"), (OWNER_FREE, "free")):
        assert f"{word} {tally[owner]}" in found.words
    for seat, view in enumerate(snapshot.seats):
        blocks = tally[OWNER_SEAT0 + seat]
        if blocks:
            at = found.words.index(str(seat + 1))  # the number on the swatch, then the words
            title, _, count = found.words[at + 1].rpartition(" ")
            assert count == str(blocks) and (not title or begins(title, view.title if view is not None else ""))
    assert sum(tally.values()) == snapshot.kv.total


def assert_timeline(page: DashboardPage, engine: SimEngine, written: list[Written]) -> None:
    found, image = read(written, page.timeline)
    timeline, ink = page.timeline, page.timeline.ink
    start, stop = timeline.span
    top = rows_top(timeline.width())
    records = engine.history()[start:stop]
    hole, lost = blend(ink.text, ink.surface, 0.045), blend(ink.danger, ink.surface, 0.16)
    empty = wasted = total = 0
    for index, record in enumerate(records):
        x = GUTTER + (index + 0.25) * timeline.unit
        for seat in range(len(engine.snapshot.seats)):
            state = expected_state(record, seat)
            color = color_at(image, x, top + seat * timeline.row + 3)  # above the letters
            if state in (EMPTY, WASTED, ABSENT):
                assert color == {EMPTY: hole, WASTED: lost, ABSENT: ink.surface}[state], (record.step, seat)
            else:
                assert color not in (hole, lost), (record.step, seat)
            total, empty, wasted = total + (state != ABSENT), empty + (state in (EMPTY, WASTED)), wasted + (state == WASTED)
    if total and timeline.grid.view(start, stop)[0].shape[0] == len(engine.snapshot.seats):
        shares = f"{100 * empty / total:.0f} %", f"{100 * wasted / total:.0f} %"
        said = f"{shares[0]} empty, {shares[1]} while somebody waited" if wasted else f"{shares[0]} of the seat-steps empty"
        assert said in found.words
    for box, words in found.places:
        if words.startswith("step "):
            at = round((box.x() - 4 - GUTTER) / timeline.unit)
            assert records[at].step == int(words.removeprefix("step ").replace(",", ""))
    titles = {decision.title for record in engine.history() for decision in record.decisions}
    for box, words in found.places:
        if box.y() >= top and box.height() == timeline.row and not words.startswith("empty,") and not begins(words, "empty"):
            seat = round((box.y() - top) / timeline.row)
            column = int((box.x() - 6 - GUTTER) / timeline.unit + 0.5)
            rider = next(row.request_id for row in records[column].rows if row.seat == seat)
            title = next(d.title for r in engine.history() for d in r.decisions if d.request_id == rider)
            assert begins(words, title) and title in titles


def assert_log(page: DashboardPage, engine: SimEngine) -> None:
    model = page.log.model
    decisions = [decision for record in engine.history() for decision in record.decisions]
    assert model.rowCount() == len(decisions)
    for row, decision in list(enumerate(decisions))[-20:]:
        cells = [model.data(model.index(row, column)) for column in range(5)]
        assert cells[0] == str(decision.step) and cells[2] == ("" if decision.seat is None else str(decision.seat + 1))
        assert cells[3:] == [decision.title, wording.setting(decision.detail)]


def assert_tables(page: DashboardPage, engine: SimEngine) -> None:
    snapshot = engine.snapshot
    page._show_below("twin")
    cells: dict[str, list[list[str]]] = {}
    for name in SHEETS:
        page.twin.show_sheet(name)
        model = page.twin.model
        cells[name] = [[model.data(model.index(r, c)) for c in range(model.columnCount())] for r in range(model.rowCount())]
    page._show_below("log")
    for number, (row, view) in enumerate(zip(cells["seats"], snapshot.seats, strict=True), start=1):
        assert row[0] == str(number) and (row[1] == "empty" if view is None else row[1] == view.title)
        if view is not None:
            counted = (view.prompt_tokens, view.computed_tokens, view.output_tokens, view.max_output_tokens - view.output_tokens)
            assert row[3:8] == [str(value) for value in (*counted, view.blocks)]
            assert row[8] == f"{view.tok_s:.3f}" and row[10:] == [str(v) for v in (view.cached_tokens, view.preemptions, view.boarded_step)]
    assert [(row[0], row[1], row[5], row[6]) for row in cells["queue"]] == [
        (str(view.place), view.title, str(view.prompt_tokens), str(view.needed_blocks)) for view in snapshot.queue
    ]
    tally = Counter(memoryview(snapshot.kv.owners).cast("H"))
    assert sorted(int(row[2]) for row in cells["blocks"] if row[2] != "0") == sorted(tally.values())
    newest = cells["steps"][0]
    record = engine.history()[-1]
    assert newest[:3] == [str(record.step), str(len(record.rows)), str(len(record.held))] and newest[5] == str(record.waiting)
    figures = {row[0]: row[1] for row in cells["figures"]}
    for part in ("counters", "rates", "kv"):
        for name, shown in ((key, value) for key, value in figures.items() if key.startswith(f"{part}.")):
            value = getattr(getattr(snapshot, part), name.split(".")[1])
            assert shown == (f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"), name
    assert figures["waiting"] == str(snapshot.waiting) and figures["step"] == str(snapshot.step)


def assert_strip(strip: EngineStrip, snapshot: Snapshot, written: list[Written]) -> None:
    found, image = read(written, strip)
    taken = [str(seat + 1) for seat, view in enumerate(snapshot.seats) if view is not None]
    assert [word for word in found.words if word.isdigit()] == taken
    for seat, view in enumerate(snapshot.seats):
        if view is not None and view.phase is Phase.DECODE:
            left = 12 + seat * 30
            assert color_at(image, left + 2, 13) == color_at(image, left + 23, 13) == strip.ink.seat(seat)
            assert strip.ink.seat(seat) not in (color_at(image, left - 2, 13), color_at(image, left + 27, 13))
    level = snapshot.kv.referenced / snapshot.kv.total
    assert f"KV {100 * level:.0f} %" in found.words
    assert f"{snapshot.rates.tok_s:.1f} tok/s" in found.words and f"batch {snapshot.rates.batch}" in found.words
    assert any(word == f"{snapshot.waiting} waiting" for word in found.words) == bool(snapshot.waiting)
