"""/metrics: the engine in Prometheus' text format.

Names and meanings follow vLLM's, with our prefix, so that dashboards and load generators made for it can be pointed here. Gauges and
counters are the whole engine's, tabs included; histograms are of the requests that came through this server.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

from engine.types import FinishedEvent, FinishReason, Snapshot
from engine.version import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "omnibus_"
SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
REASONS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length", FinishReason.CANCELLED: "abort", FinishReason.ERROR: "error"}

Figures = dict[str, tuple[float, str]]

HISTOGRAMS: dict[str, tuple[str, tuple[float, ...]]] = {
    "time_to_first_token_seconds": ("From the request to its first token.", SECONDS),
    "request_time_per_output_token_seconds": ("Mean time between the tokens of a request.", SECONDS),
    "inter_token_latency_seconds": ("Time between two tokens, the mean of its request.", SECONDS),
    "request_inference_time_seconds": ("Time spent in a seat.", SECONDS),
    "e2e_request_latency_seconds": ("From the request to its end.", SECONDS),
    "request_queue_time_seconds": ("Time spent waiting for a seat.", SECONDS),
    "request_prefill_time_seconds": ("Time spent reading the prompt.", SECONDS),
    "request_decode_time_seconds": ("Time spent writing the answer.", SECONDS),
    "request_prompt_tokens": ("Tokens of the prompt.", TOKENS),
    "request_generation_tokens": ("Tokens of the answer.", TOKENS),
}


class Histogram:
    """Counts by upper bound, as Prometheus has them."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def lines(self, name: str, labels: str) -> Iterator[str]:
        total = 0
        for bound, count in zip((*self._bounds, math.inf), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{_number(bound)}"}} {total}'
        yield f"{name}_sum{{{labels}}} {_number(self._sum)}"
        yield f"{name}_count{{{labels}}} {total}"


class Metrics:
    """What this server has seen; `text` adds what the engine tells of itself."""

    def __init__(self) -> None:
        self._histograms = {name: Histogram(bounds) for name, (_, bounds) in HISTOGRAMS.items()}
        self._ends: Counter[str] = Counter()
        self._embeddings = self._embedded = 0
        self._responses: Counter[int] = Counter()

    def note_end(self, end: FinishedEvent) -> None:
        time, usage = end.time, end.usage
        self._ends[REASONS[end.reason]] += 1
        gaps = usage.completion_tokens - 1
        gap = time.decode / gaps if gaps > 0 else None
        if gap is not None:
            self._histograms["inter_token_latency_seconds"].add(gap, gaps)
        values: dict[str, float | None] = {
            "time_to_first_token_seconds": time.ttft,
            "request_time_per_output_token_seconds": gap,
            "request_inference_time_seconds": time.total - time.waited,
            "e2e_request_latency_seconds": time.total,
            "request_queue_time_seconds": time.waited,
            "request_prefill_time_seconds": time.prefill,
            "request_decode_time_seconds": time.decode,
            "request_prompt_tokens": usage.prompt_tokens,
            "request_generation_tokens": usage.completion_tokens,
        }
        for name, value in values.items():
            if value is not None:
                self._histograms[name].add(value)

    def note_embeddings(self, count: int, tokens: int) -> None:
        """So many inputs, of so many tokens in all, were given their vectors."""
        self._embeddings += count
        self._embedded += tokens

    def note_gone(self, answers: int) -> None:
        """A client left before so many of its answers had ended."""
        self._ends["abort"] += answers

    def note_response(self, status: int) -> None:
        self._responses[status] += 1

    def text(self, models: Sequence[tuple[Snapshot, str]]) -> str:
        """The page, for each loaded model and its name. What is counted of requests bears the first one's name."""
        return "\n".join(self._lines(models)) + "\n"

    def _lines(self, models: Sequence[tuple[Snapshot, str]]) -> Iterator[str]:
        every = [f'model_name="{_escape(name)}"' for _, name in models]
        figures = [_figures(snapshot) for snapshot, _ in models]
        for place, kind in enumerate(("gauge", "counter")):
            for name, (_, what) in figures[0][place].items():
                yield from _head(name, kind, what)
                for labels, told in zip(every, figures, strict=True):
                    yield f"{PREFIX}{name}{{{labels}}} {_number(told[place][name][0])}"
        labels, kv = every[0], models[0][0].kv
        yield from _head("request_success_total", "counter", "Answers of this server, by how they ended.")
        for reason in REASONS.values():
            yield f'{PREFIX}request_success_total{{{labels},finished_reason="{reason}"}} {self._ends[reason]}'
        made = {
            "embeddings_total": (self._embeddings, "Vectors given to clients."),
            "embeddings_tokens_total": (self._embedded, "Tokens of their inputs."),
        }
        for name, (total, what) in made.items():
            yield from _head(name, "counter", what)
            yield f"{PREFIX}{name}{{{labels}}} {total}"
        yield from _head("http_responses_total", "counter", "Responses of this server, by status.")
        for status, count in sorted(self._responses.items()):
            yield f'{PREFIX}http_responses_total{{status="{status}"}} {count}'
        yield from _head("cache_config_info", "gauge", "The KV cache.")
        yield f'{PREFIX}cache_config_info{{block_size="{kv.block_size}",num_gpu_blocks="{kv.total}"}} 1'
        yield from _head("build_info", "gauge", "The program.")
        yield f'{PREFIX}build_info{{version="{__version__}"}} 1'
        for name, histogram in self._histograms.items():
            yield from _head(name, "histogram", HISTOGRAMS[name][0])
            yield from histogram.lines(PREFIX + name, labels)


def _figures(snapshot: Snapshot) -> tuple[Figures, Figures]:
    """What an engine tells of itself: gauges and counters, each with what it means."""
    kv, counters, rates = snapshot.kv, snapshot.counters, snapshot.rates
    usage = kv.referenced / kv.total if kv.total else 0.0
    looked_up = counters.prompt_tokens + counters.cached_tokens
    gauges: Figures = {
        "num_requests_running": (snapshot.seated, "Requests that have a seat."),
        "num_requests_waiting": (snapshot.waiting, "Requests that wait for a seat."),
        "num_seats": (len(snapshot.seats), "Seats of a batch."),
        "kv_cache_usage_perc": (usage, "Share of the KV blocks that requests hold; 1 is all."),
        "kv_cache_cached_blocks": (kv.cached, "Blocks that nobody holds and the prefix cache keeps."),
        "generation_tokens_per_second": (rates.tok_s, "Tokens written a second, over the last seconds."),
    }
    totals: Figures = {
        "prompt_tokens_total": (looked_up, "Positions of prompts that were read or found in the prefix cache."),
        "prompt_tokens_cached_total": (counters.cached_tokens, "Of these, found in the prefix cache."),
        "generation_tokens_total": (counters.output_tokens, "Tokens written."),
        "prefix_cache_queries_total": (looked_up, "Positions looked for in the prefix cache."),
        "prefix_cache_hits_total": (counters.cached_tokens, "Positions found in the prefix cache."),
        "num_preemptions_total": (counters.preemptions, "Times that a request lost its blocks and was recomputed."),
        "spec_decode_num_draft_tokens_total": (counters.drafted_tokens, "Tokens that were guessed and verified."),
        "spec_decode_num_accepted_tokens_total": (counters.accepted_tokens, "Of these, what the model said too."),
        "engine_steps_total": (counters.steps, "Steps of the engine's loop."),
        "engine_requests_total": (counters.submitted, "Requests submitted, tabs included."),
    }
    return gauges, totals


def _head(name: str, kind: str, what: str) -> Iterator[str]:
    yield f"# HELP {PREFIX}{name} {what}"
    yield f"# TYPE {PREFIX}{name} {kind}"


def _number(value: float) -> str:
    if value == math.inf:
        return "+Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
