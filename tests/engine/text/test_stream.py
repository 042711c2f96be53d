"""Incremental decoding: the pieces joined are the whole, no character is split or lost, stop strings cut exactly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.text.codec import Codec
from engine.text.stream import ByteDecoder, ByteTable, TextStream, WindowDecoder, first_stop

pytestmark = pytest.mark.model

HARD_TEXTS = (
    "😀😃👨‍👩‍👧‍👦🏳️‍🌈🇨🇦",
    "можно, ещё щука",
    "žluťoučký kůň",
    "ペンギン 猫粮价 뷁",
    "مرحبا، شغّل pip install",
    "e\u0301 a\u0300\u0301 ष्ट्रीय",
    "a real \ufffd mark \ufffd\ufffd",
    "\u200b\u2028\u00a0\ufeff \x00\x1b[31m",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U0010ffff",
)
CHARACTERS = st.one_of(
    st.characters(exclude_categories=("Cs",)),
    st.sampled_from([*"abc \n", "😀", "👩‍🚀", "é", "e\u0301", "ж", "ك", "猫", "\ufffd", "🇨🇦"]),
)
TEXTS = st.one_of(st.lists(CHARACTERS, max_size=40).map("".join), st.sampled_from(HARD_TEXTS))


def pieces(stream: TextStream, ids: Sequence[int]) -> list[str]:
    return [*(stream.push(token_id) for token_id in ids), stream.flush()]


@cache
def known_bytes(tokenizer: Any) -> frozenset[int]:
    """The bytes that the vocabulary has at all: SmolLM2's lacks some control characters and the first bytes of unassigned planes."""
    table = ByteTable.of(tokenizer.backend_tokenizer)
    assert table is not None
    return frozenset(byte for token_id in range(len(tokenizer)) if len(data := table[token_id]) == 1 for byte in data)


def cut(text: str, stops: Sequence[str]) -> str:
    """Written the slow way: the first moment at which the text ends with a stop string."""
    for end in range(len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            return text[: end - max(map(len, ended))]
    return text


@settings(max_examples=400, deadline=None)
@given(text=TEXTS)
def test_text_comes_back_whole(codec: Codec, reference: Any, text: str) -> None:
    ids = reference.encode(text, split_special_tokens=True)
    parts = pieces(codec.stream(), ids)
    whole = reference.decode(ids, skip_special_tokens=True)
    assert whole == text or not known_bytes(reference).issuperset(text.encode())
    assert "".join(parts) == whole
    shown = ""
    for part in parts:
        shown += part
        assert whole.startswith(shown)  # so no U+FFFD ever stood for half a character


@settings(max_examples=400, deadline=None)
@given(ids=st.lists(st.one_of(st.integers(0, 49151), st.integers(0, 300)), max_size=60))
def test_any_ids_come_back_as_decoded_at_once(codec: Codec, reference: Any, ids: list[int]) -> None:
    assert "".join(pieces(codec.stream(), ids)) == reference.decode(ids, skip_special_tokens=True) == codec.decode(ids)


@settings(max_examples=400, deadline=None)
@given(data=st.data(), text=TEXTS)
def test_stop_strings_cut_at_the_first(codec: Codec, reference: Any, data: st.DataObject, text: str) -> None:
    inside = [st.tuples(st.integers(0, len(text) - 1), st.integers(1, 6)).map(lambda at: text[at[0] : at[0] + at[1]])] if text else []
    stops = data.draw(st.lists(st.one_of(*inside, TEXTS.filter(bool), st.text("abc", min_size=1)), min_size=1, max_size=4))
    ids = reference.encode(text, split_special_tokens=True)
    text = reference.decode(ids)
    stream = codec.stream(tuple(stops))
    assert "".join(pieces(stream, ids)) == cut(text, stops)
    assert stream.stopped == any(stop in text for stop in stops)


@given(
    pushes=st.lists(st.text("ab", max_size=3), max_size=8), stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3)
)
def test_stop_strings_do_not_depend_on_the_pieces(pushes: list[str], stops: list[str]) -> None:
    """The same text in other pieces is cut at the same place, and what is held back is never more than a beginning."""

    class Given:
        def push(self, token_id: int) -> str:
            return pushes[token_id]

        def flush(self) -> str:
            return ""

    stream = TextStream(Given(), stop=stops)
    shown = ""
    for place in range(len(pushes)):
        shown += stream.push(place)
        came = "".join(pushes[: place + 1])
        if not stream.stopped:
            held = came[len(shown) :]
            assert came.startswith(shown)
            assert not held or any(stop.startswith(held) and stop != held for stop in stops)
    assert shown + stream.flush() == cut("".join(pushes), stops)


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([10813, 242, 218], "😀"),
        ([10813, 225, 118, 10813, 225, 116], "🇨🇦"),
        ([182, 132, 219], "뷁"),
        ([17868, 10003, 131, 45459], "можно"),
        ([11100, 244, 46763, 10391, 123, 46763], "ペンギン"),
        ([178, 230, 121, 178, 127, 123, 15076, 132], "猫粮价"),
    ],
)
def test_characters_of_several_tokens(codec: Codec, ids: list[int], text: str) -> None:
    parts = pieces(codec.stream(), ids)
    assert "".join(parts) == text
    assert "\ufffd" not in "".join(parts)
    assert b"".join(codec.token_bytes(token_id) for token_id in ids) == text.encode()


