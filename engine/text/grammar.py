"""Answers of a given form: JSON schema, regular expression, Lark or GBNF grammar, through llguidance.

Compiling happens where the request is submitted, never on the engine's thread; a step then asks each such request for its mask
(some 50 microseconds) and tells it the token that came out. Owns no model and no request; one `GrammarCompiler` a tokenizer.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.text.panics import faults_told
from engine.types import Grammar, GrammarKind, RequestRefused, Sentence

MOST_SOURCE = 256 * 1024  # characters of a schema or grammar
MOST_SYMBOLS = 20_000  # in its rules
MOST_ITEMS = 5_000  # that the parser may look at for one mask, which everybody in the batch waits for: some milliseconds
MOST_PATTERNS = 12  # that must hold of one text at once; with each the time to compile them doubles
_ITEMS = ("items", "prefixItems", "additionalProperties", "patternProperties", "contains")
_ELSEWHERE = ("$defs", "definitions", "enum", "const", "default", "examples")  # what is not said of the value itself


class GrammarState:
    """One answer's place in its grammar.

    The engine thread alone uses it: `mask` any number of times between two `advance`s.
    """

    def __init__(self, matcher: Any, vocab_size: int) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size

    @property
    def complete(self) -> bool:
        """Nothing more may follow: the answer is over."""
        return bool(self._matcher.is_stopped())

    def mask(self) -> np.ndarray:
        """[vocabulary] bool: the tokens that may come next, end-of-text among them once the form is complete."""
        bits = np.unpackbits(np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little")
        return bits[: self._vocab_size].astype(bool)

    def advance(self, token: int) -> bool:
        """Take the token that came out. False when the grammar forbids it, which a masked draw never does."""
        return bool(self._matcher.consume_token(token))


class GrammarCompiler:
    """Compiles grammars for one tokenizer, given as the text of its tokenizer.json. Its trie is built once, at the first use (a second)."""

    def __init__(self, tokenizer_json: Callable[[], str], vocab_size: int, eos_ids: frozenset[int]) -> None:
        self._tokenizer_json = tokenizer_json
        self._vocab_size = vocab_size
        self._eos_ids = sorted(eos_ids)
        self._lock = threading.Lock()
        self._trie: Any = None

    @faults_told()
    def compile(self, grammar: Grammar) -> GrammarState:
        """Raises RequestRefused("bad_grammar") with llguidance's own words, ("no_grammar") when the library is missing, or
        ("tokenizer_failed") when it cannot take this tokenizer."""
        if len(grammar.source) > MOST_SOURCE:
            raise _refused(f"it has {len(grammar.source):,} characters, more than {MOST_SOURCE:,}")
        try:
            import llguidance
        except ImportError as error:
            raise RequestRefused("no_grammar", "Answers of a given form need the package llguidance.", "Install llguidance.") from error
        source = self._source(llguidance, grammar)
        limits = llguidance.LLParserLimits(max_grammar_size=MOST_SYMBOLS, step_max_items=MOST_ITEMS, verbose_errors=False)
        matcher = llguidance.LLMatcher(self._load_trie(), source, log_level=0, limits=limits)
        complaint = matcher.get_error()
        if not complaint:  # here nobody else waits for the first mask; it is kept for the first step
            matcher.compute_bitmask()
            complaint = matcher.get_error()
        if complaint:
            raise _refused(complaint)
        return GrammarState(matcher, self._vocab_size)

    def _source(self, llguidance: Any, grammar: Grammar) -> Any:
        matcher = llguidance.LLMatcher
        try:
            match grammar.kind:
                case GrammarKind.JSON_OBJECT:
                    return matcher.grammar_from_json_schema({"type": "object"})
                case GrammarKind.JSON_SCHEMA:
                    schema = json.loads(grammar.source)
                    if not isinstance(schema, (dict, bool)):
                        raise ValueError("a schema is a JSON object")
                    if (joined := most_patterns(schema)) > MOST_PATTERNS:
                        raise ValueError(f"allOf joins {joined} patterns, more than {MOST_PATTERNS}")
                    return matcher.grammar_from_json_schema(schema)
                case GrammarKind.REGEX:
                    return matcher.grammar_from_regex(grammar.source)
                case GrammarKind.LARK:
                    return matcher.grammar_from_lark(grammar.source)
                case GrammarKind.GBNF:
                    return matcher.grammar_from_lark(llguidance.gbnf_to_lark.gbnf_to_lark(grammar.source))
        except RecursionError as error:
            raise _refused("it is nested too deeply") from error
        except Exception as error:
            raise _refused(str(error)) from error

    def _load_trie(self) -> Any:
        with self._lock:
            if self._trie is None:
                import llguidance

                self._trie = llguidance.LLTokenizer(self._tokenizer_json(), n_vocab=self._vocab_size, eos_token=self._eos_ids or None)
            return self._trie


def most_patterns(schema: Any) -> int:
    """The most patterns that an `allOf` of a JSON schema joins for one text, what it refers to included. At least that many: alternatives
    are counted as if all held."""
    known: dict[str, Counter[str]] = {}

    def target(name: str) -> Any:
        found = schema
        for part in name.removeprefix("#").strip("/").split("/") if name.startswith("#") else ():
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) and part else found
        return found

    def patterns(node: Any) -> Counter[str]:
        """By the place of the text within the value that the node is about."""
        found: Counter[str] = Counter()
        if isinstance(node, list):
            for item in node:
                found += patterns(item)
        if not isinstance(node, dict):
            return found
        for key, value in node.items():
            if key == "properties" and isinstance(value, dict):
                for name, inner in value.items():
                    found += Counter({f".{name}{place}": count for place, count in patterns(inner).items()})
            elif key in _ITEMS:
                found += Counter({f"[]{place}": count for place, count in patterns(value).items()})
            elif key not in _ELSEWHERE:
                found += patterns(value)
        if isinstance(node.get("pattern"), str):
            found[""] += 1
        if isinstance(name := node.get("$ref"), str):
            if name not in known:
                known[name] = Counter()  # one that refers to itself
                known[name] = patterns(target(name))
            found += known[name]
        return found

    most, waiting = 0, [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict) and isinstance(node.get("allOf"), list):
            most = max(most, *patterns(node).values(), 0)
        waiting += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return most


def _refused(why: str) -> RequestRefused:
    return RequestRefused(
        "bad_grammar", Sentence("The form asked of the answer cannot be used: {0}", why), "Correct the schema or grammar."
    )
