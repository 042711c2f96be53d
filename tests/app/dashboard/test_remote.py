"""A remote engine's own snapshots on the page: our chats and strangers in the seats, the server's counts, and a word on the rest."""

from __future__ import annotations

import pytest

from app.dashboard import wording
from engine import Counters, EngineConfig, EngineState, ModelView, Priority, RequestHandle
from engine.remote.metrics import Told
from engine.remote.ride import Ride
from engine.remote.view import OTHERS, build_snapshot
from tests.app.dashboard.sim_engine import SimEngine


def make_ride(name: str, tokens: int) -> Ride:
    handle = RequestHandle(name, f"chat-{name}", lambda request_id: None)
    ride = Ride(handle, {}, f"Chat {name}", Priority.FOREGROUND, 1, asked=10.0)
    ride.first, ride.last, ride.tokens = (11.0, 13.0, tokens) if tokens else (None, None, 0)
    return ride


def make_snapshot(told: Told, riding: list[Ride], waiting: list[Ride]):
    model = ModelView("made-up", "elsewhere", "", "remote", 8192, 1.0, "ready")
    counters = Counters(output_tokens=sum(ride.tokens for ride in riding))
    return build_snapshot(EngineConfig(seats=4), EngineState.READY, model, told, riding, waiting, counters, 21.0, 14.0, None)


@pytest.mark.parametrize("blocks", [None, 1000, 200_000])
def test_what_its_metrics_give_is_shown_and_the_rest_is_said(make_page, blocks):
    told = Told(kind="vLLM", running=3, waiting=2, usage=0.25, blocks=blocks, block_size=16)
    engine = SimEngine(seats=4)
    page = make_page(engine)
    engine.snapshot = make_snapshot(told, [make_ride("a", 40), make_ride("b", 0)], [make_ride("c", 0)])
    page.sampler.sample()
    page._show(engine.snapshot, 14.0)
    titles = [cell.title for cell in page.bus.cells.seats if cell is not None]
    assert titles == ["Chat a", "Chat b", OTHERS]
    assert page.bus.cells.waiting == 3 and [chip.title for chip in page.bus.cells.chips] == ["Chat c"]
    words = page.heading.note.text()
    assert "what its steps do" in words
    if blocks is None:
        assert "how full its KV cache is" in words and "which block" not in words
    else:
        assert "which block is whose" in words
        assert page.cards.cards[3].figure.value == wording.count(blocks // 4)
        assert page.kvmap.legend()[1][0].blocks == blocks // 4
    page._show_below("twin")
    page.twin.show_sheet("blocks")
    assert not page.grab().isNull()
    rows = {row[0]: row[2] for row in page.twin.model.sheet.rows}
    assert sum(rows.values()) == (blocks or 0) and rows.get("in use", 0) == (blocks or 0) // 4
    page.bus.open_chat.emit("")  # the stranger's seat: nobody's chat, and no harm
