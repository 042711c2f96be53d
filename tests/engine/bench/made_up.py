"""A real engine (thread, scheduler, pool) over a made-up model that takes no time and knows no words."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from engine import Engine, EngineConfig, Message, ModelView, OpenModel
from engine.bench.load import Load, ScriptedRequest
from engine.sim import SimRunner
from engine.text.tools import ToolForm

SIM_VOCAB = 26


def make_crowd(seats: int = 4) -> Load:
    """A small rush hour: one long answer, one long prompt, many short ones."""
    lengths = (6, 70, 4, 12, 3, 8, 20, 5, 9, 2)
    requests = tuple(ScriptedRequest(f"q{number}", f"Q{number}", f"{number} asks", n) for number, n in enumerate(lengths))
    return Load("crowd", "A crowd", seats, (*requests, ScriptedRequest("long", "Long-winded", "x" * 3000, 4)))


class LetterStream:
    """Token 0 is "a", and so on."""

    stopped = False

    def push(self, token_id: int) -> str:
        return chr(ord("a") + token_id)

    def flush(self) -> str:
        return ""


class LetterCodec:
    """One token a character; the end-of-text token is "z", so that answers must ignore it to have their full length."""

    eos_ids = frozenset({25})
    tool_form = ToolForm.NONE

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def encode_chat(self, messages: Sequence[Message], continue_final: bool = False, salt: bytes = b"") -> list[int]:
        return self.encode("".join(f"{message.role}:{message.content};" for message in messages))

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(map(chr, token_ids))

    def token_bytes(self, token_id: int) -> bytes:
        return chr(token_id).encode()

    def stream(self, stop: tuple[str, ...]) -> LetterStream:
        return LetterStream()


def make_opener(
    blocks: int = 1024, block_size: int = 16, context: int = 1 << 20, fault=None, dtype: str = "none"
) -> Callable[..., OpenModel]:
    def opener(config: EngineConfig, progress: Callable[[float, str], None], cancelled: Callable[[], bool]) -> OpenModel:
        progress(0.5, "making things up")
        runner = SimRunner(blocks, block_size, context=context, vocab=SIM_VOCAB, fault=fault)
        view = ModelView(name="made-up", device="cpu", dtype=dtype, lane="sim", context=context, progress=1.0, stage="ready")
        return OpenModel(LetterCodec(), runner, blocks, block_size, 1024, view, lambda: None)

    return opener


def make_engine(seats: int = 8, *, fault=None, blocks: int = 1024, block_size: int = 16, context: int = 1 << 20, **config) -> Engine:
    opener = make_opener(blocks, block_size, context, fault)
    return Engine(EngineConfig(model="made-up", seats=seats, debug_audit=True, **config), opener=opener)


def wait_for(engine: Engine, holds: Callable[[], bool]) -> None:
    """Wait for a snapshot in which something holds; events and commands run ahead of snapshots."""
    published = threading.Event()
    remove = engine.add_listener(published.set)
    while not holds():
        assert published.wait(60), "nothing happened for a minute"
        published.clear()
    remove()
