"""How words are compared in a search: folding, what the index is given, and what a person's query means.

Free of SQLite and Qt. The index is SQLite's FTS5 with its own unicode61 tokenizer, which is fast, but would miss words inside Chinese,
Japanese or Thai text (no spaces) and would take `C++` for `C`. So text is prepared here before it is indexed, and a query in the same
way; the index proposes, and `Query.matches` decides on the folded text itself. No query can raise: nothing of it is ever read as syntax.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

# Scripts that are written without spaces: every character is a word of the index, and a word of a person is a phrase of them.
_UNSPACED_LETTER = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U000323af]"
)
_UNSPACED = re.compile(f"({_UNSPACED_LETTER})")
_WORD_BEGINS = f"(?:(?<![^\\W_])|(?<={_UNSPACED_LETTER}))"  # also right behind such a letter, as in the middle of a Chinese sentence
_MARKS = re.compile("[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u064b-\u065f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]")
# `+` and `#` belong to the word before them (C++, F#, the C++ of C++17); with no word before them they say nothing.
_LOOSE_SIGNS = re.compile(r"(?<![\w+#])[+#]+")
_SIGNS_INSIDE = re.compile(r"([+#])(?=\w)")
_TERM = re.compile(r'"([^"]+)"|(\S+)')

TOKENIZER = "unicode61 remove_diacritics 0 tokenchars '+#'"  # of the index; folding has removed the accents already


def fold(text: str) -> str:
    """Text without case, accents and width, character for character comparable. Hangul and kana come back whole."""
    if text.isascii():
        return text.lower()
    parts = _MARKS.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFC", parts).casefold()


def indexable(folded: str) -> str:
    """Folded text as the index is given it: unspaced scripts in single characters, signs at the end of words or gone."""
    if not folded.isascii():
        folded = _UNSPACED.sub(r" \1 ", folded)
    if "+" in folded or "#" in folded:
        folded = _SIGNS_INSIDE.sub(r"\1 ", _LOOSE_SIGNS.sub(" ", folded))
    return folded


@dataclass(frozen=True, slots=True)
class Query:
    """What a person looks for: every term must occur. A term is a word (or its beginning), or a phrase in double quotes."""

    terms: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]  # of the terms in folded text: at the beginning of a word, where a script has words

    @classmethod
    def of(cls, words: str) -> Query:
        """A query from what was typed. A lone double quote is a character like any other."""
        text = words.encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair, from a paste, stands in no text
        found = (fold(phrase or word).strip() for phrase, word in _TERM.findall(text))
        terms = tuple(dict.fromkeys(term for term in found if term))
        return cls(terms, tuple(re.compile((_WORD_BEGINS if _begins_word(term) else "") + re.escape(term)) for term in terms))

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, folded: str) -> bool:
        """Whether folded text holds every term."""
        return all(pattern.search(folded) for pattern in self.patterns)

    def index_query(self) -> str:
        """The query in FTS5's language, proposing at least everything that a word begins with; "" where no term has a word in it."""
        parts = []
        for term in self.terms:
            prepared = indexable(term)
            if any(character.isalnum() for character in prepared):
                parts.append('"' + prepared.replace('"', " ").replace("\0", " ") + '" *')
        return " AND ".join(parts)


def find_spans(text: str, query: Query) -> list[tuple[int, int]]:
    """Where the terms stand in `text` (start, end), in order, without overlaps. Folding may change lengths, so places are mapped back."""
    folded, starts, ends = _fold_with_places(text)
    spans: list[tuple[int, int]] = []
    for pattern in query.patterns:
        spans += [(starts[found.start()], ends[found.end() - 1]) for found in pattern.finditer(folded)]
    spans.sort()
    kept: list[tuple[int, int]] = []
    for begin, end in spans:
        if kept and begin < kept[-1][1]:
            kept[-1] = (kept[-1][0], max(end, kept[-1][1]))
        else:
            kept.append((begin, end))
    return kept


def _begins_word(term: str) -> bool:
    return term[0].isalnum() and not _UNSPACED.match(term)


def _fold_with_places(text: str) -> tuple[str, list[int], list[int]]:
    """Folded text, and for each of its characters where in `text` the letter that it came from begins and ends, accents included."""
    if text.isascii():
        return text.lower(), list(range(len(text))), list(range(1, len(text) + 1))
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    start = 0
    while start < len(text):
        end = start + 1
        while end < len(text) and unicodedata.combining(text[end]):  # a letter and its accents are folded together
            end += 1
        piece = fold(text[start:end])
        pieces.append(piece)
        starts += [start] * len(piece)
        ends += [end] * len(piece)
        start = end
    return "".join(pieces), starts, ends


def utf16_length(text: str) -> int:
    """How long a text is where it is counted in UTF-16 units, as Qt does."""
    return len(text) + sum(character > "\uffff" for character in text)
