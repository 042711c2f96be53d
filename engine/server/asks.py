"""What a client asks for, read from its JSON into the engine's own terms.

Owns the meaning of every field of OpenAI's requests and of the extensions that clients send to local servers. A field that would change
the answer and cannot be honoured is refused by name; a field that nobody here knows is ignored, and told of by strange.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.server.errors import bad_request
from engine.server.fields import Fields, is_ids
from engine.server.tooling import Tooling, read_tooling
from engine.server.turns import read_chat_prompt
from engine.types import Chat, Grammar, GrammarKind, Priority, SamplingParams

MOST_CHOICES = 16  # n
MOST_PROMPTS = 128  # of one completions request
MOST_STOPS, LONGEST_STOP = 16, 256
MOST_BIASES = 1024
MOST_LOGPROBS = 20  # alternatives a token
MOST_TOKENS = 2**31 - 1
LEGACY_MAX_TOKENS = 16  # what /v1/completions answers when it is not told, as OpenAI defines it

Prompt = str | list[int] | Chat


@dataclass(frozen=True, slots=True)
class Ask:
    """One HTTP request for answers.

    Attributes:
        prompts: each is answered `n` times; choice p * n + i is the i-th answer to prompt p.
        params: of the first choice of a prompt; see `params_of`.
        session: names what belongs together for fairness; "" if the client does not say.
        title: a few words for the dashboard.
        echo: the prompt is said again before the answer.
        usage_so_far: each piece of a stream tells the usage up to it.
        tell_ids: the response tells the ids of the prompt's and the answer's tokens.
        priority: the class that its answers ride in.
        salt: set apart from others' in the prefix cache; "" for what the client's key says alone.
        tooling: what an answer may or must call.
        silent: only the prompt is: its answer, of one token, is not told.
        tell_prompt: the response tells the log-probabilities of the prompt by themselves.
        reproducible: the answer must be the same for the same prompt and seed, whoever rides along, or not be given.
        places: so many answers are with the engine at once, the others follow as these end; 0 is no bound.
    """

    prompts: Sequence[Prompt]
    params: SamplingParams
    n: int
    stream: bool
    usage: bool
    session: str
    title: str
    continue_final: bool = False
    echo: bool = False
    silent: bool = False
    tell_prompt: bool = False
    tooling: Tooling = Tooling()
    salt: str = ""
    places: int = 0
    usage_so_far: bool = False
    tell_ids: bool = False
    priority: Priority = Priority.API
    reproducible: bool = False

    @property
    def choices(self) -> int:
        return len(self.prompts) * self.n

    @property
    def at_once(self) -> int:
        """Most of its answers that are with the engine at one time."""
        return min(self.places or self.choices, self.choices)

    def params_of(self, choice: int) -> SamplingParams:
        """Choice i of a prompt draws with seed + i, so that several choices differ and each can be had again alone."""
        place = choice % self.n
        if self.params.seed is None or place == 0:
            return self.params
        return replace(self.params, seed=(self.params.seed + place) % 2**63)

    def bytes_of(self, prompt: Prompt) -> int:
        """An upper bound of a prompt's tokens: no tokenizer makes more than one of a byte, and templates add a little a turn."""
        if isinstance(prompt, str):
            return 4 * len(prompt) + 16
        if isinstance(prompt, Chat):
            return 4 * len(str(prompt)) + 64 * len(prompt.messages) + 2048
        return len(prompt) + 1024


def read_chat(fields: Fields) -> Ask:
    """The body of /v1/chat/completions. Raises ApiError."""
    tooling = read_tooling(fields)
    logprobs = _chat_logprobs(fields)
    if fields.raw("web_search_options") is not None:
        raise fields.unsupported("web_search_options", "this server has no access to the web.")
    if fields.raw("audio") is not None or fields.raw("modalities") not in (None, ["text"]):
        raise fields.unsupported("modalities", "this model reads and writes text only.")
    chat = read_chat_prompt(fields, tooling)
    continue_final = fields.flag("continue_final_message")
    if continue_final and fields.raw("add_generation_prompt") is True:
        raise bad_request("continue_final_message and add_generation_prompt exclude each other.", "continue_final_message")
    ask = make_ask(fields, [chat], _max_tokens(fields), about(chat), logprobs)
    return with_tooling(replace(ask, continue_final=continue_final), tooling)


def about(chat: Chat) -> str:
    """The last thing that a person said."""
    return next((message.content for message in reversed(chat.messages) if message.role == "user"), "")


