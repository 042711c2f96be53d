"""The table of README.md is true: every case is there once, and names tests that exist and exercise it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
COUNT = 97


def marked_cases() -> dict[str, set[str]]:
    """What the marks in this folder say."""
    found: dict[str, set[str]] = {}
    for path in HERE.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Attribute) and mark.func.attr == "case":
                        for argument in mark.args:
                            assert isinstance(argument, ast.Constant)
                            found.setdefault(str(argument.value), set()).add(f"{path.name}::{node.name}")
    return found


def test_every_case_has_a_row_that_is_true() -> None:
    rows = re.findall(r"^\| ([A-Z]+-\d+) \| .*? \| (.*?) \| (.+?) \|$", (HERE / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == len({case for case, _, _ in rows}) == COUNT
    marked = marked_cases()
    for case, tests, state in rows:
        assert set(re.findall(r"`([^`]+)`", tests)) == marked[case], case
        assert state
    assert set(marked) == {case for case, _, _ in rows}
