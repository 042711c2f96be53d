"""/metrics as a scraper reads it."""

from __future__ import annotations

import re
import time

from engine import Engine
from engine.server.metrics import Histogram, Metrics
from tests.engine.server.made_up_server import Client

LINE = re.compile(r'^(omnibus_[a-z0-9_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*\})? (\+Inf|-?[0-9.e+-]+)$')


def parse(text: str) -> dict[str, float]:
    """Value by name with labels. Every line must be well formed, and every sample have a type."""
    assert text.endswith("\n")
    types: dict[str, str] = {}
    values: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types
            types[name] = kind
        elif not line.startswith("# HELP "):
            match = LINE.match(line)
            assert match, line
            name = match[1]
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            assert types.get(name) in ("gauge", "counter") or types.get(base) == "histogram", line
            assert match[1] + (match[2] or "") not in values
            values[name + (match[2] or "")] = float(match[3])
    return values


def test_what_was_answered_is_counted(client: Client, engine: Engine) -> None:
    for _ in range(3):
        assert client.chat("hello", max_tokens=12).status == 200
    client.post("/v1/chat/completions", messages=5)
    model = 'model_name="first"'
    for _ in range(1000):  # an answer's last token may reach its client before the step that made it is published
        got = client.get("/metrics")
        values = parse(got.body.decode())
        if values.get(f"omnibus_generation_tokens_total{{{model}}}", 0) >= 36:
            break
        time.sleep(0.01)
    assert got.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert values[f'omnibus_request_success_total{{{model},finished_reason="length"}}'] == 3
    assert values[f"omnibus_generation_tokens_total{{{model}}}"] == 36
    assert values[f"omnibus_request_generation_tokens_sum{{{model}}}"] == 36
    assert values[f'omnibus_request_generation_tokens_bucket{{{model},le="10"}}'] == 0
    assert values[f'omnibus_request_generation_tokens_bucket{{{model},le="20"}}'] == 3
    assert values[f'omnibus_e2e_request_latency_seconds_bucket{{{model},le="+Inf"}}'] == 3
    assert values[f"omnibus_inter_token_latency_seconds_count{{{model}}}"] == 33
    assert values[f"omnibus_spec_decode_num_draft_tokens_total{{{model}}}"] == 0
    assert values[f"omnibus_time_to_first_token_seconds_count{{{model}}}"] == 3
    assert values[f"omnibus_prefix_cache_hits_total{{{model}}}"] == engine.snapshot.counters.cached_tokens > 0
    assert values[f"omnibus_prompt_tokens_total{{{model}}}"] == 3 * len("user:hello;")
    assert values['omnibus_http_responses_total{status="400"}'] == 1
    assert values[f"omnibus_num_seats{{{model}}}"] == 4
    assert values['omnibus_cache_config_info{block_size="4",num_gpu_blocks="4096"}'] == 1


def test_a_histogram_is_cumulative() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.add(value)
    assert list(histogram.lines("h", 'a="b"')) == [
        'h_bucket{a="b",le="1"} 2',
        'h_bucket{a="b",le="2"} 3',
        'h_bucket{a="b",le="+Inf"} 4',
        'h_sum{a="b"} 12',
        'h_count{a="b"} 4',
    ]


def test_a_models_name_cannot_break_out(engine: Engine) -> None:
    text = Metrics().text([(engine.snapshot, 'a"} 1\nomnibus_evil{x="\\')])
    assert parse(text) and not [line for line in text.splitlines() if line.startswith("omnibus_evil")]