def test_bytes_that_are_no_text_do_not_hold_up_the_rest(codec: Codec) -> None:
    done = codec.encode(" done")
    parts = pieces(codec.stream(), [242] * 50 + done)
    assert all(part == "\ufffd" for part in parts[:50])
    assert "".join(parts[50:]) == " done"


def test_an_answer_that_ends_inside_a_character(codec: Codec) -> None:
    stream = codec.stream()
    assert [stream.push(10813), stream.push(242), stream.flush()] == ["", "", "\ufffd"]


def test_an_answer_that_begins_inside_a_character(codec: Codec) -> None:
    stream = codec.stream()
    assert [stream.push(218), *(stream.push(token_id) for token_id in codec.encode(" ok"))] == ["\ufffd", " ok"]


def test_control_tokens_make_no_text(codec: Codec) -> None:
    hello = codec.encode("Hello")
    assert "".join(pieces(codec.stream(), [1, *hello, 2, 0, *range(17)])) == "Hello"


def test_ids_outside_the_vocabulary_make_no_text(codec: Codec) -> None:
    assert pieces(codec.stream(), [49152, 10**9]) == ["", "", ""]


def test_a_stop_string_that_does_not_come_is_released(codec: Codec) -> None:
    for text, stop in (("a\n\nUsers like tea", "\n\nUser: "), ("why?", "\n"), ("ends \n\nUse", "\n\nUser: ")):
        stream = codec.stream((stop,))
        assert "".join(pieces(stream, codec.encode(text))) == text
        assert not stream.stopped


@pytest.mark.parametrize("stops", [("3 then", "k"), ("k", "3 then")])
def test_the_earliest_stop_wins_not_the_first_listed(codec: Codec, stops: tuple[str, ...]) -> None:
    assert "".join(pieces(codec.stream(stops), codec.encode("set k=3 then stop"))) == "set "


def test_nothing_comes_after_a_stop(codec: Codec) -> None:
    stream = codec.stream(("b",))
    assert "".join(stream.push(token_id) for token_id in codec.encode("abc")) == "a"
    assert stream.stopped
    assert (stream.push(codec.encode("x")[0]), stream.flush()) == ("", "")


def test_first_stop_prefers_the_longest_of_those_complete_together() -> None:
    assert first_stop("xabc", ["c", "bc", "abc"]) == 1
    assert first_stop("abcd", ["abcd", "bc"]) == 1
    assert first_stop("abcd", ["x"]) is None


# ------------------------------------------------------------------------------------------------- other kinds of tokenizer


def make_sentencepiece(strip: bool, fallback: bool = True, metaspace: bool = False) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = ["<unk>", "▁", "▁he", "llo", "▁world", "!", "▁▁", "é", "猫", *"abcdefgh"]
    vocab = {word: place for place, word in enumerate(words)} | {f"<0x{byte:02X}>": len(words) + byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=fallback))
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
    else:
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        tokenizer.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))
    return tokenizer


@settings(max_examples=200, deadline=None)
@given(
    words=st.lists(st.one_of(st.integers(0, 16), TEXTS.filter(bool)), max_size=12),
    strip=st.booleans(),
    metaspace=st.booleans(),
    data=st.data(),
)
def test_sentencepiece(words: list[int | str], strip: bool, metaspace: bool, data: st.DataObject) -> None:
    tokenizer = make_sentencepiece(strip, metaspace=metaspace)
    ids: list[int] = []
    for word in words:
        if isinstance(word, int):
            ids.append(word)
        elif not metaspace:  # a Metaspace decoder alone knows no byte tokens
            ids += [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in word.encode()]
    table = ByteTable.of(tokenizer)
    assert table is not None
    for _ in range(2):  # the second time its tokens are known
        assert "".join(pieces(TextStream(ByteDecoder(table)), ids)) == tokenizer.decode(ids)


def test_a_decoder_that_does_more_than_join_bytes_has_no_table() -> None:
    from tokenizers import Tokenizer, decoders, models

    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    assert ByteTable.of(tokenizer) is None
    tokenizer.decoder = decoders.WordPiece()
    assert ByteTable.of(tokenizer) is None
    tokenizer.decoder = decoders.Sequence([decoders.Replace("x", "y"), decoders.ByteFallback()])
    assert ByteTable.of(tokenizer) is None


@settings(max_examples=200, deadline=None)
@given(words=st.lists(st.sampled_from(["he", "##llo", "world", "!", "##s", "don", "'", "t"]), max_size=20))
def test_wordpiece_through_the_window(words: list[str]) -> None:
    from tokenizers import Tokenizer, decoders, models

    vocab = {word: place for place, word in enumerate(["[UNK]", "he", "##llo", "world", "!", "##s", "don", "'", "t"])}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    ids = [vocab[word] for word in words]
    assert "".join(pieces(TextStream(WindowDecoder(tokenizer.decode)), ids)) == tokenizer.decode(ids)


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_bytes_through_the_window(text: str) -> None:
    """A tokenizer of single bytes, the hardest case for a window: every character but ASCII is split."""
    ids = list(text.encode())
    stream = TextStream(WindowDecoder(lambda some: bytes(some).decode("utf-8", "replace")))
    assert "".join(pieces(stream, ids)) == text


def test_the_window_does_not_wait_for_ever() -> None:
    stream = TextStream(WindowDecoder(lambda some: bytes(some).decode("utf-8", "replace")))
    parts = [stream.push(0x80) for _ in range(300)]
    assert "".join(parts) + stream.flush() == "\ufffd" * 300
    assert all("".join(parts[place : place + 4]) for place in range(296))
