"""The JSON of answers: whole ones and the pieces of streamed ones, for chats and for plain completions.

Knows OpenAI's field names, and nothing of how the text comes about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from engine.server.asks import Ask, Prompt
from engine.server.errors import ApiError
from engine.server.likelihoods import LegacyLogprobs, Spell, chat_logprobs, prompt_logprobs
from engine.server.parts import CallPiece, Part, Parts, Thought
from engine.server.replies import DONE, Chunk, Template
from engine.server.tooling import Must
from engine.text.tools import ToolForm
from engine.types import Chat, FinishedEvent, FinishReason, TokenLogprob, TokensEvent

REASONS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length"}


@dataclass
class Said:
    """What was said in one choice, so far or since the last piece."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: tuple[TokenLogprob, ...] = ()

    def add(self, event: TokensEvent) -> None:
        self.text += event.text
        self.token_ids += event.token_ids
        self.logprobs += event.logprobs
        self.prompt_logprobs = event.prompt_logprobs or self.prompt_logprobs

    def take(self, more: Said | TokensEvent) -> None:
        """Tokens that were said after these."""
        self.token_ids += more.token_ids
        self.logprobs += more.logprobs


def texts_of(said: Said | TokensEvent) -> Sequence[str]:
    """The texts to tell, each in a piece of its own: one a token where a step gave several, as clients count pieces for tokens."""
    if isinstance(said, TokensEvent) and said.pieces:
        return [text for text in said.pieces if text]
    return (said.text,) if said.text else ()


@dataclass(frozen=True, slots=True)
class Heading:
    """What every piece of one response says of it.

    Attributes:
        created: seconds since the epoch.
        spell: the bytes of a token.
        tool_form: how the model calls tools.
    """

    id: str
    created: int
    model: str
    ask: Ask
    spell: Spell = lambda token_id: b""
    tool_form: ToolForm = ToolForm.NONE


class Shape(Protocol):
    """One response in the making. What is said in a choice goes in piece by piece, in order.

    Attributes:
        last_line: ends a stream that came to its end.
    """

    last_line: bytes

    def begin(self, choice: int, thinking: bool, prompt_ids: Sequence[int]) -> None:
        """Called before anything of a choice. `thinking`: its answer begins within the model's reasoning."""
        ...

    def opening(self, choice: int) -> Sequence[Chunk]:
        """Chunks before the first text of a choice."""
        ...

    def pieces(self, choice: int, said: Said | TokensEvent, last: bool) -> Sequence[Chunk]:
        """Chunks for what is new; `last` hands over what was still held back."""
        ...

    def closing(self, choice: int, reason: FinishReason) -> Sequence[Chunk]:
        """Chunks at the end of a choice."""
        ...

    def ending(self, ends: Mapping[int, FinishedEvent], usage: dict[str, Any]) -> list[dict[str, Any]]:
        """Chunks after the last choice's."""
        ...

    def failure(self, error: ApiError) -> dict[str, Any]:
        """The chunk that ends a stream in which something went wrong."""
        ...

    def whole(self, said: Sequence[Said], ends: Mapping[int, FinishedEvent], usage: dict[str, Any]) -> dict[str, Any]: ...


class _Envelope:
    last_line = DONE

    def __init__(self, heading: Heading, kind: str, chunk_kind: str) -> None:
        self._ask = heading.ask
        self._spell = heading.spell
        self._common = {"id": heading.id, "created": heading.created, "model": heading.model}
        self._kind = kind
        self._chunk_kind = chunk_kind
        self._prompts: dict[int, Sequence[int]] = {}
        self._counts: Counter[int] = Counter()  # tokens said, by choice
        ask = heading.ask
        self._plain = ask.params.logprobs is None and not ask.tell_ids and not ask.usage_so_far  # pieces differ in their text alone
        self._templates: dict[int, Template] = {}

    def chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        """A piece of a choice."""
        chunk = {**self._common, "object": self._chunk_kind, "choices": [choice]}
        if not self._ask.usage:
            return chunk
        return {**chunk, "usage": self._usage_so_far(choice["index"]) if self._ask.usage_so_far else None}

    def _usage_so_far(self, choice: int) -> dict[str, int]:
        """Of this choice alone, as vLLM tells it."""
        prompt, said = len(self._prompts[choice]), self._counts[choice]
        return {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}

    def begin(self, choice: int, thinking: bool, prompt_ids: Sequence[int]) -> None:
        self._prompts[choice] = prompt_ids

    def ending(self, ends: Mapping[int, FinishedEvent], usage: dict[str, Any]) -> list[dict[str, Any]]:
        return [{**self._common, "object": self._chunk_kind, "choices": [], "usage": usage}] if self._ask.usage else []

    def failure(self, error: ApiError) -> dict[str, Any]:
        return error.body()

    def response(self, choices: list[dict[str, Any]], usage: dict[str, Any]) -> dict[str, Any]:
        return {**self._common, "object": self._kind, "choices": choices, "usage": usage}


