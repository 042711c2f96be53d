"""The JSON of answers: whole ones and the pieces of streamed ones, for chats and for plain completions.

Knows OpenAI's field names, and nothing of how the text comes about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from engine.server.asks import Ask
from engine.text.reasoning import ReasoningSplitter
from engine.types import FinishedEvent, FinishReason

REASONS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length"}


class Shape(Protocol):
    """One response in the making. A choice's text goes in piece by piece, in order."""

    def opening(self, choice: int) -> list[dict[str, Any]]:
        """Chunks before the first text of a choice."""
        ...

    def pieces(self, choice: int, text: str, last: bool) -> list[dict[str, Any]]:
        """Chunks for new text; `last` hands over what was still held back."""
        ...

    def closing(self, choice: int, reason: FinishReason) -> dict[str, Any]: ...

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]: ...

    def whole(self, texts: list[str], ends: Mapping[int, FinishedEvent], usage: dict[str, Any]) -> dict[str, Any]: ...


class _Envelope:
    def __init__(self, response_id: str, created: int, model: str, usage: bool, kind: str, chunk_kind: str) -> None:
        self._common = {"id": response_id, "created": created, "model": model}
        self._usage = usage
        self._kind = kind
        self._chunk_kind = chunk_kind

    def chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        chunk = {**self._common, "object": self._chunk_kind, "choices": choices}
        return {**chunk, "usage": None} if self._usage else chunk

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]:
        return {**self._common, "object": self._chunk_kind, "choices": [], "usage": usage}

    def response(self, choices: list[dict[str, Any]], usage: dict[str, Any]) -> dict[str, Any]:
        return {**self._common, "object": self._kind, "choices": choices, "usage": usage}


class ChatShape(_Envelope):
    """chat.completion; a reasoning model's thinking stands in `reasoning_content`."""

    def __init__(self, response_id: str, created: int, model: str, usage: bool) -> None:
        super().__init__(response_id, created, model, usage, "chat.completion", "chat.completion.chunk")
        self._splitters: dict[int, ReasoningSplitter] = {}

    def opening(self, choice: int) -> list[dict[str, Any]]:
        return [self._delta(choice, {"role": "assistant", "content": ""})]

    def pieces(self, choice: int, text: str, last: bool) -> list[dict[str, Any]]:
        return [self._delta(choice, {key: piece}) for key, piece in self._split(choice, text, last)]

    def closing(self, choice: int, reason: FinishReason) -> dict[str, Any]:
        return self._delta(choice, {}, REASONS[reason])

    def whole(self, texts: list[str], ends: Mapping[int, FinishedEvent], usage: dict[str, Any]) -> dict[str, Any]:
        choices = []
        for choice, text in enumerate(texts):
            parts = {"content": "", "reasoning_content": ""}
            for key, piece in self._split(choice, text, last=True):
                parts[key] += piece
            message: dict[str, Any] = {"role": "assistant", "content": parts["content"], "refusal": None}
            if parts["reasoning_content"]:
                message["reasoning_content"] = parts["reasoning_content"]
            reason = REASONS[ends[choice].reason]
            choices.append({"index": choice, "message": message, "logprobs": None, "finish_reason": reason})
        return self.response(choices, usage)

    def _split(self, choice: int, text: str, last: bool) -> Iterator[tuple[str, str]]:
        splitter = self._splitters.setdefault(choice, ReasoningSplitter())
        pieces = [*splitter.push(text), *(splitter.flush() if last else ())]
        return (("reasoning_content" if piece.reasoning else "content", piece.text) for piece in pieces if piece.text)

    def _delta(self, choice: int, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return self.chunk([{"index": choice, "delta": delta, "logprobs": None, "finish_reason": reason}])


class CompletionShape(_Envelope):
    """text_completion: the text as it is."""

    def __init__(self, response_id: str, created: int, model: str, usage: bool) -> None:
        super().__init__(response_id, created, model, usage, "text_completion", "text_completion")

    def opening(self, choice: int) -> list[dict[str, Any]]:
        return []

    def pieces(self, choice: int, text: str, last: bool) -> list[dict[str, Any]]:
        return [self.chunk([self._choice(choice, text)])] if text else []

    def closing(self, choice: int, reason: FinishReason) -> dict[str, Any]:
        return self.chunk([self._choice(choice, "", REASONS[reason])])

    def whole(self, texts: list[str], ends: Mapping[int, FinishedEvent], usage: dict[str, Any]) -> dict[str, Any]:
        return self.response([self._choice(choice, text, REASONS[ends[choice].reason]) for choice, text in enumerate(texts)], usage)

    @staticmethod
    def _choice(choice: int, text: str, reason: str | None = None) -> dict[str, Any]:
        return {"index": choice, "text": text, "logprobs": None, "finish_reason": reason}


def usage_of(ask: Ask, ends: Mapping[int, FinishedEvent]) -> dict[str, Any]:
    """A prompt counts once, however many answers were asked to it."""
    firsts = [ends[number * ask.n].usage for number in range(len(ask.prompts))]
    prompt = sum(usage.prompt_tokens for usage in firsts)
    completion = sum(end.usage.completion_tokens for end in ends.values())
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in firsts)},
    }
