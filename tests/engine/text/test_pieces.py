"""A prompt encoded in pieces is the prompt encoded as a whole, with every kind of tokenizer; where it would not be, it is not cut."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from engine.bench.small_models import make_tokenizer
from engine.text.codec import Codec
from engine.text.forms import CHATML
from engine.text.pieces import Pieces
from engine.types import Message
from tests.engine.made_up_model import PATIENCE
from tests.engine.text.test_codec import HOSTILE, make_small_tokenizer

MARKS = ("<|im_start|>", "<|im_end|>", "<s>")
TEXTS = st.lists(
    st.sampled_from(
        [
            *MARKS,
            "user",
            "\n",
            "\n\n",
            " ",
            "  ",
            "a",
            "Ab",
            "ab",
            " b",
            "12",
            "é",
            "e\u0301",
            "\u0301",
            "猫",
            "😀",
            "▁",
            "'s",
            "<",
            "|",
            ">",
            "<|im_",
            "s>",
        ]
        + ["im_end|>", "\u3000", "\x00", "\U0010fffd", "ﬁ", "＜s＞", "[x]"]
    ),
    max_size=16,
).map("".join)


def whole(backend: Any, text: str) -> list[int]:
    return list(backend.encode(text, add_special_tokens=False).ids)


def letters(**flags: Any) -> Any:
    """Words of SentencePiece's kind: ▁ is a space, a few merges over it, what is unknown becomes bytes."""
    words = [
        "<unk>",
        *"▁abusertm12Ae'.|<>_[]xdin",
        "▁a",
        "▁b",
        "ab",
        "▁ab",
        "user",
        "▁user",
        *(f"<0x{number:02X}>" for number in range(256)),
    ]
    merges = [("▁", "a"), ("▁", "b"), ("a", "b"), ("▁", "ab")]
    vocab = {word: place for place, word in enumerate(dict.fromkeys([*words, *map("".join, merges)]))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False, **flags) for mark in MARKS])
    return tokenizer


def metaspace(scheme: str) -> Any:
    tokenizer = letters()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    return tokenizer


def normalised(normalizer: Any) -> Any:
    tokenizer = letters()
    tokenizer.normalizer = normalizer
    return tokenizer


def prefixed() -> Any:
    tokenizer = make_small_tokenizer()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return tokenizer


def with_added(*tokens: AddedToken) -> Any:
    tokenizer = make_small_tokenizer()
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.add_tokens(list(tokens))
    return tokenizer


def in_normal_form() -> Any:
    tokenizer = normalised(normalizers.Prepend("▁"))
    tokenizer.add_tokens([AddedToken("<s>", normalized=True, special=True)])
    return tokenizer


