"""What a tokenizer remembers goes with it: models come and go in one process, and the engine's thread stays."""

from __future__ import annotations

import random
from collections.abc import Iterator

import psutil

from engine.bench.small_models import make_tokenizer
from engine.heap import give_back
from engine.text.codec import Codec
from engine.types import Message

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def text_of(rnd: random.Random) -> str:
    """Four hundred words that nobody has seen before."""
    return " ".join("".join(rnd.choices(LETTERS, k=rnd.randint(1, 60))) for _ in range(400))


def sizes() -> Iterator[int]:
    """Bytes of this process after each five codecs that came, cut two texts and went."""
    rnd, process = random.Random(1), psutil.Process()
    while True:
        for _ in range(5):
            codec = Codec(make_tokenizer())
            assert codec.encode_chat([Message("user", text_of(rnd))])
            assert codec.encode_chat([Message("user", f"<|im_end|> {text_of(rnd)}")])  # with the copy that takes marks for text
        del codec
        give_back()
        yield process.memory_info().rss


def test_codecs_that_are_gone_leave_no_words_with_the_thread_that_used_them() -> None:
    measured = sizes()
    next(measured)
    before = next(measured)
    after = [next(measured) for _ in range(4)][-1]
    assert after - before < 4 << 20, f"{(after - before) >> 10:,} KiB stayed; with caches it was 18 MiB"


def test_without_them_a_text_is_cut_as_with_them() -> None:
    tokenizer, text = make_tokenizer(), text_of(random.Random(2))
    expected = tokenizer.backend_tokenizer.encode(text).ids
    codec = Codec(tokenizer)
    assert codec.encode(text) == codec.encode(text) == expected
