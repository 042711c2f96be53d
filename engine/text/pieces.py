"""A prompt's text to ids, piece by piece: a later turn's prompt begins with all of the former's, and what was encoded once is remembered.

A tokenizer takes its added tokens off a text before it does anything else, and what stands between two of them it treats without a look at
the rest. So a text may be cut in front of such a token, and the ids of the pieces are those of the whole, if only

- the token is matched in the raw text (not after normalising), takes no white space in front of it, and no added token could reach across
  its beginning;
- no added token asks whether it stands alone as a word, which a cut would answer in another way;
- normaliser, splitter, model and what comes after them are of the kinds that we have read the source of (Hugging Face's tokenizers 0.23),
  and none draws lots.

Each piece keeps the token that it begins with: a splitter may treat the beginning of a prompt in its own way (Metaspace's "first"), and
with the token before it a piece is never taken for one. Where any of this does not hold, the text is encoded as a whole. That it holds is
shown, besides, by examples when a tokenizer comes and with the first prompts: one difference ends the cutting for good.

Encoding lets go of Python's lock, which the library's plain call keeps to itself for milliseconds. Safe to use from several threads.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from array import array
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from operator import methodcaller
from typing import Any

from engine.text.panics import faults_told

log = logging.getLogger(__name__)

# A thread pool of the library does not outlive a fork, and one prompt gains nothing from it. Asked for at each call.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

KEPT = 4 << 20  # bytes of remembered pieces, text and ids: some half a million tokens of English
_OVERHEAD = 200  # bytes of an entry besides
_PROOFS = 4  # prompts that are encoded both ways

_MODELS = {"BPE", "Unigram", "WordPiece", "WordLevel"}
_FORMS = {"NFC", "NFD", "NFKC", "NFKD"}
_CLEANERS = _FORMS | {"BertNormalizer", "Strip", "StripAccents", "Lowercase", "Nmt", "Precompiled"}
_NORMALIZERS = _CLEANERS | {"Sequence", "Replace", "Prepend", "ByteLevel"}
_BY_SPACE = {"BertPreTokenizer", "Metaspace", "Whitespace", "WhitespaceSplit", "Punctuation"}
_SPLITTERS = _BY_SPACE | {"Sequence", "ByteLevel", "CharDelimiterSplit", "Split", "Digits", "UnicodeScripts", "FixedLength"}
_PROCESSORS = {"Sequence", "BertProcessing", "RobertaProcessing", "ByteLevel", "TemplateProcessing"}
_NEIGHBOURS = ("", "a", "A ", " a", " ", "\n", "\n\n ", "12", ".", "é", "\u0301e", "猫 ", "▁", "'s")  # of a token, in examples


def encode(backend: Any, text: str, add_special_tokens: bool = True) -> list[int]:
    """As `backend.encode(text).ids`, but others may use Python meanwhile; and without a place in the text for each id, which takes long."""
    return encode_all(backend, [text], add_special_tokens)[0]


@faults_told()
def encode_all(backend: Any, texts: list[str], add_special_tokens: bool = True) -> list[list[int]]:
    """The ids of each text. Raises RequestRefused("tokenizer_failed")."""
    return [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=add_special_tokens)]


class Pieces:
    """Encodes prompts with one tokenizer, without the special tokens that it may put around them.

    Args:
        backend: a `tokenizers.Tokenizer`. It must not change from now on.
        marks: the contents of added tokens in front of which prompts may be cut, if it does no harm.
        renamed: ids that are to be told as others.
        kept: bytes of pieces to remember; what was used longest ago is forgotten first.

    Attributes:
        cuts: the marks in front of which prompts are cut; none, if they are encoded as a whole.
        size: bytes that are remembered now.
    """

    def __init__(self, backend: Any, marks: Iterable[str], renamed: Mapping[int, int] | None = None, kept: int = KEPT) -> None:
        self._backend, self._renamed, self._kept = backend, renamed or {}, kept
        self.size = 0
        self._pieces: OrderedDict[tuple[bytes, str], array[int]] = OrderedDict()
        self._lock = threading.Lock()
        self._unproven = _PROOFS
        self.cuts = _safe_cuts(backend, frozenset(marks))
        self._pattern = re.compile("|".join(map(re.escape, self.cuts)))
        if not self._holds_for_examples():
            self._give_up()
        self._forget()

    def encode(self, text: str, salt: bytes = b"") -> list[int]:
        """`text` in ids. What is remembered of it is found again under the same `salt` only, so that nobody can find out by timing what
        others wrote."""
        if not self.cuts:
            return self._whole(text)
        ids = self._joined(text, salt)
        if self._proof_is_due() and ids != self._whole(text):
            self._give_up()
        return ids if self.cuts else self._whole(text)  # another thread may have given up meanwhile

    def _whole(self, text: str) -> list[int]:
        return self._told(encode(self._backend, text, add_special_tokens=False))

    def _told(self, ids: list[int]) -> list[int]:
        renamed = self._renamed
        return [renamed.get(token_id, token_id) for token_id in ids] if renamed else ids

    def _joined(self, text: str, salt: bytes) -> list[int]:
        keys = [(salt, piece) for piece in self._cut(text)]
        found: dict[tuple[bytes, str], array[int]] = {}
        with self._lock:
            for key in keys:
                ids = self._pieces.get(key)
                if ids is not None:
                    self._pieces.move_to_end(key)
                    found[key] = ids
        new = list(dict.fromkeys(key for key in keys if key not in found))
        if new:
            encoded = encode_all(self._backend, [piece for _, piece in new], add_special_tokens=False)
            found |= {key: array("I", self._told(its)) for key, its in zip(new, encoded, strict=True)}
            self._remember({key: found[key] for key in new})
        joined: list[int] = []
        for key in keys:
            joined.extend(found[key])
        return joined

    def _cut(self, text: str) -> Iterator[str]:
        starts = [match.start() for match in self._pattern.finditer(text)]
        for start, end in pairwise([0, *starts, len(text)]):
            if end > start:
                yield text[start:end]

    def _remember(self, new: Mapping[tuple[bytes, str], array[int]]) -> None:
        with self._lock:
            for key, ids in new.items():
                if self.cuts and key not in self._pieces and _size(key, ids) <= self._kept:
                    self._pieces[key] = ids
                    self.size += _size(key, ids)
            while self.size > self._kept:
                self.size -= _size(*self._pieces.popitem(last=False))

    def _forget(self) -> None:
        with self._lock:
            self._pieces.clear()
            self.size = 0

    def _give_up(self) -> None:
        with self._lock:
            given_up, self.cuts = self.cuts, ()
        self._forget()
        if given_up:
            log.warning("This tokenizer may read a text otherwise than its parts between control tokens: prompts are encoded as a whole.")

    def _proof_is_due(self) -> bool:
        with self._lock:
            due = self._unproven > 0
            self._unproven -= due
            return due

    def _holds_for_examples(self) -> bool:
        try:
            return all(self._whole(example) == self._joined(example, b"") for example in self._examples())
        except Exception:  # as of a vocabulary that lacks a letter of theirs, and an id for what is unknown
            log.info("This tokenizer cannot encode the examples that are to show how it works.", exc_info=True)
            return False

    def _examples(self) -> Iterator[str]:
        """Texts with each mark among all kinds of neighbours, and beside each other mark."""
        for mark in self.cuts[:8]:
            yield "".join(f"{before}{mark}{after}" for before in _NEIGHBOURS[:4] for after in _NEIGHBOURS)
            yield "".join(f"{before}{mark}" for before in _NEIGHBOURS) + "".join(f"{mark}{other}" for other in self.cuts[:8])


def _size(key: tuple[bytes, str], ids: array[int]) -> int:
    return sys.getsizeof(key[1]) + ids.itemsize * len(ids) + _OVERHEAD


def _safe_cuts(backend: Any, marks: frozenset[str]) -> tuple[str, ...]:
    """Those of `marks` in front of which a text may be cut (see above)."""
    tokens = [token for token in backend.get_added_tokens_decoder().values() if not token.normalized]
    if any(token.single_word for token in tokens) or not _is_local(backend):
        return ()
    passed_over = backend.encode_special_tokens
    # What begins with a mark and is longer is matched in its place.
    barred = [token.content for token in tokens if token.lstrip or (passed_over and token.special)]
    safe = {token.content for token in tokens if token.content in marks and not any(map(methodcaller("startswith", token.content), barred))}
    by_beginning: dict[str, set[str]] = defaultdict(set)
    for mark in safe:
        for length in range(1, len(mark)):
            by_beginning[mark[:length]].add(mark)
    longest, firsts = max(map(len, by_beginning), default=0), frozenset(mark[0] for mark in safe)
    candidates = tuple(safe)
    for content in (token.content for token in tokens):
        if firsts.isdisjoint(content[1:]):  # as of all six thousand of Gemma's
            continue
        for length in range(1, min(longest + 1, len(content))):
            safe -= by_beginning.get(content[-length:], frozenset())
        safe.difference_update(mark for mark in candidates if content.find(mark, 1) > 0)
    return tuple(sorted(safe))


def _is_local(backend: Any) -> bool:
    """Whether every part of a tokenizer is of a kind that looks at nothing but the stretch that it is given."""
    model = backend.model
    if type(model).__name__ not in _MODELS or getattr(model, "dropout", None) or getattr(model, "alpha", None):
        return False
    try:
        parts = [
            (json.loads(part.__getstate__()), kinds)
            for part, kinds in (
                (backend.normalizer, _NORMALIZERS),
                (backend.pre_tokenizer, _SPLITTERS),
                (backend.post_processor, _PROCESSORS),
            )
            if part is not None
        ]
    except Exception:  # one written in Python has no such form; the library raises bare Exception
        return False
    return all(_kinds(part) <= kinds and _takes_once(part) for part, kinds in parts)


def _kinds(part: Mapping[str, Any]) -> set[str]:
    found = {str(part.get("type"))}
    for name in ("normalizers", "pretokenizers", "processors"):
        for inner in part.get(name, ()):
            found |= _kinds(inner)
    return found


def _takes_once(part: Mapping[str, Any]) -> bool:
    """Whether what puts special tokens around a text writes the text itself once, not twice."""
    inner = part.get("processors", ())
    pieces = part.get("single", ()) if part.get("type") == "TemplateProcessing" else ({"Sequence": {}},)
    return sum("Sequence" in piece for piece in pieces) == 1 and all(map(_takes_once, inner))
