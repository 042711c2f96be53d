"""A recorded trace: a header and the entries in order, one JSON document a line, gzip-compressed.

Holds token ids of the prompts (the prefix cache's hits depend on them), never text. Reading a file checks its form, so that a
damaged or foreign file is a sentence, not a crash.

Entries (`k` names the kind; `t` lists the clock readings that it consumed, seconds):
    submit {id, chat, title, priority, tokens, said, params, seed}   cancel {id}   fail {id, code, message}   forget {id}
    priority {id, priority}   configure {seats?, token_budget?, policy?, chunk?}   resize {blocks}   clear {}   rebuild {}
    step {out: {request id: token | null | {"error": [code, message]} | {"raised": [code, message]}}, stopped: [ids ended by a stop string],
        no_room?: the pool could not be given another size}
"""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from engine.types import EngineConfig, EngineError, Policy, Pooling, SamplingParams

FORMAT = 1
MOST_BYTES = 512 << 20  # of one line-decoded file; a longer one is not one of ours


class TraceError(EngineError):
    """The file is not a trace, is damaged, or is of a newer version."""


@dataclass(slots=True)
class Trace:
    """One recording.

    Attributes:
        config: the rules at its start.
        blocks, block_size, context, eos_ids: the pool and the model, as far as scheduling sees them.
        asked_blocks: what the pool was asked to have, if memory had made it smaller; 0 is `blocks`.
        rules: what the model's cache allows, where that is less than everything (see `CacheRules`).
        cut: the recording was full before it was stopped; what came after is not in it.
        typical_answer: the answer length that the growth estimate had learned, in tokens.
        entries: what happened, in order.
    """

    config: dict[str, Any]
    blocks: int
    block_size: int
    context: int
    eos_ids: tuple[int, ...]
    typical_answer: float = 64.0
    entries: list[dict[str, Any]] = field(default_factory=list)
    model: str = ""
    rules: dict[str, Any] = field(default_factory=dict)
    cut: bool = False
    asked_blocks: int = 0

    @property
    def steps(self) -> int:
        return sum(entry["k"] == "step" for entry in self.entries)

    @property
    def requests(self) -> int:
        return sum(entry["k"] == "submit" for entry in self.entries)

    def engine_config(self) -> EngineConfig:
        """The recorded rules as a configuration."""
        known = {item.name for item in fields(EngineConfig)}
        values = {name: value for name, value in self.config.items() if name in known}
        values["policy"] = Policy(values["policy"])
        return EngineConfig(**values)

    def save(self, path: Path | str) -> None:
        """Write to `path`, whole or not at all. Raises OSError."""
        path = Path(path)
        header = {name: value for name, value in asdict(self).items() if name != "entries"}
        lines = [json.dumps({"omnibus_trace": FORMAT, **header}, separators=(",", ":"))]
        lines += [json.dumps(entry, separators=(",", ":")) for entry in self.entries]
        part = path.with_name(path.name + ".part")
        with gzip.open(part, "wt", encoding="utf-8", compresslevel=6) as file:
            file.write("\n".join(lines) + "\n")
        part.replace(path)

    @classmethod
    def load(cls, path: Path | str) -> Trace:
        """Read a saved trace. Raises TraceError, or OSError when the file cannot be read."""
        try:
            with gzip.open(path, "rb") as file:
                data = file.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                raise TraceError("trace_too_large", f"{Path(path).name} is larger than {MOST_BYTES >> 20} MiB unpacked.")
            header, *entries = (json.loads(line) for line in data.decode("utf-8").splitlines())
            version = header.pop("omnibus_trace")
            if version > FORMAT:
                raise TraceError("trace_too_new", f"{Path(path).name} was written by a newer Omnibus.", "Update Omnibus and open it again.")
            header["eos_ids"] = tuple(header["eos_ids"])
            trace = cls(**header, entries=entries)
            trace.engine_config()
            for entry in entries:
                _check(entry)
        except TraceError:
            raise
        except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise TraceError(
                "not_a_trace", f"{Path(path).name} is not a scheduling trace, or it is damaged.", "Choose a file saved by Omnibus."
            ) from error
        return trace


KEYS: dict[str, set[str]] = {
    "submit": {"id", "chat", "title", "priority", "tokens", "said", "params", "seed"},
    "cancel": {"id"},
    "fail": {"id", "code", "message"},
    "forget": {"id"},
    "priority": {"id", "priority"},
    "configure": set(),
    "resize": {"blocks"},
    "clear": set(),
    "rebuild": set(),
    "step": {"out", "stopped"},
}


def _check(entry: dict[str, Any]) -> None:
    if not KEYS[entry["k"]] <= entry.keys() or not isinstance(entry["t"], list):
        raise ValueError(f"an entry of kind {entry['k']} lacks a field")


def params_to_json(params: SamplingParams) -> dict[str, Any]:
    """Only what differs from the defaults. A grammar shapes tokens, never scheduling: it is left out."""
    plain = SamplingParams()
    names = [item.name for item in fields(params) if item.name != "grammar"]
    return {name: getattr(params, name) for name in names if getattr(params, name) != getattr(plain, name)}


def params_from_json(values: dict[str, Any]) -> SamplingParams:
    values = dict(values)
    for name in ("stop", "stop_token_ids"):
        if name in values:
            values[name] = tuple(values[name])
    if "pooling" in values:
        values["pooling"] = Pooling(values["pooling"])
    if "logit_bias" in values:
        values["logit_bias"] = tuple((token, bias) for token, bias in values["logit_bias"])
    return SamplingParams(**values)
