"""Starting a part of the program: from a checkout, from a bundle, and nothing but what is meant for it."""

from __future__ import annotations

import sys
from pathlib import Path

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


def test_on_windows_the_program_with_streams_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "Omnibus.exe"))
    assert itself.command("engine.probe")[0] == str(tmp_path / "Omnibus.exe")
    (tmp_path / "omnibus-cli.exe").write_text("")
    assert itself.command("engine.probe")[0] == str(tmp_path / "omnibus-cli.exe")
    monkeypatch.setattr(itself.subprocess, "CREATE_NO_WINDOW", 0x08000000, raising=False)
    assert itself.no_console() == 0x08000000


@pytest.mark.parametrize(
    "arguments", [["omnibus"], ["omnibus", "--run-module"], ["omnibus", "--run-module", "os"], ["omnibus", "demo", "x"]]
)
def test_everything_else_is_an_ordinary_start(arguments: list[str]) -> None:
    assert not itself.run_if_asked(arguments)


def test_only_some_modules_are_made_for_it() -> None:
    with pytest.raises(ValueError, match="os"):
        itself.command("os")
