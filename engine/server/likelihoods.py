"""Log-probabilities as OpenAI's API tells them: one form for chats, an older one for plain completions, and vLLM's for prompts.

JSON knows no infinity: what is as good as impossible is told as -9999, as OpenAI does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.types import TokenLogprob

LEAST = -9999.0
Spell = Callable[[int], bytes]


def chat_logprobs(told: Sequence[TokenLogprob], spell: Spell) -> dict[str, Any]:
    """`logprobs` of a chat's choice, or of a piece of one."""

    def entry(token_id: int, logprob: float | None) -> dict[str, Any]:
        raw = spell(token_id)
        return {"token": _text(raw), "bytes": list(raw), "logprob": _finite(logprob)}

    content = [
        {**entry(item.token_id, item.logprob), "top_logprobs": [entry(token_id, logprob) for token_id, logprob in item.top]}
        for item in told
    ]
    return {"content": content, "refusal": None}


class LegacyLogprobs:
    """`logprobs` of one choice of a plain completion. Its offsets run on from piece to piece."""

    def __init__(self, spell: Spell) -> None:
        self._spell = spell
        self._offset = 0

    def piece(self, told: Sequence[TokenLogprob]) -> dict[str, Any]:
        texts = [_text(self._spell(item.token_id)) for item in told]
        offsets = []
        for text in texts:
            offsets.append(self._offset)
            self._offset += len(text)
        return {
            "tokens": texts,
            "token_logprobs": [None if item.logprob is None else _finite(item.logprob) for item in told],
            "top_logprobs": [None if item.logprob is None else self._top(item) for item in told],
            "text_offset": offsets,
        }

    def _top(self, item: TokenLogprob) -> dict[str, float]:
        """By the tokens' texts, the chosen one among them; of several that read the same, the likeliest."""
        found: dict[str, float] = {}
        for token_id, logprob in (*item.top, (item.token_id, item.logprob)):
            found.setdefault(_text(self._spell(token_id)), _finite(logprob))
        return found


def prompt_logprobs(told: Sequence[TokenLogprob], spell: Spell) -> list[Any]:
    """vLLM's extension: one object a token of the prompt, by token id; null for the first."""

    def entry(token_id: int, logprob: float | None) -> dict[str, Any]:
        return {"logprob": _finite(logprob), "decoded_token": _text(spell(token_id))}

    found: list[Any] = []
    for item in told:
        pairs = ((item.token_id, item.logprob), *item.top)
        found.append(None if item.logprob is None else {str(token_id): entry(token_id, logprob) for token_id, logprob in pairs})
    return found


def _finite(logprob: float | None) -> float:
    return max(LEAST, LEAST if logprob is None else logprob)  # in this order: also what is no number becomes LEAST


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