def word_pieces() -> Any:
    words = ["[UNK]", "[CLS]", "[SEP]", *"abusert12e.", *(f"##{letter}" for letter in "abusert12e"), "user"]
    tokenizer = Tokenizer(models.WordPiece({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    return tokenizer


def unigram() -> Any:
    vocab = [("<unk>", 0.0), ("▁", -2.0), ("a", -3.0), ("b", -3.0), ("▁a", -2.5), ("ab", -2.2), ("▁ab", -2.4), ("user", -4.0)]
    tokenizer = Tokenizer(models.Unigram(vocab, 0, False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace("  ", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.UnicodeScripts(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    return tokenizer


ALL = tuple(sorted(MARKS))
KINDS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "bytes": (make_small_tokenizer, ALL),
    "bytes with a prefix": (prefixed, ALL),
    "metaspace first": (lambda: metaspace("first"), ALL),
    "metaspace always": (lambda: metaspace("always"), ALL),
    "metaspace never": (lambda: metaspace("never"), ALL),
    "prepended": (lambda: normalised(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])), ALL),
    "stripped": (lambda: normalised(normalizers.Strip()), ALL),
    "composed": (lambda: normalised(normalizers.NFC()), ALL),
    "white space behind": (lambda: make_small_tokenizer(rstrip=True), ALL),
    "white space before": (lambda: make_small_tokenizer(lstrip=True), ()),
    "single words": (lambda: make_small_tokenizer(single_word=True), ()),
    "marks in normal form": (in_normal_form, ("<|im_end|>", "<|im_start|>")),
    "an overlapping token": (lambda: with_added(AddedToken("ab<|im_", normalized=False)), ("<s>",)),
    "a longer token": (lambda: with_added(AddedToken("<s>ab", normalized=False)), ALL),
    "a token around one": (lambda: with_added(AddedToken("[<s>]", normalized=False)), ("<|im_end|>", "<|im_start|>")),
    "a longer token with white space": (
        lambda: with_added(AddedToken("<s>ab", normalized=False, lstrip=True)),
        ("<|im_end|>", "<|im_start|>"),
    ),
    "others in normal form": (lambda: with_added(AddedToken("ab", normalized=True, lstrip=True, single_word=True)), ALL),
    "word pieces": (word_pieces, ALL),
    "unigram": (unigram, ALL),
}


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_make_the_whole(kind: str) -> None:
    make, cuts = KINDS[kind]
    backend = make()
    pieces = Pieces(backend, MARKS)
    assert pieces.cuts == cuts

    @settings(max_examples=150, deadline=None)
    @given(text=TEXTS)
    def check(text: str) -> None:
        expected = whole(backend, text)
        assert pieces.encode(text) == expected == pieces.encode(text)

    check()
    assert pieces.cuts == cuts and bool(pieces.size) == bool(cuts)


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("white space before", "a ", "<s>"),
        ("single words", "a", "<s>"),
        ("marks in normal form", "a", "<s>"),
        ("an overlapping token", "ab", "<|im_end|>"),
        ("a token around one", "[", "<s>]"),
        ("a longer token with white space", "a ", "<s>ab"),
    ],
)
def test_where_prompts_are_not_cut_a_cut_would_be_wrong(kind: str, before: str, after: str) -> None:
    make, cuts = KINDS[kind]
    assert not after.startswith(cuts or "-")
    backend = make()
    assert whole(backend, before) + whole(backend, after) != whole(backend, before + after)


def test_no_cut_in_front_of_a_longer_token_that_is_passed_over() -> None:
    backend = metaspace("always")
    backend.add_tokens([AddedToken("<s>a", normalized=False), AddedToken("[x]", normalized=False)])
    backend.add_special_tokens([AddedToken("<s>ab", normalized=False)])
    backend.encode_special_tokens = True
    assert whole(backend, "1") + whole(backend, "<s>ab") != whole(backend, "1<s>ab")
    assert Pieces(backend, ["<s>a", "[x]"]).cuts == ("[x]",)


class Neighbourly:
    """Stands before a tokenizer, and tells another first id where a text has `sign` behind its first token."""

    def __init__(self, backend: Any, sign: str) -> None:
        self._backend, self._sign = backend, sign

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def encode_batch_fast(self, texts: list[str], add_special_tokens: bool = True) -> Any:
        return self._backend.encode_batch_fast([f"!{text}" if self._sign in text[1:] else text for text in texts], add_special_tokens=False)


def test_a_tokenizer_that_looks_further_is_found_out_at_once(caplog: pytest.LogCaptureFixture) -> None:
    pieces = Pieces(Neighbourly(make_small_tokenizer(), "<s>"), MARKS)
    assert pieces.cuts == ()
    assert "as a whole" in caplog.text
    assert pieces.encode("a<s>b") == whole(make_small_tokenizer(), "!a<s>b")


def test_a_tokenizer_that_looks_further_is_found_out_by_a_prompt(caplog: pytest.LogCaptureFixture) -> None:
    pieces = Pieces(Neighbourly(make_small_tokenizer(), "queer"), MARKS)
    assert pieces.cuts == ALL and not caplog.text
    text = "<s>a<|im_end|>queer"
    assert pieces.encode(text) == pieces.encode(text) == whole(make_small_tokenizer(), f"!{text}")
    assert pieces.cuts == () and pieces.size == 0 and "as a whole" in caplog.text


def test_it_is_found_out_once_by_several_threads(caplog: pytest.LogCaptureFixture) -> None:
    text, together = "<s>a<|im_end|>queer", threading.Barrier(4)

    class Meeting(Neighbourly):
        def encode_batch_fast(self, texts: list[str], add_special_tokens: bool = True) -> Any:
            if texts == [text]:  # the proof, which all four have begun
                together.wait(PATIENCE)
            return super().encode_batch_fast(texts, add_special_tokens)

    pieces = Pieces(Meeting(make_small_tokenizer(), "queer"), MARKS)
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(pieces.encode, [text] * 4))
    assert told == [whole(make_small_tokenizer(), f"!{text}")] * 4
    assert pieces.cuts == () and pieces.size == 0 and caplog.text.count("as a whole") == 1


def test_a_vocabulary_that_lacks_letters_of_the_examples_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    backend = Tokenizer(models.Unigram([("a", -1.0), ("b", -1.0)], None, False))
    backend.add_special_tokens([AddedToken("<s>", normalized=False)])
    with pytest.raises(Exception, match="unk_id"):
        backend.encode("猫")
    pieces = Pieces(backend, ["<s>"])
    assert pieces.cuts == () and caplog.text.count("as a whole") == 1
    assert pieces.encode("a<s>b") == [0, 2, 1]
    with pytest.raises(Exception, match="unk_id"):
        pieces.encode("猫")


class Whole:
    """A splitter written in Python."""

    def pre_tokenize(self, text: Any) -> None:
        pass


def test_what_cannot_be_looked_into_is_not_cut() -> None:
    own, twice = make_small_tokenizer(), make_small_tokenizer()
    own.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(Whole())
    twice.post_processor = processors.TemplateProcessing(single="$A $A", special_tokens=[])
    drawing = letters()
    drawing.model.dropout = 0.5
    passing = make_small_tokenizer()
    passing.encode_special_tokens = True
    assert [Pieces(backend, MARKS).cuts for backend in (own, twice, drawing, passing)] == [()] * 4
    assert Pieces(twice, MARKS).encode("a<s>") == whole(twice, "a<s>")
    assert Pieces(passing, MARKS).encode("<s>") == [ord(letter) - 33 for letter in "<s>"]


# ------------------------------------------------------------------------------------------------------------- what is kept


def test_what_is_kept_stays_within_its_bound() -> None:
    backend = make_small_tokenizer()
    pieces, sizes = Pieces(backend, MARKS, kept=20_000), []
    for number in range(60):
        text = f"<s>{number}" * 3 + "<s>" + "猫" * number * 10
        assert pieces.encode(text) == whole(backend, text)
        sizes.append(pieces.size)
    assert 10_000 < max(sizes) <= 20_000
    before = pieces.size
    huge = "<s>" + "a" * 20_000
    assert pieces.encode(huge) == whole(backend, huge) and pieces.size == before  # what is larger than all is not kept, and costs nothing


class Counting:
    """Stands before a tokenizer, and writes down what it is given."""

    def __init__(self, backend: Any) -> None:
        self._backend: Any = backend
        self.given: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def encode_batch_fast(self, texts: list[str], add_special_tokens: bool = True) -> Any:
        self.given += texts
        return self._backend.encode_batch_fast(texts, add_special_tokens=add_special_tokens)


def proven(backend: Any, kept: int = 1 << 20) -> tuple[Counting, Pieces]:
    counting = Counting(backend)
    pieces = Pieces(counting, MARKS, kept=kept)
    for number in range(4):
        pieces.encode(f"{number}")
    counting.given.clear()
    return counting, pieces


def test_only_what_is_new_is_encoded() -> None:
    counting, pieces = proven(make_small_tokenizer())
    first = "<|im_start|>a<|im_end|>\n<|im_start|>b<|im_end|>\n"
    pieces.encode(first)
    assert counting.given == ["<|im_start|>a", "<|im_end|>\n", "<|im_start|>b"]
    counting.given.clear()
    pieces.encode(f"{first}<|im_start|>c")
    pieces.encode(first)
    assert counting.given == ["<|im_start|>c"]


def test_what_was_used_longest_ago_is_forgotten_first() -> None:
    counting, pieces = proven(make_small_tokenizer(), kept=2_000)
    for text in ("a" * 100, "b" * 100, "a" * 100, "c" * 100, "a" * 100, "d" * 100, "a" * 100, "b" * 100):
        pieces.encode(f"<s>{text}")
    assert [text[3] for text in counting.given] == ["a", "b", "c", "d", "b"]


def test_another_salt_finds_nothing() -> None:
    counting, pieces = proven(make_small_tokenizer())
    for salt in (b"one", b"other", b"one"):
        pieces.encode("<s>a", salt)
    assert counting.given == ["<s>a"] * 2


def test_several_threads_at_once() -> None:
    backend, rnd = make_small_tokenizer(), random.Random(1)
    pieces = Pieces(backend, MARKS, kept=8_000)
    words = [*MARKS, "a", "b ", "\n", "猫", "12"]
    texts = ["".join(rnd.choices(words, k=rnd.randint(1, 30))) for _ in range(300)] * 3
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(pieces.encode, texts)) == [whole(backend, text) for text in texts]
    assert 0 < pieces.size <= 8_000 and pieces.size == sum(map(_size_of, pieces._pieces.items()))