def with_tooling(ask: Ask, tooling: Tooling) -> Ask:
    """An answer that must call a tool is held to that, whatever other form was asked for. Raises ApiError for both."""
    grammar = tooling.grammar()
    if grammar is None:
        return replace(ask, tooling=tooling)
    if ask.params.grammar is not None:
        raise bad_request("An answer that must call a tool cannot have a response_format, too.", "response_format")
    return replace(ask, tooling=tooling, params=replace(ask.params, grammar=grammar))


def read_completion(fields: Fields) -> Ask:
    """The body of /v1/completions. Raises ApiError."""
    logprobs = None if fields.raw("logprobs") is False else fields.integer("logprobs", 0, MOST_LOGPROBS)
    echo = fields.flag("echo")
    if fields.text("suffix", 2**20):
        raise fields.unsupported("suffix", "this model cannot fill in the middle.")
    best_of, n = fields.integer("best_of", 1, MOST_CHOICES), fields.integer("n", 1, MOST_CHOICES) or 1
    if best_of not in (None, 1, n):
        raise fields.unsupported("best_of", "ask for n answers and choose among them.")
    prompts = read_prompts(fields)
    first = prompts[0] if isinstance(prompts[0], str) else ""
    silent = echo and type(fields.raw("max_tokens")) is int and fields.raw("max_tokens") == 0
    max_tokens = 1 if silent else _max_tokens(fields)
    ask = make_ask(fields, prompts, LEGACY_MAX_TOKENS if max_tokens is None else max_tokens, first, logprobs)
    if echo and logprobs is not None:
        ask = replace(ask, params=replace(ask.params, prompt_logprobs=max(logprobs, ask.params.prompt_logprobs or 0)))
    return replace(ask, echo=echo, silent=silent)


def read_prompts(fields: Fields, key: str = "prompt", most: int = MOST_PROMPTS) -> list[Prompt]:
    """A text, a list of texts, a list of token ids, or a list of such lists."""
    value = fields.raw(key)
    prompts = [value] if isinstance(value, str) or (is_ids(value) and value) else value
    one_kind = isinstance(prompts, list) and (all(isinstance(item, str) for item in prompts) or all(is_ids(item) for item in prompts))
    if one_kind and 1 <= len(prompts) <= most:
        if all(prompts):
            return prompts
        raise bad_request(f"The {key} is empty.", key, "empty_prompt")
    raise fields.wrong(key, f"a text, a list of token ids, or a list of at most {most:,} of either")


def read_detokenize(fields: Fields) -> tuple[int, ...]:
    """The body of /detokenize: `tokens`."""
    tokens = fields.integers("tokens", 2**20)
    if not tokens and fields.raw("tokens") != []:
        raise fields.wrong("tokens", "a list of token ids")
    return tokens


def read_tokenize(fields: Fields) -> Prompt:
    """The body of /tokenize: `messages` of a chat, or a `prompt`."""
    if fields.raw("messages") is not None:
        return read_chat_prompt(fields, read_tooling(fields))
    text = fields.raw("prompt")
    if not isinstance(text, str) or not text:
        raise fields.wrong("prompt", "a text that is not empty")
    return text


def _chat_logprobs(fields: Fields) -> int | None:
    """How many alternatives to tell of each token; None is off."""
    top = fields.integer("top_logprobs", 0, MOST_LOGPROBS)
    if fields.flag("logprobs"):
        return top or 0
    if top:
        raise bad_request("top_logprobs needs logprobs to be true.", "top_logprobs")
    return None


def make_ask(fields: Fields, prompts: Sequence[Prompt], max_tokens: int | None, title: str, logprobs: int | None) -> Ask:
    """What the requests of all kinds have in common. Raises ApiError."""
    stream = fields.flag("stream")
    options = fields.inner("stream_options")
    usage = options.flag("include_usage") if options is not None else False
    usage_so_far = usage and options is not None and options.flag("continuous_usage_stats")
    polite = (fields.integer("priority", -(2**31), 2**31 - 1) or 0) > 0  # vLLM's: the lower, the earlier; nobody passes the window's tabs
    params = replace(_params(fields, max_tokens), logprobs=logprobs, prompt_logprobs=fields.integer("prompt_logprobs", 0, MOST_LOGPROBS))
    tell_prompt = params.prompt_logprobs is not None
    if tell_prompt and stream:
        raise fields.unsupported("prompt_logprobs", "they come with a whole answer; leave stream out.")
    n = fields.integer("n", 1, MOST_CHOICES) or 1
    return Ask(
        prompts,
        params,
        n,
        stream,
        usage,
        session_of(fields),
        title_of(title),
        salt=fields.text("cache_salt", 256) or "",
        tell_prompt=tell_prompt,
        usage_so_far=usage_so_far,
        tell_ids=fields.flag("return_token_ids"),
        priority=Priority.IDLE if polite else Priority.API,
        reproducible=_reproducible(fields, params),
    )


