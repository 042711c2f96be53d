"""Hidden states for embeddings: heard where the model's body ends, summed over the positions that are asked for.

What is heard is transformers' own `last_hidden_state` (after the last norm), so nothing is computed twice and no vocabulary is multiplied
with. A step that runs module by module is heard; the recording on our own kernels gives the states itself (`native/lane.py`); others
have no modules left. Owns nothing between steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from engine.scheduling.plan import Row
from engine.types import Pooling


def body_of(model: Any) -> Any | None:
    """The part of a language model that ends in hidden states; None where it is not set apart from what makes tokens of them."""
    body = getattr(model, "base_model", None)
    return body if isinstance(body, torch.nn.Module) and body is not model else None


def size_of(model: Any) -> int:
    """Numbers in one of its vectors; 0 for a model that gives none."""
    if (kept := getattr(model, "embedding_size", None)) is not None:  # nothing but a recording is left of it
        return int(kept)
    if body_of(model) is None:
        return 0
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    return int(getattr(config, "hidden_size", 0) or 0)


@contextmanager
def heard(model: Any) -> Iterator[list[torch.Tensor]]:
    """Collects [1, T, size] of each pass through the model's body: one of a step, or one of each of its rows."""
    states: list[torch.Tensor] = []
    body = body_of(model)
    assert body is not None, "a model that gives no vectors was asked for some"
    hook = body.register_forward_hook(lambda module, given, output: states.append(output[0]))
    try:
        yield states
    finally:
        hook.remove()


def pool_rows(states: Sequence[torch.Tensor], rows: Sequence[Row], firsts: Sequence[int]) -> list[tuple[float, ...]]:
    """One sum a row, over its positions `Row.pooled`; `firsts` are the rows' first places in the packed row that `states` make up."""
    packed = torch.cat([part[0] for part in states]) if len(states) > 1 else states[0][0]
    sums = []
    for row, first in zip(rows, firsts, strict=True):
        begin = first + row.pooled.start - row.start
        sums.append(packed[begin : begin + len(row.pooled)].float().sum(0))
    return [tuple(values) for values in torch.stack(sums).tolist()]


def declared_pooling(folder: Path) -> Pooling | None:
    """How a model made for embeddings says that its states be pooled (sentence-transformers' files); the mean for any other model.

    None where its files ask for more than a mean or a last position.
    """
    try:
        modules = json.loads((folder / "modules.json").read_text("utf-8"))
        settings = json.loads((folder / "1_Pooling" / "config.json").read_text("utf-8"))
        kinds = {str(module["type"]).rpartition(".")[2] for module in modules}
        named = settings.get("pooling_mode")
        modes = {str(named)} if named else {name for name, on in settings.items() if name.startswith("pooling_mode_") and on is True}
    except FileNotFoundError:
        return Pooling.MEAN
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    if kinds <= {"Transformer", "Pooling", "Normalize"}:
        if modes in ({"mean"}, {"pooling_mode_mean_tokens"}):
            return Pooling.MEAN
        if modes in ({"lasttoken"}, {"pooling_mode_lasttoken"}):
            return Pooling.LAST
    return None