class ChatShape(_Envelope):
    """chat.completion; a reasoning model's thinking stands in `reasoning_content`."""

    def __init__(self, heading: Heading) -> None:
        super().__init__(heading, "chat.completion", "chat.completion.chunk")
        self._form = heading.tool_form
        self._parts: dict[int, Parts] = {}
        self._untold: dict[int, Said] = {}

    def begin(self, choice: int, thinking: bool, prompt_ids: Sequence[int]) -> None:
        super().begin(choice, thinking, prompt_ids)
        self._parts[choice] = Parts(self._ask.tooling, self._form, thinking, self._ask.params.grammar is not None, self._spell)

    def opening(self, choice: int) -> list[dict[str, Any]]:
        chunk = self._delta(choice, {"role": "assistant", "content": ""})
        return [{**chunk, "prompt_token_ids": list(self._prompts[choice])} if self._ask.tell_ids else chunk]

    def pieces(self, choice: int, said: Said | TokensEvent, last: bool) -> Sequence[Chunk]:
        """Tokens whose text is still held back are told of with the next piece that there is."""
        mine = self._parts[choice]
        if self._plain:
            quick = self._templates.get(choice) or self._template(choice)
            if mine.plain:
                return [quick.fill(text) for text in texts_of(said)]
            parts = mine.push(said.text, last, said.token_ids)
            return [quick.fill(part) if isinstance(part, str) else self._delta(choice, _delta_of(part)) for part in parts]
        self._untold.setdefault(choice, Said()).take(said)
        self._counts[choice] += len(said.token_ids)
        return [self._delta(choice, _delta_of(part)) for part in mine.push(said.text, last, said.token_ids)]

    def _template(self, choice: int) -> Template:
        """Of a piece of text."""
        made = self._templates[choice] = Template(lambda mark: self._delta(choice, _delta_of(mark)))
        return made

    def closing(self, choice: int, reason: FinishReason) -> list[dict[str, Any]]:
        return [self._delta(choice, {}, self._reason(choice, reason))]

    def ending(self, ends: Mapping[int, FinishedEvent], usage: dict[str, Any]) -> list[dict[str, Any]]:
        return super().ending(ends, self._with_thoughts(usage))

    def whole(self, said: Sequence[Said], ends: Mapping[int, FinishedEvent], usage: dict[str, Any]) -> dict[str, Any]:
        choices = []
        for choice, mine in enumerate(said):
            message = _message_of(list(self._parts[choice].push(mine.text, True, mine.token_ids)))
            told = None if self._ask.params.logprobs is None else chat_logprobs(mine.logprobs, self._spell)
            made = {"index": choice, "message": message, "logprobs": told, "finish_reason": self._reason(choice, ends[choice].reason)}
            choices.append({**made, "token_ids": mine.token_ids} if self._ask.tell_ids else made)
        response = self.response(choices, self._with_thoughts(usage))
        if self._ask.tell_ids:
            response["prompt_token_ids"] = list(self._prompts[0])
        if self._ask.tell_prompt:
            response["prompt_logprobs"] = prompt_logprobs(said[0].prompt_logprobs, self._spell)
        return response

    def _with_thoughts(self, usage: dict[str, Any]) -> dict[str, Any]:
        return {**usage, "completion_tokens_details": {"reasoning_tokens": sum(parts.thought for parts in self._parts.values())}}

    def _reason(self, choice: int, reason: FinishReason) -> str:
        """A call that was ordered by name ends as an answer does, one that the model chose as a call: so OpenAI has it."""
        called = self._parts[choice].calls and self._ask.tooling.must is not Must.NAMED
        return "tool_calls" if called and reason is FinishReason.STOP else REASONS[reason]

    def _delta(self, choice: int, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        untold = self._untold.pop(choice, Said())
        told = chat_logprobs(untold.logprobs, self._spell) if untold.logprobs else None
        made = {"index": choice, "delta": delta, "logprobs": told, "finish_reason": reason}
        return self.chunk({**made, "token_ids": untold.token_ids} if self._ask.tell_ids else made)


def _delta_of(part: Part) -> dict[str, Any]:
    if isinstance(part, Thought):
        return {"reasoning_content": part.text}
    if isinstance(part, str):
        return {"content": part}
    function = {"name": part.name, "arguments": part.arguments} if part.name else {"arguments": part.arguments}
    begun = {"id": part.id, "type": "function"} if part.name else {}
    return {"tool_calls": [{"index": part.index, **begun, "function": function}]}


def _message_of(parts: list[Part]) -> dict[str, Any]:
    text = "".join(part for part in parts if isinstance(part, str))
    thoughts = "".join(part.text for part in parts if isinstance(part, Thought))
    calls = joined_calls(parts)
    message: dict[str, Any] = {"role": "assistant", "content": text if text.strip() or not calls else None, "refusal": None}
    if thoughts:
        message["reasoning_content"] = thoughts
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}} for call in calls
        ]
    return message


