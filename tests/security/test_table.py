"""The table of SECURITY.md is true: every threat has its row, and every row names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROWS = re.findall(r"^\| (T\d+) \| (.*?) \| (.*) \| (.*?) \|$", (TESTS.parent / "SECURITY.md").read_text(encoding="utf-8"), re.MULTILINE)
CASES = (TESTS / "cases" / "README.md").read_text(encoding="utf-8")
PROMISES = "\n".join(path.read_text(encoding="utf-8") for path in (TESTS / "promises").glob("test_*.py"))
THREATS = "tests/security/test_threats.py"


def named(words: str) -> list[str]:
    """The tests that a cell names: files, tests, cases, promises, other rows. Raises AssertionError for what is not there."""
    found: list[str] = []
    path = ""
    for file, test in re.findall(r"([\w/]+\.py)?(?:threats)?::(test_\w+)|", words):
        if not test:
            continue
        path = file or path
        where = TESTS / path if path and f"threats::{test}" not in words else TESTS / "security" / "test_threats.py"
        assert f"def {test}" in where.read_text(encoding="utf-8"), f"{where} has no {test}"
        found.append(test)
    for file in re.findall(r"[\w/]+\.py", words):
        assert (TESTS / file).is_file(), f"there is no {file}"
        found.append(file)
    for case in re.findall(r"\b[A-Z]{2,}-\d+\b", words):
        assert re.search(rf"^\| {case} \|", CASES, re.MULTILINE), f"there is no case {case}"
        found.append(case)
    for promise in re.findall(r"\bR(\d+)\b", words):
        assert f"def test_r{int(promise):02}" in PROMISES, f"no test of R{promise}"
        found.append(promise)
    return found + re.findall(r"\bT\d+\b", words)


def test_every_threat_has_its_row() -> None:
    assert [name for name, *_ in ROWS] == [f"T{number}" for number in range(1, 27) if number != 5]


@pytest.mark.parametrize("name, proof", [(name, proof) for name, _, _, proof in ROWS], ids=[name for name, *_ in ROWS])
def test_every_row_names_tests_that_are_there(name: str, proof: str) -> None:
    assert named(proof), f"{name} names no test"


def test_a_test_that_is_not_there_would_be_noticed() -> None:
    for words in ("threats::test_t99", "engine/none.py", "case API-99", "promises R99", "app/test_cli.py::test_no_such"):
        with pytest.raises(AssertionError):
            named(words)
