"""Log-probabilities: how likely the model itself held a token, and which others it held likelier.

Of the raw distribution, before bias, penalties, temperature, cuts and grammar, as vLLM reports them by default: what a caller measures is
the model, not the settings. Computed for the rows that ask and no others; owns nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.scheduling.plan import Row
from engine.types import TokenLogprob

AT_A_TIME = 64  # rows of a whole vocabulary in float32: a long prompt's would be gigabytes together


def tell(raw: torch.Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[TokenLogprob]:
    """One a row of `raw` [R, vocabulary], any float dtype: of the token given for it, with so many alternatives.

    A token below 0 (a row without an outcome) gets the first token's.
    """
    found: list[TokenLogprob] = []
    for first in range(0, len(tokens), AT_A_TIME):
        part = slice(first, first + AT_A_TIME)
        found += _tell(raw[part].float(), tokens[part], counts[part])
    return found


def score_prompts(raw: torch.Tensor, rows: Sequence[Row]) -> list[tuple[TokenLogprob, ...]]:
    """One tuple a row, for the prompt's tokens behind its positions `Row.scored`; `raw` holds those positions' logits, row after row."""
    tokens = [row.request.tokens[position + 1] for row in rows for position in row.scored]
    counts = [row.request.params.prompt_logprobs or 0 for row in rows for _ in row.scored]
    supply = iter(tell(raw, tokens, counts))
    return [tuple(next(supply) for _ in row.scored) for row in rows]


def _tell(raw: torch.Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[TokenLogprob]:
    log_sum = torch.logsumexp(raw, -1)
    at = torch.tensor(tokens, device=raw.device).clamp_(min=0)[:, None]
    own = (raw.gather(1, at).squeeze(1) - log_sum).tolist()
    values, ids = raw.topk(min(max(counts), raw.shape[1]), dim=-1)
    tops, names = (values - log_sum[:, None]).tolist(), ids.tolist()
    return [
        TokenLogprob(token, own[place], tuple(zip(names[place][:count], tops[place][:count], strict=True)))
        for place, (token, count) in enumerate(zip(tokens, counts, strict=True))
    ]
