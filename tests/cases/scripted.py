"""A model that says what a test wrote down, through the starter model's own tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from engine import Engine, EngineConfig, ModelView, OpenModel
from engine.scheduling.plan import Row, Sampled
from engine.sim import SimRunner

IDS = 49_152


class ScriptRunner(SimRunner):
    """The n-th token of every answer is the n-th of `script`, and then the last one for ever."""

    def __init__(self, script: Sequence[int], **options: Any) -> None:
        super().__init__(options.pop("blocks", 64), options.pop("block_size", 16), vocab=IDS, **options)
        self.script = list(script)

    def forward(self, rows: Sequence[Row]) -> list[Sampled | None]:
        results = super().forward(rows)
        return [
            None if result is None else replace(result, token=self.script[min(row.request.output_len, len(self.script) - 1)])
            for row, result in zip(rows, results, strict=True)
        ]


def scripted_engine(codec: Any, script: Sequence[int], context: int = 512, **rules: Any) -> Engine:
    """A started engine whose model follows a script. The caller closes it."""

    def open_it(config: EngineConfig, progress: Callable[[float, str], None], cancelled: Callable[[], bool]) -> OpenModel:
        runner = ScriptRunner(script, context=context)
        view = ModelView("scripted", "cpu", "none", "made-up", context, 1.0, "ready")
        return OpenModel(codec, runner, 64, 16, 64, view, lambda: None, vocab_size=IDS)

    engine = Engine(EngineConfig(model="scripted", debug_audit=True, **rules), opener=open_it)
    engine.start()
    engine.wait_ready(60)
    return engine
