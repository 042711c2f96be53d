"""Whether a title that a model made is better than the first line it would replace. Free of Qt and of any engine.

A small model, asked for a title, echoes the request, answers the question or makes something up. So a title must be short, be about words
that were said, be in a script that was written, and say nothing of the request for it. Whoever is not convinced keeps the first line.
"""

from __future__ import annotations

import re
import unicodedata

from app.chats.titles import TITLE_LENGTH, title_from
from app.chats.words import fold
from engine import split_reasoning

ASK = "Name this conversation in two to five words, in its own language. Answer with the title only."
MOST_WORDS = 8
SHARE_SAID = 0.5  # of a title's words of weight, which must occur in what was said
STEM = 5  # characters that two forms of a word share ("queue", "queueing")
WEIGHT = 4  # characters from which a word of an alphabet says something

_WORD = re.compile(r"[^\W_]+")
_LABEL = re.compile(r"^(?:title|name|titel|titre|t\u00edtulo|titolo)\s*[:\uff1a]\s*", re.IGNORECASE)
_ANSWERS = re.compile(
    r"^(?:sure|certainly|of course|okay|here(?:'s| is| are)|i(?:'m| am|'ll| will| can)|as an? |the title|this conversation)\b"
)
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


def checked_title(text: str, said: str) -> str:
    """A title out of what a model said about a conversation `said`, or "" where it is none."""
    answer = split_reasoning(text)[1].strip()
    line = _LABEL.sub("", title_from(answer)).strip(" \"'\u201c\u201d\u2018\u2019\u00ab\u00bb\u201e.:\uff1a\u300c\u300d")
    if not line or line.endswith("\u2026") or len(line) > TITLE_LENGTH or "\n" in answer or len(line.split()) > MOST_WORDS:
        return ""
    return line if _is_no_answer(line) and _is_about(line, said) and not _echoes(line, said) and _scripts(line) <= _scripts(said) else ""


def _is_no_answer(line: str) -> bool:
    return _ANSWERS.match(fold(line).replace("\u2019", "'")) is None


def _is_about(line: str, said: str) -> bool:
    """Whether enough of a title's words, or of their beginnings, were said."""
    words, spoken = _words(line), fold(said)
    heavy = [word for word in words if len(word) >= WEIGHT or _unspaced(word)] or words
    stems = {word[:STEM] for word in _words(said)}
    found = sum(_occurs(word, stems, spoken) for word in heavy)
    return found >= SHARE_SAID * len(heavy) and found > 0


def _occurs(word: str, stems: set[str], spoken: str) -> bool:
    if not _unspaced(word):
        return word[:STEM] in stems
    pairs = [word[at : at + 2] for at in range(max(1, len(word) - 1))]
    return 2 * sum(pair in spoken for pair in pairs) >= len(pairs)


def _echoes(line: str, said: str) -> bool:
    """Whether a title speaks of the request for it: two words of that in a row, or one of those that only the request has."""
    asked, words, spoken = _words(ASK), _words(line), set(_words(said))
    pairs = set(zip(asked, asked[1:], strict=False))
    if any(pair in pairs and not set(pair) <= spoken for pair in zip(words, words[1:], strict=False)):
        return True
    return bool({"title", "words", "conversation"} & set(words) - spoken)


def _words(text: str) -> list[str]:
    return _WORD.findall(fold(text))


def _unspaced(word: str) -> bool:
    return unicodedata.name(word[0], "").startswith(_UNSPACED)


def _scripts(text: str) -> set[str]:
    """The scripts of a text's letters, by the first word of their names: LATIN, CYRILLIC, CJK, …"""
    return {unicodedata.name(letter, "?").split(" ")[0].split("-")[0] for letter in set(text) if letter.isalpha()}
