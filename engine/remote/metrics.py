"""What a server tells of itself at /metrics, brought to one form: vLLM's (its own and through Ray), SGLang's, llama.cpp's, TensorRT-LLM's
and our own names.

What a server does not tell stays None; nothing is made up. The names are those that these servers' own sources
and documents give.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import httpx2

from engine.remote.reading import body_of_answer
from engine.remote.slots import Slot

MOST = 1 << 20  # bytes of a page that are read
_LINE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')

# For each of our fields the names under which servers tell it, without their prefix; the first one that is there counts.
_NAMES: dict[str, tuple[str, ...]] = {
    "running": ("num_requests_running", "num_running_reqs", "requests_processing"),
    "waiting": ("num_requests_waiting", "num_queue_reqs", "requests_deferred"),
    "seats": ("num_seats", "max_running_requests"),
    "usage": ("kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage", "kv_cache_usage_ratio", "kv_cache_utilization"),
    "preemptions": ("num_preemptions_total", "num_preemptions", "num_retracted_requests_total"),
    "output_tokens": ("generation_tokens_total", "generation_tokens", "tokens_predicted_total"),
    "prompt_tokens": ("prompt_tokens_total", "prompt_tokens"),
    "cached_tokens": ("prompt_tokens_cached_total", "prefix_cache_hits_total", "prefix_cache_hits", "cached_tokens_total"),
    "tok_s": ("generation_tokens_per_second", "gen_throughput"),
    "most_tokens": ("max_total_num_tokens",),
}
_PREFIXES = {
    **dict.fromkeys(("vllm:", "vllm_", "ray_vllm_", "ray_vllm:"), "vLLM"),  # Ray puts its own name before, and "_" for ":"
    **{"sglang:": "SGLang", "llamacpp:": "llama.cpp", "trtllm_": "TensorRT-LLM", "omnibus_": "Omnibus"},
}
PAGES = ("/metrics", "/prometheus/metrics")  # trtllm-serve has other things at the first


@dataclass(frozen=True, slots=True)
class Told:
    """One reading. `kind` is the server's name; blocks and block_size as it tells them; the rest as in the engine's own counters."""

    kind: str = ""
    running: float | None = None
    waiting: float | None = None
    seats: float | None = None
    usage: float | None = None
    preemptions: float | None = None
    output_tokens: float | None = None
    prompt_tokens: float | None = None
    cached_tokens: float | None = None
    tok_s: float | None = None
    most_tokens: float | None = None
    blocks: int | None = None
    block_size: int | None = None
    slots: tuple[Slot, ...] = ()

    def with_slots(self, slots: tuple[Slot, ...]) -> Told:
        """The same with what llama.cpp tells of its seats, which its other page leaves out."""
        context, held = sum(slot.context for slot in slots), sum(slot.held for slot in slots if slot.busy)
        running = sum(slot.busy for slot in slots) if self.running is None else self.running
        usage = held / context if context else None
        most = float(context) if context else None
        return replace(self, kind="llama.cpp", slots=slots, seats=len(slots), running=running, usage=usage, most_tokens=most)


async def fetch_metrics(client: httpx2.AsyncClient, address: str, headers: dict[str, str]) -> Told | None:
    """One reading of the page at `address`; None where there is none, or none that is known."""
    try:
        async with client.stream("GET", address, headers=headers) as answer:
            if answer.status_code != 200:
                return None
            page = await body_of_answer(answer, MOST)
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return None
    told = read_metrics(page.decode("utf-8", "replace"))
    return told if told.kind else None


def read_metrics(text: str) -> Told:
    """A page in Prometheus' text format. Values of one name are added over their labels (engines, ranks); a usage is averaged."""
    sums: dict[str, list[float]] = {}
    kind = ""
    blocks = block_size = None
    for line in text[:MOST].splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        name, labels, raw = match.groups()
        prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")
        if not prefix:
            continue
        try:
            value = float(raw)
        except ValueError:
            continue
        kind = kind or _PREFIXES[prefix]
        bare = name.removeprefix(prefix)
        if bare == "cache_config_info":
            facts = dict(_LABEL.findall(labels or ""))
            blocks = (blocks or 0) + _whole(facts.get("num_gpu_blocks")) or None
            block_size = _whole(facts.get("block_size")) or block_size
        elif value == value and abs(value) != float("inf"):
            sums.setdefault(bare, []).append(value)
    found: dict[str, float] = {}
    for field, names in _NAMES.items():
        values = next((sums[name] for name in names if name in sums), None)
        if values is not None:
            found[field] = sum(values) / len(values) if field == "usage" else sum(values)
    return Told(kind=kind, blocks=blocks, block_size=block_size, **found)  # type: ignore[arg-type]


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isdigit() else 0