def _size_of(item: Any) -> int:
    from engine.text.pieces import _size

    return _size(*item)


@pytest.mark.parametrize("cut", [True, False])
def test_others_use_python_while_a_text_is_encoded(cut: bool) -> None:
    """Nobody is asked to let go of Python's lock here, so another thread comes on only if encoding does so by itself."""
    pieces = Pieces(make_small_tokenizer(), MARKS if cut else ())
    text = "<s>" + "word 猫\n" * 50_000
    turns, done, started = [0], threading.Event(), threading.Event()

    def turn() -> None:
        while not done.is_set():
            turns[0] += 1
            started.set()
            time.sleep(0.0005)

    interval, other = sys.getswitchinterval(), threading.Thread(target=turn, name="other")
    sys.setswitchinterval(1000)
    try:
        other.start()
        assert started.wait(60)
        before = turns[0]
        pieces.encode(text)
        after = turns[0]
    finally:
        sys.setswitchinterval(interval)
        done.set()
        other.join()
    assert after > before


# ---------------------------------------------------------------------------------------------------------------- codecs


def uncut(codec: Codec) -> Codec:
    """The same codec, but that it encodes every prompt as a whole."""
    twin, _, real = codec._twin
    codec.__dict__ |= {"_pieces": Pieces(codec._backend, ()), "_twin_pieces": Pieces(twin, (), real)}
    return codec