def _reproducible(fields: Fields, params: SamplingParams) -> bool:
    wanted = fields.flag("reproducible")
    if wanted and params.seed is None and not params.greedy:
        raise bad_request("A reproducible answer needs a seed, or temperature 0.", "reproducible")
    return wanted


def _max_tokens(fields: Fields) -> int | None:
    """Both spellings; where a client sends both, the stricter one holds."""
    given = [fields.integer(name, 1, MOST_TOKENS) for name in ("max_completion_tokens", "max_tokens")]
    return min((value for value in given if value is not None), default=None)


def _params(fields: Fields, max_tokens: int | None) -> SamplingParams:
    def number(key: str, default: float, least: float, most: float) -> float:
        value = fields.number(key, least, most)
        return default if value is None else value

    top_k = fields.integer("top_k", -1, MOST_TOKENS) or 0
    top_p = number("top_p", 1.0, 0.0, 1.0)
    if top_p == 0.0:
        raise fields.wrong("top_p", "above 0 and at most 1")
    repetition = number("repetition_penalty", 1.0, 0.0, 100.0)
    if repetition == 0.0:
        raise fields.wrong("repetition_penalty", "above 0")
    min_tokens = fields.integer("min_tokens", 0, MOST_TOKENS) or 0
    if max_tokens is not None and min_tokens > max_tokens:
        raise fields.wrong("min_tokens", f"at most max_tokens, which is {max_tokens}")
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        temperature=number("temperature", 1.0, 0.0, 2.0),
        top_k=max(0, top_k),
        top_p=top_p,
        min_p=number("min_p", 0.0, 0.0, 1.0),
        repetition_penalty=repetition,
        presence_penalty=number("presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=number("frequency_penalty", 0.0, -2.0, 2.0),
        seed=_seed(fields),
        stop=fields.texts("stop", MOST_STOPS, LONGEST_STOP),
        stop_token_ids=fields.integers("stop_token_ids", 256),
        ignore_eos=fields.flag("ignore_eos"),
        logit_bias=_logit_bias(fields),
        grammar=_grammar(fields),
    )


def _seed(fields: Fields) -> int | None:
    """OpenAI's seeds are signed; the engine's are not."""
    seed = fields.integer("seed", -(2**63), 2**63 - 1)
    return None if seed is None else seed % 2**63


def _logit_bias(fields: Fields) -> tuple[tuple[int, float], ...]:
    value = fields.raw("logit_bias")
    if value is None:
        return ()
    wanted = f"an object of at most {MOST_BIASES} numbers from -100 to 100, by token id"
    if not isinstance(value, dict) or len(value) > MOST_BIASES:
        raise fields.wrong("logit_bias", wanted)
    inner = Fields(value, "logit_bias")
    biases = []
    for key in value:
        if not (key.isascii() and key.isdigit() and len(key) <= 10):
            raise fields.wrong("logit_bias", wanted)
        biases.append((int(key), inner.number(key, -100.0, 100.0) or 0.0))
    return tuple(biases)


def _grammar(fields: Fields) -> Grammar | None:
    form = fields.inner("response_format")
    if form is None:
        return None
    match form.raw("type"):
        case "text":
            return None
        case "json_object":
            return Grammar(GrammarKind.JSON_OBJECT)
        case "json_schema":
            holder = form.inner("json_schema")
            schema = holder.raw("schema") if holder is not None else None
            if not isinstance(schema, dict):
                raise form.wrong("json_schema", "an object with a schema")
            return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))
    raise form.wrong("type", '"text", "json_object" or "json_schema"')


def session_of(fields: Fields) -> str:
    """The client's own name for a session, in a form that fits an id and cannot be mistaken for a chat's of the window."""
    session = fields.text("session_id", 512) or fields.text("session", 512) or fields.text("user", 512) or ""
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:16] if session else ""


def title_of(text: str) -> str:
    words = "".join(letter if letter.isprintable() else " " for letter in text[:200]).split()
    return " ".join(words)[:40]
