"""What one request asks for: its messages, and how its answer is drawn."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from engine.types.errors import RequestRefused
from engine.types.sentences import Sentence


class GrammarKind(StrEnum):
    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"  # any JSON object
    REGEX = "regex"
    LARK = "lark"
    GBNF = "gbnf"  # llama.cpp's notation


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an answer must look like, token by token. `source` is the schema as JSON text, the expression or the grammar."""

    kind: GrammarKind
    source: str = ""


class Pooling(StrEnum):
    """Which hidden states make a prompt's vector: the mean of all positions, or the last position's."""

    MEAN = "mean"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one answer is drawn.

    Attributes:
        max_tokens: most tokens of the answer; None means up to the context.
        min_tokens: end-of-text and stop ids are held back until this many tokens are out.
        temperature: 0 is greedy.
        top_k: 0 is off.
        top_p: 1 is off.
        min_p: 0 is off; keeps tokens of at least min_p times the best token's probability.
        repetition_penalty: 1 is off (Keskar et al., CTRL, 2019); counts prompt and answer.
        presence_penalty, frequency_penalty: 0 is off; count the answer only (OpenAI's definition).
        seed: None draws one; the draw depends on seed and position alone, never on batch mates.
        stop: strings that end the answer; they are not part of it.
        stop_token_ids: ids that end the answer.
        ignore_eos: do not end at the model's end-of-text.
        logit_bias: added to the logits, as (token id, bias) pairs.
        logprobs: with each token of the answer, its log-probability and so many of the likeliest alternatives; None is off. They are of the
            model's raw distribution: before bias, penalties, temperature, cuts and grammar.
        prompt_logprobs: the same for each token of the prompt, which is then computed whole, whatever the prefix cache holds.
        pooling: no answer is asked for but one vector of the prompt, which comes with its end (see `FinishedEvent.embedding`).
        grammar: the form that the answer must have; None is free.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 0.7
    top_k: int = 0
    top_p: float = 0.95
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    pooling: Pooling | None = None
    grammar: Grammar | None = None

    @property
    def greedy(self) -> bool:
        """The likeliest token each time, of equal ones that with the lowest id. One candidate is no choice, whatever the temperature."""
        return self.temperature == 0.0 or self.top_k == 1

    def check(self) -> None:
        """Raise RequestRefused for a value outside its range, naming it."""

        def refuse(name: str, rule: str) -> None:
            raise RequestRefused(
                "bad_parameter",
                Sentence("{0} is {1!r}, but {2}.", name, getattr(self, name), rule),
                Sentence("Set {0} so that {1}.", name, rule),
            )

        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
                refuse(item.name, "it must be a finite number")
        if self.max_tokens is not None and self.max_tokens < 1:
            refuse("max_tokens", "it must be at least 1")
        if self.min_tokens < 0 or (self.max_tokens is not None and self.min_tokens > self.max_tokens):
            refuse("min_tokens", "it must lie between 0 and max_tokens")
        if self.temperature < 0:
            refuse("temperature", "it must be 0 or more")
        if self.top_k < 0:
            refuse("top_k", "it must be 0 (off) or more")
        if not 0 < self.top_p <= 1:
            refuse("top_p", "it must be above 0 and at most 1")
        if not 0 <= self.min_p <= 1:
            refuse("min_p", "it must lie between 0 and 1")
        if self.repetition_penalty <= 0:
            refuse("repetition_penalty", "it must be above 0")
        for name in ("presence_penalty", "frequency_penalty"):
            if not -2 <= getattr(self, name) <= 2:
                refuse(name, "it must lie between -2 and 2")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            refuse("seed", "it must lie between 0 and 2^63 - 1")
        if any(not text for text in self.stop):
            refuse("stop", "no stop string may be empty")
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None and not 0 <= getattr(self, name) <= 20:
                refuse(name, "it must lie between 0 and 20")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool. `arguments` is a JSON object as text, as OpenAI's API carries it; `id` ties the tool's answer to it."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that an answer may call. `parameters` is the JSON schema of its arguments, as text."""

    name: str
    description: str = ""
    parameters: str = '{"type":"object","properties":{}}'


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat.

    Attributes:
        role: "system", "user", "assistant", or "tool" for what a called tool gave back.
        tool_calls: of an assistant's turn.
        tool_call_id, name: of a tool's turn: the call that it answers, and the tool.
    """

    role: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Chat:
    """A prompt of turns with all that its template may be told.

    Attributes:
        tools: that the answer may call.
        options: further variables of the template, such as ("enable_thinking", False).
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    options: tuple[tuple[str, bool | int | float | str], ...] = ()
