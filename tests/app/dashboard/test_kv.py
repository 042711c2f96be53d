"""The block map: every cell is its block's owner, counted and painted."""

from __future__ import annotations

import random

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt

from app.dashboard.kv_cells import LEVELS, kv_cells
from app.dashboard.kvmap import KvMap
from app.dashboard.twin_rows import block_sheet
from app.theme import Theme
from engine import OWNER_CACHED, OWNER_FREE, OWNER_SEAT0, OWNER_SHARED, KvView
from tests.app.dashboard.sim_engine import SimEngine


def make_kv(owners: np.ndarray) -> KvView:
    free, cached = int((owners == OWNER_FREE).sum()), int((owners == OWNER_CACHED).sum())
    return KvView(len(owners), free, cached, len(owners) - free - cached, 16, owners.astype(np.uint16).tobytes())


def test_every_block_of_a_random_run():
    dice = random.Random(3)
    engine = SimEngine(seats=4, blocks=48, block_size=8)
    shared = False
    for _ in range(200):
        if dice.random() < 0.2 and engine.snapshot.waiting < 6:
            engine.board(dice.randint(1, 40), dice.randint(1, 40))
        engine.step()
        kv, cells = engine.snapshot.kv, kv_cells(engine.snapshot.kv)
        assert cells.codes.tolist() == list(memoryview(kv.owners).cast("H"))
        assert (cells.count(OWNER_FREE), cells.count(OWNER_CACHED)) == (kv.free, kv.cached)
        assert int(cells.counts[OWNER_SHARED:].sum()) == kv.referenced
        assert sum(row[2] for row in block_sheet(engine.snapshot, cells).rows) == kv.total
        shared |= cells.count(OWNER_SHARED) > 0
    assert shared


@pytest.mark.parametrize("blocks", [4097, 10_000, 65_536])
def test_groups_tell_the_owner_that_holds_most_and_how_full_they_are(blocks):
    owners = np.random.default_rng(1).choice([0, 0, 0, 1, 2, 3, 4, 9], blocks)
    owners[: blocks // 2] = 0
    cells = kv_cells(make_kv(owners))
    assert cells.cells <= 4096 and cells.cells * cells.group >= blocks
    for cell in range(0, cells.cells, 97):
        part = owners[cell * cells.group : (cell + 1) * cells.group]
        assert cells.parts(cell) == {code: int((part == code).sum()) for code in np.unique(part)}
        held = part[part >= OWNER_SHARED]
        if len(held):
            assert cells.codes[cell] in {code for code in np.unique(held) if (held == code).sum() == np.bincount(held).max()}
            assert cells.levels[cell] == max(1, -(-len(held) * LEVELS // cells.group))
        else:
            assert cells.codes[cell] == (OWNER_CACHED if (part == OWNER_CACHED).any() else OWNER_FREE)


@pytest.fixture
def kvmap(dressed, qtbot):
    view = KvMap(Theme.dark())
    qtbot.addWidget(view)
    view.resize(800, 200)
    view.show()
    return view


def painted_codes(view: KvMap) -> list[int]:
    """Read the owners back from the pixels, by each cell's colour at a spot that no sign covers."""
    image, side = view.image(), view._bank.pitch
    known = {}
    for code in range(len(view.cells.counts)):
        known.setdefault(int(view._bank.tiles[code * LEVELS + LEVELS - 1][side // 3, 1]), code)
    found = []
    for cell in range(view.cells.cells):
        row, column = divmod(cell, view._columns)
        found.append(known[image.pixel(column * side + 1, row * side + side // 3)])
    return found


def test_what_is_painted_is_the_snapshot(kvmap):
    engine = SimEngine(seats=6, blocks=96, block_size=8)
    engine.load(12, 4, long=40)
    for _ in range(60):
        engine.step()
        kvmap.show_snapshot(engine.snapshot)
        kvmap.repaint()
        assert painted_codes(kvmap) == list(memoryview(engine.snapshot.kv.owners).cast("H"))


def test_patched_and_whole_pictures_are_the_same(kvmap):
    engine = SimEngine(seats=6, blocks=300, block_size=8)
    engine.load(12, 4)
    for step in range(50):
        engine.step()
        if step % 7 == 0:
            kvmap.mark_seat(step % 3 - 1)
        kvmap.show_snapshot(engine.snapshot)
        patched = kvmap.image().copy()
        kvmap._pixels = None
        assert kvmap.image() == patched


def test_pointing_names_the_owner_and_a_click_opens_the_chat(kvmap, qtbot):
    engine = SimEngine(seats=4, blocks=96, block_size=8)
    engine.load(3, 2)
    engine.step(5)
    kvmap.show_snapshot(engine.snapshot)
    cell = int(np.flatnonzero(kvmap.cells.codes == OWNER_SEAT0)[0])
    row, column = divmod(cell, kvmap._columns)
    point = QPoint(int((column + 0.5) * kvmap.pitch), int((row + 0.5) * kvmap.pitch))
    assert kvmap.cell_at(point) == cell
    assert f"Block {cell + 1}: seat 1" in kvmap.words_for(cell) and engine.snapshot.seats[0].title in kvmap.words_for(cell)
    hovered, opened = [], []
    kvmap.seat_hovered.connect(hovered.append)
    kvmap.open_chat.connect(opened.append)
    qtbot.mouseMove(kvmap, point)
    qtbot.mouseClick(kvmap, Qt.MouseButton.LeftButton, pos=point)
    assert hovered[-1] == 0 and opened == [engine.snapshot.seats[0].chat_id]
    assert kvmap.cell_at(QPoint(kvmap.width() + 5, 2)) == -1


def test_the_keyboard_walks_over_the_cells(kvmap, qtbot):
    engine = SimEngine(seats=4, blocks=96, block_size=8)
    engine.load(3, 2)
    engine.step(5)
    kvmap.show_snapshot(engine.snapshot)
    opened = []
    kvmap.open_chat.connect(opened.append)
    kvmap.setFocus()
    first = int(np.flatnonzero(kvmap.cells.codes >= OWNER_SEAT0)[0])
    for _ in range(first + 1):
        qtbot.keyClick(kvmap, Qt.Key.Key_Right)
    assert kvmap.accessibleDescription() == kvmap.words_for(first)
    qtbot.keyClick(kvmap, Qt.Key.Key_Return)
    assert opened == [engine.snapshot.seats[int(kvmap.cells.codes[first]) - OWNER_SEAT0].chat_id]


def test_sixty_five_thousand_blocks_paint(kvmap):
    owners = np.random.default_rng(5).integers(0, 40, 65_536)
    engine = SimEngine(seats=48)
    kvmap.kv, kvmap.seats = make_kv(owners), engine.snapshot.seats
    kvmap.cells = kv_cells(kvmap.kv)
    kvmap._fit()
    kvmap.repaint()
    assert kvmap.cells.group == 16 and kvmap.height() < 260
    assert len({kvmap.image().pixel(x, 3) for x in range(0, 700, 2)}) > 10
