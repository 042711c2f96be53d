"""Forms that would hold up everybody are refused in a sentence before they reach a step. Measured without the bounds: 25 joined patterns
compile for minutes, and one mask of 20,000 optional letters takes two seconds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.bench.small_models import make_tokenizer
from engine.text.grammar import MOST_PATTERNS, GrammarCompiler, most_patterns
from engine.types import Grammar, GrammarKind, RequestRefused


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    tokenizer = make_tokenizer()
    return GrammarCompiler(tokenizer.backend_tokenizer.to_str, len(tokenizer), frozenset({2}))


def joined(count: int) -> list[dict[str, Any]]:
    return [{"type": "string", "pattern": f".*{chr(97 + number % 26)}.{{{number}}}"} for number in range(count)]


def hidden(levels: int) -> dict[str, Any]:
    """Few patterns to the eye, and 4 ** levels by their references."""
    names = {f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 4} for level in range(levels)}
    return {"$defs": names | {f"d{levels}": joined(1)[0]}, "$ref": "#/$defs/d0"}


HOSTILE = {
    "joined patterns": (GrammarKind.JSON_SCHEMA, json.dumps({"allOf": joined(25)})),
    "joined by references": (GrammarKind.JSON_SCHEMA, json.dumps(hidden(2))),
    "joined within objects": (GrammarKind.JSON_SCHEMA, json.dumps({"allOf": [{"properties": {"a": each}} for each in joined(25)]})),
    "optional letters": (GrammarKind.GBNF, "root ::= " + '"a"? ' * 20_000),
    "fewer of them": (GrammarKind.GBNF, "root ::= " + '"a"? ' * 4_000),
    "brackets": (GrammarKind.GBNF, "root ::= " + "(" * 5000 + '"a"' + ")" * 5000),
}


@pytest.mark.parametrize(("kind", "source"), HOSTILE.values(), ids=HOSTILE)
def test_what_would_hold_up_everybody_is_refused(compiler: GrammarCompiler, kind: GrammarKind, source: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        compiler.compile(Grammar(kind, source))
    assert refused.value.code == "bad_grammar" and refused.value.hint


FRIENDLY = {
    "a type of one's own": {"properties": {"a": {"allOf": [{"$ref": "#/$defs/A"}], "default": "x"}}, "$defs": {"A": joined(1)[0]}},
    "parts of an object": {
        "allOf": [{"properties": {f"p{n}{side}": {"pattern": f"[a-z]{{{n + 1}}}"} for n in range(20)}} for side in "ab"]
    },
    "many patterns apart": {"properties": {f"p{n}": item for n, item in enumerate(joined(30))}},
    "a tree": {"$defs": {"t": {"properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}}, "$ref": "#/$defs/t"},
    "sixty fields": {"properties": {f"p{n}": {"anyOf": [{"type": "string"}, {"enum": [1, 2]}]} for n in range(60)}},
}


@pytest.mark.parametrize("schema", FRIENDLY.values(), ids=FRIENDLY)
def test_what_programs_really_ask_for_is_taken(compiler: GrammarCompiler, schema: dict[str, Any]) -> None:
    state = compiler.compile(Grammar(GrammarKind.JSON_SCHEMA, json.dumps({"type": "object", **schema})))
    assert state.mask().any() and not state.complete


@pytest.mark.parametrize(
    "schema", [True, [], {"allOf": 3}, {"allOf": [3, None]}, {"$ref": 7, "allOf": []}, {"allOf": [{"$ref": "http://x"}]}]
)
def test_odd_schemas_are_counted_and_left_to_the_compiler(schema: Any) -> None:
    assert most_patterns(schema) == 0


def test_how_many_are_joined() -> None:
    assert most_patterns({"allOf": joined(MOST_PATTERNS)}) == MOST_PATTERNS
    assert most_patterns({"pattern": "a", "allOf": [{"pattern": "b"}, {"anyOf": joined(2)}]}) == 4
    assert most_patterns(hidden(2)) == 16
    assert most_patterns({"properties": {"a": {"allOf": joined(3)}}}) == 3
