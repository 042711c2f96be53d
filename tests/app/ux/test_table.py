"""The table of README.md is true: every row names tests that are there, and every test of this folder has its row."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parents[1]
ROWS = re.findall(r"^\| (.+?) \| (`.+`) \|$", (HERE / "README.md").read_text(encoding="utf-8"), re.MULTILINE)


@cache
def names_in(path: str) -> frozenset[str]:
    """The names of a file's tests; none for a file that is not there."""
    file = TESTS / path
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))


def missing(cell: str) -> list[str]:
    """What a cell names that is not there; the cell itself where it names nothing."""
    named = re.findall(r"`([^`]+)`", cell)
    return [name for name in named if name.partition("::")[2] not in names_in(name.partition("::")[0])] if named else [cell]


@pytest.mark.parametrize(("row", "cell"), ROWS, ids=[row[:40] for row, _ in ROWS])
def test_every_row_names_tests_that_are_there(row: str, cell: str) -> None:
    assert not missing(cell)


def test_a_test_that_is_not_there_would_be_noticed() -> None:
    assert missing("`app/ux/test_table.py::test_nothing`") and missing("`app/no/such.py::test_nothing`") and missing("trust us")
    assert not missing("`app/ux/test_table.py::test_a_test_that_is_not_there_would_be_noticed`")


def test_every_test_of_this_folder_has_its_row() -> None:
    named = {name for _, cell in ROWS for name in re.findall(r"`([^`]+)`", cell)}
    here = {
        f"app/ux/{file.name}::{name}"
        for file in HERE.glob("test_*.py")
        if file.name != "test_table.py"
        for name in names_in(f"app/ux/{file.name}")
    }
    assert here and here <= named
    lines = [line for line in (HERE / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ") and "`" in line]
    assert len(lines) == len(ROWS) > 70
