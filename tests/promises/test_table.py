"""The table of "What you can rely on" in README.md is true: every promise has its row, and every row a proof that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
README = (HERE.parents[1] / "README.md").read_text(encoding="utf-8")
CASES = (HERE.parent / "cases" / "README.md").read_text(encoding="utf-8")
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in HERE.glob("test_*.py"))
ROWS = re.findall(r"^\| R(\d+) \| (.*?) \| (.*) \|$", README, re.MULTILINE)


def problems(number: int, proof: str) -> list[str]:
    """What a row names and is not there."""
    wrong = []
    for name in re.findall(r"\btest_r\d\d\b", proof):
        if not re.search(rf"def {name}[_(]|def test_[r\d_]*{name[5:]}_", SOURCE):
            wrong.append(f"no test {name}")
    wrong += [f"no file {file}" for file in re.findall(r"tests/[\w/]+\.py", proof) if not (HERE.parents[1] / file).is_file()]
    wrong += [f"no case {case}" for case in re.findall(r"\b[A-Z]{2,}-\d+\b", proof) if f"| {case} |" not in CASES]
    named = re.search(rf"test_r{number:02}\b|tests/|omnibus bench", proof)
    return wrong if named else [*wrong, f"R{number} names no proof"]


def test_every_promise_has_its_row() -> None:
    assert [int(number) for number, _, _ in ROWS] == list(range(1, 28))


@pytest.mark.parametrize("number, proof", [(int(number), proof) for number, _, proof in ROWS])
def test_every_row_names_a_proof_that_is_there(number: int, proof: str) -> None:
    assert not problems(number, proof)


def test_every_test_of_a_promise_is_of_one_in_the_table() -> None:
    named = {int(number) for number in re.findall(r"_?r(\d\d)_", " ".join(re.findall(r"def test_(\w+)", SOURCE)))}
    assert named <= {int(number) for number, _, _ in ROWS}


def test_a_proof_that_is_not_there_would_be_noticed() -> None:
    assert (
        problems(1, "test_r99") and problems(1, "tests/no/such.py, test_r01") and problems(1, "test_r01, ZZ-01") and problems(1, "trust us")
    )