def joined_calls(parts: Sequence[Part]) -> list[CallPiece]:
    """Whole calls, in order."""
    calls: dict[int, CallPiece] = {}
    for part in parts:
        if isinstance(part, CallPiece):
            begun = calls.get(part.index)
            calls[part.index] = part if begun is None else replace(begun, arguments=begun.arguments + part.arguments)
    return list(calls.values())


class CompletionShape(_Envelope):
    """text_completion: the text as it is, with the prompt before it where that is asked for."""

    def __init__(self, heading: Heading) -> None:
        super().__init__(heading, "text_completion", "text_completion")
        self._begun: set[int] = set()
        self._legacy: dict[int, LegacyLogprobs] = {}

    def opening(self, choice: int) -> list[dict[str, Any]]:
        return []

    def pieces(self, choice: int, said: Said | TokensEvent, last: bool) -> Sequence[Chunk]:
        if self._plain and choice in self._begun and not self._ask.silent:
            quick = self._templates.get(choice) or self._template(choice)
            return [quick.fill(text) for text in texts_of(said)]
        self._counts[choice] += 0 if self._ask.silent else len(said.token_ids)
        piece = self._choice(choice, said)
        return [self.chunk(piece)] if piece["text"] or piece["logprobs"] or piece.get("token_ids") else []

    def closing(self, choice: int, reason: FinishReason) -> list[dict[str, Any]]:
        return [self.chunk(self._choice(choice, Said(), self._reason(reason)))]

    def whole(self, said: Sequence[Said], ends: Mapping[int, FinishedEvent], usage: dict[str, Any]) -> dict[str, Any]:
        choices = [self._choice(choice, mine, self._reason(ends[choice].reason)) for choice, mine in enumerate(said)]
        if self._ask.tell_prompt:
            for mine, told in zip(choices, said, strict=True):
                mine["prompt_logprobs"] = prompt_logprobs(told.prompt_logprobs, self._spell)
        return self.response(choices, usage)

    def _template(self, choice: int) -> Template:
        """Of a piece of text behind the first."""
        made = self._templates[choice] = Template(lambda mark: self.chunk(self._choice(choice, Said(mark))))
        return made

    def _choice(self, choice: int, said: Said | TokensEvent, reason: str | None = None) -> dict[str, Any]:
        ask, text, told, ids = self._ask, said.text, list(said.logprobs), said.token_ids
        if ask.silent:
            text, told, ids = "", [], []
        first = choice not in self._begun
        self._begun.add(choice)
        if ask.echo and first:
            text = self._as_text(ask.prompts[choice // ask.n]) + text
            told = [*said.prompt_logprobs, *told]
        logprobs = None
        if ask.params.logprobs is not None and told:
            logprobs = self._legacy.setdefault(choice, LegacyLogprobs(self._spell)).piece(told)
        made = {"index": choice, "text": text, "logprobs": logprobs, "finish_reason": reason}
        if ask.tell_ids:
            made |= {"token_ids": ids, **({"prompt_token_ids": list(self._prompts[choice])} if first else {})}
        return made

    def _as_text(self, prompt: Prompt) -> str:
        """A prompt to be said again. The engine has taken it by now, so that its ids are the model's."""
        if isinstance(prompt, str):
            return prompt
        ids = [] if isinstance(prompt, Chat) else prompt
        return b"".join(map(self._spell, ids)).decode("utf-8", "replace")

    def _reason(self, reason: FinishReason) -> str:
        return "length" if self._ask.silent else REASONS[reason]


def usage_of(ask: Ask, ends: Mapping[int, FinishedEvent]) -> dict[str, Any]:
    """A prompt counts once, however many answers were asked to it."""
    firsts = [ends[number * ask.n].usage for number in range(len(ask.prompts))]
    prompt = sum(usage.prompt_tokens for usage in firsts)
    completion = 0 if ask.silent else sum(end.usage.completion_tokens for end in ends.values())
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in firsts)},
    }