CHATS = st.lists(
    st.tuples(st.sampled_from(["system", "user", "user", "assistant"]), st.one_of(HOSTILE, TEXTS, st.just(""))), max_size=6
).map(lambda turns: [*(Message(role, text) for role, text in turns), Message("user", "x")])
LLAMA2 = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ '<s>' + '[INST] ' + m.content + ' [/INST]' }}"
    "{% else %}{{ ' ' + m.content + ' ' + '<|im_end|>' }}{% endif %}{% endfor %}"
)
CODECS: dict[str, Callable[[], Codec]] = {
    "bytes": lambda: Codec(make_small_tokenizer()),
    "of the tests": lambda: Codec(make_tokenizer()),
    "metaspace first": lambda: Codec(metaspace("first"), chat_template=LLAMA2),
    "prepended": lambda: Codec(normalised(normalizers.Prepend("▁")), chat_template=LLAMA2),
    "white space behind": lambda: Codec(make_small_tokenizer(rstrip=True)),
    "white space before": lambda: Codec(make_small_tokenizer(lstrip=True)),
    "overlapping": lambda: Codec(with_added(AddedToken("ab<|im_e", normalized=False), AddedToken("<think>", normalized=False))),
}


@pytest.mark.parametrize("kind", CODECS)
def test_chats_are_encoded_as_before_in_pieces(kind: str) -> None:
    codec, plain = CODECS[kind](), uncut(CODECS[kind]())

    @settings(max_examples=100, deadline=None)
    @given(chat=CHATS)
    def check(chat: list[Message]) -> None:
        expected = plain.encode_chat(chat)
        assert codec.encode_chat(chat) == expected == codec.encode_chat(chat)

    check()
    assert bool(codec._pieces.cuts) == bool(codec._twin_pieces.cuts) == (kind != "white space before")


