"""A remote engine's own snapshots on the page: our chats and strangers in the seats, the server's counts, and a word on the rest."""

from __future__ import annotations

import pytest

from app.dashboard import EngineStrip, wording
from app.theme import Theme
from engine import Counters, EngineConfig, EngineState, ModelView, Priority, RequestHandle
from engine.remote.metrics import Told, read_metrics
from engine.remote.ride import Ride
from engine.remote.view import OTHERS, build_snapshot
from tests.app.dashboard.ink_spy import read, spy_on
from tests.app.dashboard.sim_engine import SimEngine


def make_ride(name: str, tokens: int) -> Ride:
    handle = RequestHandle(name, f"chat-{name}", lambda request_id: None)
    ride = Ride(handle, {}, f"Chat {name}", Priority.FOREGROUND, 1, asked=10.0)
    ride.first, ride.last, ride.tokens = (11.0, 13.0, tokens) if tokens else (None, None, 0)
    return ride


# What the three servers say at /metrics while three requests run and two wait, as far as each says it.
VLLM = """vllm:num_requests_running{engine="0"} 3.0
vllm:num_requests_waiting{engine="0"} 2.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1.0
"""
SGLANG = """sglang:num_running_reqs{model_name="m"} 3.0
sglang:num_queue_reqs{model_name="m"} 2.0
sglang:token_usage{model_name="m"} 0.25
sglang:max_total_num_tokens{model_name="m"} 16000.0
sglang:gen_throughput{model_name="m"} 55.5
sglang:max_running_requests{model_name="m"} 8.0
"""
LLAMACPP = """llamacpp:requests_processing 3
llamacpp:requests_deferred 2
llamacpp:tokens_predicted_total 400
"""


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


@pytest.mark.parametrize(
    ("metrics", "seats", "speed", "blocks", "missing"),
    [
        (VLLM, 4, "21.0", ("250", "of 1,000", "0 cached, 750 free"), "which block is whose"),
        (SGLANG, 8, "55.5", ("4,000", "of 16,000", "0 cached, 12,000 free"), "which block is whose"),
        (LLAMACPP, 4, "21.0", (wording.DASH, "not told"), "how full its KV cache is"),
    ],
    ids=["vLLM", "SGLang", "llama.cpp"],
)
def test_every_number_is_the_servers_and_none_is_made_up(make_page, monkeypatch, metrics, seats, speed, blocks, missing):
    written = spy_on(monkeypatch)
    engine = SimEngine(seats=4)
    page = make_page(engine, height=1600)
    engine.snapshot = make_snapshot(read_metrics(metrics), [make_ride("a", 40), make_ride("b", 0)], [make_ride("c", 0)])
    page.sampler.sample()
    found, _ = read(written, page.bus)
    riders = [(name, words) for name, _, words in found.parts]
    assert [words[0] for name, words in riders if name != "paint_chip"] == [str(seat + 1) for seat in range(seats)]
    lines = [words[-1] for name, words in riders if name == "paint_seat"]
    assert lines[0] in ("40 tokens · 19.5 tok/s", "40 · 19.5 tok/s")
    assert lines[1:] == ["reading the prompt", "how far is not told"]
    assert [words[0] for name, words in riders if name == "paint_chip"] == ["1"] and "3" in found.words
    assert tuple(read(written, page.cards.cards[0])[0].words) == ("Speed", speed, "tok/s", "3 riding")
    assert tuple(read(written, page.cards.cards[1])[0].words)[1:] == (wording.DASH, "p50", "not told")
    assert tuple(read(written, page.cards.cards[2])[0].words)[1:] == ("3", f"of {seats}", "3 waiting")
    assert tuple(read(written, page.cards.cards[3])[0].words)[1:] == blocks
    note = page.heading.note.text()
    assert missing in note and "what its steps do" in note and "how soon its first tokens come" in note
    assert page.kv_panel.isVisible() == (len(blocks) == 3) and not page.timeline_panel.isVisible()
    for cell in page.bus.cells.seats:
        assert cell is None or not any(made_up in cell.tip for made_up in ("step 0", "0 blocks", "0 left", "at most 0", "0 of 0")), cell.tip
    strip = EngineStrip(engine, Theme.dark())
    strip.resize(1200, 26)
    strip.show()
    assert any(word.startswith("KV") for word in read(written, strip)[0].words) == (len(blocks) == 3)
    strip.hide()
    strip.deleteLater()
