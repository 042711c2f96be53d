"""Writes down all that goes into a core: commands, clock readings, and what the model answered.

Attached between two steps. So that a replay starts from a known state, attaching puts the core back to the start of its blocks:
live requests are queued again with their tokens and recomputed, the prefix cache begins empty.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from engine.trace.trace import Trace, params_to_json

if TYPE_CHECKING:  # the core calls the recorder, so only the names are needed here
    from engine.core import Core
    from engine.scheduling.plan import Row, Sampled
    from engine.scheduling.request import RequestState


log = logging.getLogger(__name__)

MOST_BYTES = 64 << 20  # of entries as text: hours of a full engine. A recording that was forgotten must not fill the memory.
_ENTRY, _TOKEN, _ROW, _READING = 90, 7, 30, 20  # bytes of their text, roughly


class Recorder:
    """One recording of one core, from construction until `stop`, or until it is full: then it keeps what it has and writes no more.

    Attributes:
        trace: grows while recording.
        full: there was more to record than `most_bytes`; `trace.cut` says so in the file.
    """

    def __init__(self, core: Core, model: str = "", most_bytes: int = MOST_BYTES) -> None:
        self._core = core
        self._left = most_bytes
        self._readings: list[float] = []
        self._clock: Callable[[], float] = core.clock
        now = core.restart_clean()
        config = asdict(core.config)
        # As it is in force: what made it so is of no account to a replay.
        config.update(
            policy=str(core.scheduler.policy),
            seats=core.scheduler.seats,
            model=model,
            chunk=core.tuner.chunk,
            reproducible=False,
            draft_tokens=core.draft_tokens,
        )
        self.trace = Trace(
            config=config,
            blocks=core.pool.total,
            asked_blocks=core.relief.blocks,
            block_size=core.pool.block_size,
            context=core.runner.context,
            eos_ids=tuple(sorted(core.eos_ids)),
            typical_answer=core.scheduler.growth.typical,
            model=model,
            rules=asdict(core.runner.rules),
        )
        for request in sorted(core.requests.values(), key=lambda live: live.arrival):
            self._readings = [now]
            self.note("submit", request=request)
        core.clock = self._read
        core.recorder = self

    def note(self, kind: str, **values: Any) -> None:
        """Called by the core when a command or a step is complete."""
        if self.full:
            return
        if kind == "submit":
            values = _submit(**values, guesses=bool(self._core.draft_tokens))
        elif kind == "step":
            values = _step(**values)
        self._left -= _ENTRY + _READING * len(self._readings) + _TOKEN * len(values.get("tokens", ())) + _ROW * len(values.get("out", ()))
        if self._left < 0:  # this entry and all after it are left out, so that what is there can be replayed
            self.trace.cut, self._readings = True, []
            log.warning("the recording is full after %d steps", self.trace.steps)
            return
        self.trace.entries.append({"k": kind, "t": self._readings, **values})
        self._readings = []

    @property
    def full(self) -> bool:
        return self.trace.cut

    def stop(self) -> Trace:
        """Detach and hand over what was recorded."""
        if self._core.recorder is self:
            self._core.recorder = None
            self._core.clock = self._clock
        return self.trace

    def _read(self) -> float:
        now = self._clock()
        if not self.full:
            self._readings.append(now)
        return now


def _submit(request: RequestState, guesses: bool) -> dict[str, Any]:
    """A live request's answer so far stands apart from its prompt, since limits and text count from the prompt. Where others guess ahead,
    one that does not is marked: its parameters do not tell of a form, nor that it came while requests rode alone."""
    return {
        "id": request.id,
        "chat": request.chat_id,
        "title": request.title,
        "priority": int(request.priority),
        "tokens": request.tokens[: request.prompt_len],
        "said": request.output,
        "params": params_to_json(request.params),
        "seed": request.seed,
        **({"held": True} if guesses and request.lookup is None else {}),
        **({"salt": request.salt.hex()} if request.salt else {}),
    }


def _step(rows: Sequence[Row], results: Sequence[Sampled | None], stopped: Sequence[str], no_room: bool = False) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for row, sampled in zip(rows, results, strict=True):
        if sampled is None or sampled.error is None:
            token = None if sampled is None else sampled.token
            out[row.request.id] = [*sampled.accepted, token] if sampled is not None and sampled.accepted else token
        else:
            out[row.request.id] = {"raised" if sampled.raised else "error": [sampled.error.code, sampled.error.message]}
    return {"out": out, "stopped": list(stopped), **({"no_room": True} if no_room else {})}
