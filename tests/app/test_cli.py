"""The command line: which words lead where, and what a person reads when something is wrong."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from types import ModuleType
from typing import Any

import pytest

from app import cli, guards
from engine import RequestRefused
from engine.version import __version__


def make_command(monkeypatch: pytest.MonkeyPatch, name: str, action: Any, window: bool = False) -> list[argparse.Namespace]:
    """Put a command into the table whose `run` calls `action(args)`; returns the list of the arguments it was run with."""
    seen: list[argparse.Namespace] = []
    module = ModuleType(f"command_{name}")

    def add_parser(subparsers: Any) -> None:
        subparsers.add_parser(name).add_argument("--size", type=int, default=1)

    def run(args: argparse.Namespace) -> Any:
        seen.append(args)
        return action(args)

    module.add_parser, module.run = add_parser, run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(cli.COMMANDS, name, cli.Command(module.__name__, "for the test", window=window))
    return seen


def test_a_command_gets_its_arguments_and_gives_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = make_command(monkeypatch, "ride", lambda args: 7)
    assert cli.main(["ride", "--size", "3"]) == 7
    assert seen[0].size == 3


def test_without_a_command_the_window_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = make_command(monkeypatch, "window", lambda args: 0)
    assert cli.main([]) == 0 and cli.main(["--size", "2"]) == 0
    assert [args.size for args in seen] == [1, 2]


def test_a_model_file_opens_the_window_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.with_default_command(["/home/me/Ein Modell.GGUF"]) == ["window", "--model", "/home/me/Ein Modell.GGUF"]
    assert cli.with_default_command(["--self-test", "--json", "f"]) == ["self-test", "--json", "f"]
    assert cli.with_default_command(["--safe-mode"]) == ["window", "--safe-mode"]
    assert cli.with_default_command(["chat", "--model", "x.gguf"]) == ["chat", "--model", "x.gguf"]


def test_no_window_where_a_guard_objects(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    seen = make_command(monkeypatch, "window", lambda args: 0, window=True)
    monkeypatch.setattr(
        guards, "window_problem", lambda environ: guards.Problem("no_display", "there is no display.", "Try this.", status=2)
    )
    assert cli.main([]) == 2 and seen == []
    assert capsys.readouterr().err == "omnibus: there is no display.\nTry this.\n"


def test_an_engine_error_is_two_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(args: argparse.Namespace) -> int:
        raise RequestRefused("prompt_too_long", "The prompt has 9 tokens; 8 fit.", "Shorten it.")

    make_command(monkeypatch, "ride", refuse)
    assert cli.main(["ride"]) == 1
    assert capsys.readouterr().err == "omnibus: The prompt has 9 tokens; 8 fit.\nShorten it.\n"


def test_ctrl_c_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    make_command(monkeypatch, "ride", interrupt)
    assert cli.main(["ride"]) == 130
    assert capsys.readouterr().err == ""


class FullDisk(io.RawIOBase):
    """As /dev/full, on any system, until there is `room`."""

    room = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return len(data)


@pytest.mark.parametrize("words", ["short", "long" * 100_000])
def test_words_that_a_full_disk_does_not_take(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    disk = FullDisk()
    with io.TextIOWrapper(io.BufferedWriter(disk), encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        make_command(monkeypatch, "ride", lambda args: print(words) or 0)
        assert cli.main(["ride"]) == 1
        disk.room = True
    assert capsys.readouterr().err == f"omnibus: what was to be said could not be written: {os.strerror(errno.ENOSPC)}.\n"


def test_a_failure_of_another_file_is_not_taken_for_one_of_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(args: argparse.Namespace) -> int:
        raise OSError(errno.EIO, "no such luck", "a file")

    make_command(monkeypatch, "ride", fail)
    with pytest.raises(OSError, match="no such luck"):
        cli.main(["ride"])


def test_closed_streams_are_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)

    def ride(args: argparse.Namespace) -> int:
        print("hello")
        return int(sys.stdout.isatty())

    make_command(monkeypatch, "ride", ride)
    assert cli.main(["ride"]) == 0
    sys.stdout.close()
    sys.stderr.close()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(cli.COMMANDS, "ride", cli.Command("a_package_nobody_has.ride", "for the test"))
    assert cli.main(["ride"]) == 1
    assert "'a_package_nobody_has'" in capsys.readouterr().err


def test_a_missing_module_of_ours_is_a_bug_and_shows_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.COMMANDS, "ride", cli.Command("app.nothing_here", "for the test"))
    with pytest.raises(ModuleNotFoundError):
        cli.main(["ride"])


@pytest.mark.parametrize("arguments", [["dmeo"], ["ride", "--size", "x"], ["ride", "--colour"]])
def test_wrong_words_end_with_two(monkeypatch: pytest.MonkeyPatch, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    make_command(monkeypatch, "ride", lambda args: 0)
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2 and arguments[-1] in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--version"], ["-V"], ["--help"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == 0
    out = capsys.readouterr().out
    assert f"omnibus {__version__}\nomnibus {__version__}\n" in out
    assert all(command.summary in " ".join(out.split()) for command in cli.COMMANDS.values())


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_of_the_table_is_there(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    assert ended.value.code == 0 and f"omnibus {name}" in capsys.readouterr().out
