"""A model that is ready to run, as the engine sees it: text to tokens, a runner, and what may be asked of it.

Owns the border between the engine and whatever opens models; the real opener and the made-up ones of the tests fill the same
`OpenModel`. Never imports torch before a model is really opened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.heap import uncollected
from engine.model.late import import_torch
from engine.model.libraries import LIBRARIES
from engine.scheduling.plan import Runner
from engine.scheduling.request import Form, Stream
from engine.text.forms import ChatForm
from engine.text.reasoning import opens_reasoning
from engine.text.tools import ToolForm
from engine.types import Chat, EngineConfig, Grammar, Message, ModelView, Pooling, RequestRefused, SamplingParams, Sentence

Prompt = str | Sequence[int] | Sequence[Message] | Chat


class Codec(Protocol):
    """Text to tokens and back; see engine/text."""

    eos_ids: frozenset[int]

    @property
    def tool_form(self) -> ToolForm: ...

    def encode(self, text: str) -> list[int]: ...

    def encode_chat(self, chat: Chat | Sequence[Message], continue_final: bool = False, salt: bytes = b"") -> list[int]: ...

    def stream(self, stop: tuple[str, ...]) -> Stream: ...

    def decode(self, token_ids: Sequence[int]) -> str: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def use_form(self, form: ChatForm) -> None: ...


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A model ready to run: what `Opener` returns."""

    codec: Codec
    runner: Runner
    num_blocks: int
    block_size: int
    bytes_per_block: int
    view: ModelView
    close: Callable[[], None]
    compile_form: Callable[[Grammar], Form] | None = None
    vocab_size: int | None = None  # ids that callers name are checked against it
    embedding_size: int = 0  # numbers in a prompt's vector; 0 for a model that gives none
    pooling: Pooling = Pooling.MEAN  # how this model's vectors are meant to be made


class Declined(Exception):
    """An opener's word that a model is not loaded here, since another engine will: `to` takes over what waits for it."""

    def __init__(self, to: Any) -> None:
        super().__init__("another engine loads it")
        self.to = to


Progress = Callable[[float, str], None]
Opener = Callable[[EngineConfig, Progress, Callable[[], bool]], OpenModel]


def encode(codec: Codec, prompt: Prompt, continue_final: bool, salt: bytes = b"") -> list[int]:
    if isinstance(prompt, str):
        return codec.encode(prompt)
    if isinstance(prompt, Chat):
        return codec.encode_chat(prompt, continue_final, salt)
    items = list(prompt)
    if items and isinstance(items[0], Message):
        return codec.encode_chat(items, continue_final, salt)  # type: ignore[arg-type]
    return items  # type: ignore[return-value]


def thinks(codec: Codec, tokens: Sequence[int]) -> bool:
    """Whether a prompt ends where the model is already thinking: its template opened the mark."""
    return opens_reasoning(b"".join(codec.token_bytes(token_id) for token_id in tokens[-8:]).decode("utf-8", "replace"))


def check_ids(opened: OpenModel, tokens: Sequence[int], params: SamplingParams | None = None) -> None:
    """An id outside the vocabulary would be read beyond a tensor's end, which on a GPU takes the whole process down."""
    size, params = opened.vocab_size, params or SamplingParams()
    if size is None:
        return
    for name, ids in (
        ("prompt", tokens),
        ("stop_token_ids", params.stop_token_ids),
        ("logit_bias", [token_id for token_id, _ in params.logit_bias]),
    ):
        if ids and not 0 <= min(ids) <= max(ids) < size:
            wrong = next(token_id for token_id in ids if not 0 <= token_id < size)
            sentence = Sentence("{0} holds the token id {1}; this model has the ids 0 to {2:,}.", name, wrong, size - 1)
            raise RequestRefused("bad_token", sentence, "Use ids that this model's tokenizer gives.")


def check_asked(opened: OpenModel, tokens: Sequence[int], params: SamplingParams) -> None:
    """Raises RequestRefused for what this model cannot do."""
    check_ids(opened, tokens, params)
    if params.pooling is not None and not opened.embedding_size:
        sentence = "The model that is loaded gives no embeddings."
        raise RequestRefused("no_embeddings", sentence, "Load one whose files ask for no more than a mean or the last position.")


def compile_form(opened: OpenModel, params: SamplingParams) -> Form | None:
    if params.grammar is None:
        return None
    if opened.compile_form is None:
        raise RequestRefused("no_grammar", "This model cannot be held to a form.", "Leave the schema or grammar out.")
    return opened.compile_form(params.grammar)


def open_real_model(config: EngineConfig, progress: Progress, cancelled: Callable[[], bool]) -> OpenModel:
    progress(0.01, "importing torch")
    with uncollected(), LIBRARIES:  # a desk that looks whether another model fits may bring in the same at the same time
        import_torch()
        from engine.model.opening import open_model  # seconds, so only here

    return open_model(config, progress, cancelled)
