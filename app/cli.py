"""The command line: which sub-commands there are, and how a person's mistakes and our errors look in a terminal.

Owns the table of commands. A command is a module with `add_parser(subparsers)` and `run(args) -> int`, imported only when it is asked for.
Must never import Qt, torch or a command's module at import, so that `omnibus --version` and `omnibus doctor` work on a broken installation.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import cast

from app import guards, spoken
from engine.version import __version__

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


@dataclass(frozen=True)
class Command:
    """One sub-command: the module that holds it, its line in `--help`, and whether it opens a window."""

    module: str
    summary: str
    window: bool = False


COMMANDS = {
    "window": Command("app.window.start", "open the window (what `omnibus` alone does)", window=True),
    "demo": Command("engine.bench.demo", "run a scripted load under both policies and show it in the terminal"),
    "chat": Command("app.terminal_chat", "chat in the terminal"),
    "models": Command("engine.catalog.cli", "list, check, find, fetch and remove models"),
    "chats": Command("app.chats_command", "list, search, import and export chats"),
    "serve": Command("engine.server.cli", "serve an OpenAI-compatible API on this machine"),
    "bench": Command("app.bench.cli", "measure the engine"),
    "shot": Command("app.shot", "draw the window in every state into PNG files"),
    "self-test": Command("app.self_test", "try this installation: a window without a screen, the model, two chats at once"),
    "doctor": Command("app.doctor", "say what this machine and this installation have, and what they lack"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the process's exit status: 0 done, 1 failed, 2 asked for in a wrong way or without a screen."""
    spoken.provide()
    arguments = with_default_command(list(sys.argv[1:] if argv is None else argv))
    chosen = arguments[0] if arguments[0] in COMMANDS else None
    try:
        module = importlib.import_module(COMMANDS[chosen].module) if chosen else None
        args = build_parser(chosen, module).parse_args(arguments)
        if chosen is None or module is None:  # --help, --version and unknown names have ended in parse_args
            return 2
        if COMMANDS[chosen].window and (problem := guards.window_problem(os.environ)):
            return complain(problem.message, problem.hint, status=problem.status)
        return run(module, args)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name in ("app", "engine"):
            raise
        return complain(f"the package {name!r} is not installed.", "Start Omnibus through ./omnibus, which installs what is missing.")
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def with_default_command(arguments: list[str]) -> list[str]:
    """`omnibus` and `omnibus --some-option` mean the window; help and version belong to the whole program, `--self-test` is a command."""
    whole_program = ("-h", "--help", "-V", "--version")
    if arguments[:1] == ["--self-test"]:
        return ["self-test", *arguments[1:]]
    if arguments and arguments[0] not in COMMANDS and arguments[0].lower().endswith(".gguf"):
        return ["window", "--model", *arguments]  # a file that was double-clicked
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in whole_program):
        return ["window", *arguments]
    return arguments


def build_parser(chosen: str | None, module: ModuleType | None) -> argparse.ArgumentParser:
    """A parser that knows every command by name, and the options of the chosen one."""
    parser = argparse.ArgumentParser(prog="omnibus", description="Many chats on one local model, and the batch they ride in.")
    parser.add_argument("-V", "--version", action="version", version=f"omnibus {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        if module is not None and name == chosen:
            module.add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=command.summary)
    return parser


def run(module: ModuleType, args: argparse.Namespace) -> int:
    """Run a command's module, turning the engine's own errors into two lines for a person."""
    from engine import EngineError

    try:
        status, why = cast(int, module.run(args)), spoken.loss()
    except EngineError as error:
        return complain(error.message, error.hint)
    except BrokenPipeError:  # whoever read our output has gone (`omnibus demo | head`)
        spoken.let_go()
        return 1
    except OSError as error:
        status, why = 1, spoken.loss(error)
        if why is None:
            raise
    if why is None:
        return status
    spoken.let_go()
    return complain(f"what was to be said could not be written: {why}.")


def complain(message: str, hint: str = "", status: int = 1) -> int:
    print(f"omnibus: {message}", file=sys.stderr)
    if hint:
        print(hint, file=sys.stderr)
    return status
