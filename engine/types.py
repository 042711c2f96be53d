"""Plain frozen data that crosses the engine's border: parameters, events, snapshots, decisions, errors.

Owns no behaviour beyond validation. Must never import torch, Qt or anything of the engine's inside, so that the window, the
server, the trace tools and the tests can share these names for free. Units: seconds for times, tokens for lengths.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import IntEnum, StrEnum

# --------------------------------------------------------------------------------------------------------------- errors


class EngineError(Exception):
    """An error meant to be read by a person.

    Attributes:
        code: a stable, snake_case name for programs ("prompt_too_long").
        message: one sentence that says what happened, with the numbers.
        hint: one sentence that says what to do next; may be empty.
    """

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def info(self) -> ErrorInfo:
        return ErrorInfo(self.code, self.message, self.hint)


class RequestRefused(EngineError):
    """Raised at submit for a request that can never run as asked; nothing else in the engine changes."""


class ModelError(EngineError):
    """Raised when a model cannot be found, read or run."""


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """The frozen twin of `EngineError`, as carried by events and snapshots."""

    code: str
    message: str
    hint: str = ""


# ----------------------------------------------------------------------------------------------------------- vocabulary


class FinishReason(StrEnum):
    STOP = "stop"  # end-of-text token, stop id or stop string
    LENGTH = "length"  # max_tokens, the model's context or the whole pool is used up
    CANCELLED = "cancelled"
    ERROR = "error"


class Priority(IntEnum):
    """Priority classes; a lower number boards first."""

    FOREGROUND = 0  # the tab in view
    BACKGROUND = 1  # other tabs
    API = 2  # the HTTP server's clients
    IDLE = 3  # titles and other chores


class Policy(StrEnum):
    IN_FLIGHT = "in_flight"  # city bus: a free seat is taken at the next step
    STATIC = "static"  # tour bus: the next group boards when the last of this one is done


class Phase(StrEnum):
    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"


class EngineState(StrEnum):
    STARTING = "starting"  # the thread is up, no model yet
    LOADING = "loading"
    EMPTY = "empty"  # the model was let go to free its memory; the next request, or load(), brings it back
    READY = "ready"  # a model is loaded; idle or running
    PAUSED = "paused"  # steps are held back; requests keep queueing
    FAILED = "failed"  # no model could be loaded, or three steps in a row failed; restart() brings it back
    CLOSED = "closed"


class WaitReason(StrEnum):
    """Why a request stands in the queue."""

    LOADING = "loading"  # the model is not ready yet
    MODEL = "model"  # asks for another model than the one that is loaded
    PAUSED = "paused"
    SEATS = "seats"  # no free seat
    BLOCKS = "blocks"  # `needs` blocks, `available` free
    GROUP = "group"  # static policy: the present group is still riding
    PRIORITY = "priority"  # behind requests of a higher class
    TURN = "turn"  # behind earlier arrivals of the same class
    PREFIX = "prefix"  # another request is computing the same prefix right now
    PREEMPTED = "preempted"  # lost its blocks; comes back first


# ----------------------------------------------------------------------------------------------------------- parameters


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
            raise RequestRefused("bad_parameter", f"{name} is {getattr(self, name)!r}, but {rule}.", f"Set {name} so that {rule}.")

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


# `EngineConfig.dtype` by the class of precision, of weights, that benchmarks compare within.
CLASS_DTYPES = {"32-bit": "float32", "16-bit": "bfloat16", "8-bit": "8-bit", "4-bit": "4-bit"}


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What an engine is started with. Everything but model, device, dtype, block_size and kv_tokens changes at run time.

    Attributes:
        model: "starter", a folder with safetensors, or a GGUF file.
        device: "auto", "cpu", "cuda", "mps", …; several with commas ("cuda:0,cuda:1") share the layers, each with their cache.
        dtype: "auto", "float32", "bfloat16", "float16"; on the CPU "8-bit" and "4-bit", too.
        seats: most requests in one batch.
        kv_tokens: positions of the KV pool; None lets the memory plan choose.
        block_size: positions a block; None lets the device choose (32 on the CPU; elsewhere 16, or what the fastest kernel takes).
        context: most positions a request; None takes the model's own.
        token_budget: most positions a step computes.
        chunk: most prefill positions beside decodes in one step; adapted towards target_step_s when `adapt_chunk`.
        policy: in-flight or static.
        max_waiting: requests that may wait; more are refused with "queue_full".
        threads: torch threads; None leaves one core to the window.
        overtake_limit: how many later requests may board before one that does not fit yet.
        aging_s: a request that waits this long moves up one priority class.
        tier_tokens: positions of a second KV tier, where idle chats' blocks go instead of being forgotten; 0 is none.
        tier_folder: keep that tier in a file in this folder; None keeps it in host memory.
        plain: run the model as transformers does, without packed weights and recorded steps (slow; to find out whether those are at fault).
        idle_unload_s: let the model go after so many seconds without a request; None keeps it.
        draft_tokens: most tokens of an answer that a step verifies beyond the next one, guessed from its own text; 0 is off. Answers are
            the same with and without; it pays where few chats run and answers quote.
        debug_audit: check every block's count against the tables that hold it, each step (slow).
    """

    model: str = "starter"
    device: str = "auto"
    dtype: str = "auto"
    seats: int = 8
    kv_tokens: int | None = None
    block_size: int | None = None
    context: int | None = None
    token_budget: int = 512
    chunk: int = 128
    adapt_chunk: bool = True
    target_step_s: float = 0.15
    policy: Policy = Policy.IN_FLIGHT
    max_waiting: int = 4096
    threads: int | None = None
    overtake_limit: int = 8
    aging_s: float = 30.0
    tier_tokens: int = 0
    tier_folder: str | None = None
    idle_unload_s: float | None = None
    plain: bool = False
    draft_tokens: int = 0
    debug_audit: bool = False

    def check(self) -> None:
        """Raise EngineError("bad_config", ...) naming the first value that is out of range."""
        for name in ("seats", "token_budget", "chunk", "max_waiting"):
            if getattr(self, name) < 1:
                raise EngineError("bad_config", f"{name} is {getattr(self, name)}, but it must be at least 1.", f"Set {name} to 1 or more.")
        for name in ("kv_tokens", "block_size", "context", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise EngineError(
                    "bad_config", f"{name} is {value}, but it must be at least 1.", f"Set {name} to 1 or more, or leave it out."
                )
        if self.idle_unload_s is not None and not self.idle_unload_s > 0:
            raise EngineError("bad_config", "idle_unload_s must be above 0.", "Leave it out to keep the model loaded.")
        if not 0 <= self.draft_tokens <= 16:
            raise EngineError("bad_config", f"draft_tokens is {self.draft_tokens}, but it must lie between 0 (off) and 16.")
        if self.tier_tokens < 0:
            raise EngineError("bad_config", f"tier_tokens is {self.tier_tokens}, but it must be 0 or more.")
        if self.overtake_limit < 0 or self.aging_s <= 0 or self.target_step_s <= 0:
            raise EngineError("bad_config", "overtake_limit must be 0 or more; aging_s and target_step_s must be above 0.")


# --------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request. `cached_tokens` of the prompt came from the prefix cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """Where a request's time went, in seconds; the four parts sum to `total`.

    `ttft` is the time from submit to the first token, None when none came out.
    """

    waited: float
    prefill: float
    decode: float
    preempted: float
    ttft: float | None = None

    @property
    def total(self) -> float:
        return self.waited + self.prefill + self.decode + self.preempted


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely a token was to the model itself: natural logarithm of its probability, before anything that shapes a draw.

    Attributes:
        logprob: None for the first token of a prompt, which nothing predicts.
        top: the likeliest tokens at that place as (token id, log-probability), the likeliest first.
    """

    token_id: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TokensEvent:
    """New text of an answer. `text` may be empty (a character or stop string is still incomplete); `tokens` counts the new tokens.

    Attributes:
        logprobs: one a new token where the request asked for them, else empty.
        prompt_logprobs: one a token of the prompt, with the answer's first token, where the request asked for them.
    """

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()

    @property
    def tokens(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class FinishedEvent:
    """The last event of every request, exactly once.

    Attributes:
        embedding: the prompt's vector where the request asked for one (`SamplingParams.pooling`) and came to its end: what comes out of the
            model's last layer and norm, averaged over the positions or the last one's, at its own length.
    """

    request_id: str
    reason: FinishReason
    usage: Usage
    time: TimeSplit
    error: ErrorInfo | None = None
    embedding: tuple[float, ...] = ()


Event = TokensEvent | FinishedEvent


# ------------------------------------------------------------------------------------------------------------- snapshot


@dataclass(frozen=True, slots=True)
class SeatView:
    """One taken seat at a step boundary."""

    seat: int  # 0-based; people read seat + 1
    request_id: str
    chat_id: str
    title: str
    phase: Phase
    priority: Priority
    prompt_tokens: int
    computed_tokens: int  # positions whose keys and values are in the cache
    known_tokens: int  # prompt + answer so far
    output_tokens: int
    max_output_tokens: int  # bound of the answer, as far as it is known
    cached_tokens: int  # of the prompt, from the prefix cache
    blocks: int
    preemptions: int
    boarded_step: int
    tok_s: float  # of this request, over its own decode time; 0 before the second token


@dataclass(frozen=True, slots=True)
class QueueView:
    """One waiting request, in the order in which it would board."""

    place: int  # from 1
    request_id: str
    chat_id: str
    title: str
    priority: Priority
    reason: WaitReason
    detail: str  # the reason in numbers, for a person: "needs 12 blocks, 9 free"
    prompt_tokens: int
    needed_blocks: int
    waited_s: float
    expected_start_s: float | None  # from now; None while nothing is measured yet


# Codes in `KvView.owners`, one a block; seat s owns with OWNER_SEAT0 + s.
OWNER_FREE = 0
OWNER_CACHED = 1
OWNER_SHARED = 2
OWNER_SEAT0 = 3


@dataclass(frozen=True, slots=True)
class KvView:
    """The block pool. Always: free + cached + referenced == total.

    owners: unsigned 16-bit codes in machine order, one a block (block 1 first), as bytes; read with
        `memoryview(owners).cast("H")` or `numpy.frombuffer(owners, numpy.uint16)`.
    """

    total: int
    free: int
    cached: int
    referenced: int
    block_size: int
    owners: bytes
    bytes_per_block: int = 0


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals since the engine started; they never fall."""

    steps: int = 0
    submitted: int = 0
    finished: int = 0  # every ending but cancelled and failed
    cancelled: int = 0
    failed: int = 0
    prompt_tokens: int = 0  # prefill positions computed (recomputation included)
    cached_tokens: int = 0  # prefill positions saved by the prefix cache
    output_tokens: int = 0
    preemptions: int = 0
    evictions: int = 0
    seat_steps: int = 0  # seats taken, summed over steps
    idle_seat_steps: int = 0  # seats empty, summed over steps
    drafted_tokens: int = 0  # guessed and verified
    accepted_tokens: int = 0  # of these, what the model said too


@dataclass(frozen=True, slots=True)
class Rates:
    """Measured over the last seconds; 0 when idle."""

    tok_s: float = 0.0
    prefill_tok_s: float = 0.0
    ttft_p50_s: float = 0.0
    ttft_p95_s: float = 0.0
    itl_p50_s: float = 0.0
    itl_p95_s: float = 0.0
    step_s: float = 0.0  # last step
    batch: int = 0  # rows of the last step


@dataclass(frozen=True, slots=True)
class ModelView:
    """The loaded model, or the one being loaded. `progress` runs from 0 to 1 while loading."""

    name: str = ""
    device: str = ""
    dtype: str = ""
    lane: str = ""
    context: int = 0
    progress: float = 0.0
    stage: str = ""  # a person's word: "reading weights"
    weight_bytes: int = 0
    kv_bytes: int = 0
    source: str = ""  # as `EngineConfig.model` names it
    template: str = ""  # how chats are put to it: "model" is its own template, else the key of a safe one
    forms: tuple[str, ...] = ()  # keys of the safe ones that its vocabulary knows
    form_chosen: bool = False  # somebody has chosen the one that is used

    @property
    def held(self) -> int:
        """Bytes that it keeps in memory."""
        return self.weight_bytes + self.kv_bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The engine at one step boundary. Immutable; published by swapping one reference.

    `seats` has one entry a seat, None where it is empty. `queue` holds the first places only; `waiting` counts them all.
    """

    step: int
    time: float  # the engine's clock
    state: EngineState
    policy: Policy
    token_budget: int
    seats: tuple[SeatView | None, ...]
    queue: tuple[QueueView, ...]
    waiting: int
    kv: KvView
    counters: Counters
    rates: Rates
    model: ModelView
    error: ErrorInfo | None = None
    others: tuple[Snapshot, ...] = ()  # of further engines that have a model, or requests, at this time

    @property
    def seated(self) -> int:
        return sum(seat is not None for seat in self.seats)


# ------------------------------------------------------------------------------------------------------ decision records


class DecisionKind(StrEnum):
    SUBMIT = "submit"
    ADMIT = "admit"
    PREEMPT = "preempt"
    FINISH = "finish"
    CANCEL = "cancel"
    FAIL = "fail"
    CONFIG = "config"  # seats, budget, policy or pool changed
    EVICT = "evict"  # cached blocks gave way


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing a step decided, and why, in words that fit a log line."""

    step: int
    kind: DecisionKind
    request_id: str = ""
    chat_id: str = ""
    title: str = ""
    seat: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SeatStep:
    """What one seat did in one step."""

    seat: int
    request_id: str
    chat_id: str
    phase: Phase  # what it did in this step
    tokens: int  # positions computed


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step for the timeline and the trace. Seats that did nothing but are taken stand in `held`."""

    step: int
    time: float
    duration: float
    seats_total: int
    rows: tuple[SeatStep, ...]
    held: tuple[int, ...] = ()
    waiting: int = 0
    free_blocks: int = 0
    decisions: tuple[Decision, ...] = field(default=())