@pytest.mark.model
def test_a_long_chat_of_the_starter_grows_turn_by_turn(codec: Codec, reference: Any) -> None:
    rnd = random.Random(1)
    said = ["word", " ", "\n", "12", "<b>", "猫", "it's", "<|im", "```\n", "  ", "é"]
    chat = [Message("system", "".join(rnd.choices(said, k=2000)))]
    for turn in range(5):
        hostile = "<|im_end|>" * (turn == 3)
        chat.append(Message("user", f"{''.join(rnd.choices(said, k=60))}{hostile}."))
        ids = codec.encode_chat(chat)
        data = [{"role": message.role, "content": message.content} for message in chat]
        text = reference.apply_chat_template(data, tokenize=False, add_generation_prompt=True)
        assert reference.decode(ids) == text
        assert turn >= 3 or ids == whole(reference.backend_tokenizer, text)
        chat.append(Message("assistant", "".join(rnd.choices(said, k=90)).strip() + "."))
    assert len(codec._pieces.cuts) == 2


def test_a_chat_finds_what_was_encoded_under_its_salt_only() -> None:
    codec = Codec(make_small_tokenizer())
    for number in range(6):
        codec.encode_chat([Message("user", f"{number}")])
    size = codec._pieces.size
    grown = []
    for salt in (b"", b"one", b"other", b"one", b"other"):
        codec.encode_chat([Message("user", "1")], salt=salt)
        grown.append(codec._pieces.size - size)
    assert grown[0] == 0 < grown[1] < grown[2] == grown[3] == grown[4]


def test_another_form_is_cut_in_front_of_its_own_marks() -> None:
    codec = Codec(make_small_tokenizer(), chat_template="<s>{% for m in messages %}{{ m.content }}{% endfor %}")
    chat = [Message("user", "a"), Message("user", "<s>")]
    codec.encode_chat(chat)
    assert codec._pieces.cuts == ("<s>",)
    codec.use_form(CHATML)
    expected = uncut(Codec(make_small_tokenizer())).encode_chat(chat)
    assert codec.encode_chat(chat) == expected
    assert codec._pieces.cuts == ("<|im_end|>", "<|im_start|>") and len(codec._twin_pieces.cuts) == 2


def test_the_copy_for_hostile_texts_knows_all_ids() -> None:
    """Also those that a vocabulary gave away before it grew: the copy then counts otherwise."""
    tokenizer = make_small_tokenizer(added=("ab",))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.model = models.BPE(
        vocab={word: place for place, word in enumerate([*alphabet, *(f"{word}{word}{word}" for word in alphabet)])}, merges=[]
    )
    codec = Codec(tokenizer, chat_template="<s>{% for m in messages %}{{ m.content }}{% endfor %}")
    assert codec.encode("ab") == [259]
    assert codec.encode("<s>ab") == [ord(letter) - 33 for letter in "<s>"] + [259]
    assert codec.encode_chat([Message("user", "ab<s>")]) == [258, 259] + [ord(letter) - 33 for letter in "<s>"]
