"""Starting a part of the program: from a checkout, from a bundle, and nothing but what is meant for it."""

from __future__ import annotations

import sys

import pytest

from engine import itself


def test_from_a_checkout_python_runs_the_module() -> None:
    assert itself.command("engine.probe") == [sys.executable, "-P", "-m", "engine.probe"] and not itself.frozen()


def test_a_bundle_runs_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    command = itself.command("engine.model.gguf")
    assert command == [sys.executable, itself.SWITCH, "engine.model.gguf"]
    ran = []
    monkeypatch.setattr(itself.runpy, "run_module", lambda name, **how: ran.append((name, list(sys.argv), how["run_name"])))
    monkeypatch.setattr(sys, "argv", ["before"])
    assert itself.run_if_asked([*command, "a file", "b"])
    assert ran == [("engine.model.gguf", ["engine.model.gguf", "a file", "b"], "__main__")]


@pytest.mark.parametrize(
    "arguments", [["omnibus"], ["omnibus", "--run-module"], ["omnibus", "--run-module", "os"], ["omnibus", "demo", "x"]]
)
def test_everything_else_is_an_ordinary_start(arguments: list[str]) -> None:
    assert not itself.run_if_asked(arguments)


def test_only_some_modules_are_made_for_it() -> None:
    with pytest.raises(ValueError, match="os"):
        itself.command("os")
