"""The rules of the house that a reader cannot see in one file: who may import whom, and a few calls that nobody may make."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

QT = ("PySide6", "shiboken6", "qasync")
MODEL_LIBRARIES = ("torch", "transformers", "accelerate", "safetensors", "gguf", "tokenizers", "huggingface_hub")

# The engine's public face; the version and how the program starts a part of itself are no part of the engine's inside.
FACE = ("engine", "engine.version", "engine.itself")


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


# ------------------------------------------------------------------------------------------------------- rules over the text
# A rule takes a parsed file and yields the line numbers at which the file breaks it.

Rule = Callable[[ast.AST], Iterator[int]]


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted module) of every import statement, also those inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module


def imports_of(*tops: str) -> Rule:
    def rule(tree: ast.AST) -> Iterator[int]:
        return (line for line, module in imported(tree) if module.partition(".")[0] in tops)

    return rule


def imports_behind_the_face(tree: ast.AST) -> Iterator[int]:
    return (line for line, module in imported(tree) if module.partition(".")[0] == "engine" and module not in FACE)


def relative_imports(tree: ast.AST) -> Iterator[int]:
    """They would hide from the rules above."""
    return (node.lineno for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level)


def modal_exec(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("exec", "exec_"):
            yield node.lineno


def async_slot(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else [getattr(node, "attr", "")]
        if {"asyncSlot", "asyncClose"} & set(names):
            yield node.lineno  # type: ignore[attr-defined]


def torch_load(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "load" and isinstance(node.value, ast.Name) and node.value.id == "torch":
            yield node.lineno
        if isinstance(node, ast.ImportFrom) and node.module == "torch" and any(alias.name == "load" for alias in node.names):
            yield node.lineno


def remote_code(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "trust_remote_code" and getattr(node.value, "value", True) is not False:
            yield node.value.lineno


def nameless_threads(tree: ast.AST) -> Iterator[int]:
    # class: (keyword of the name, how many positional arguments include it)
    named_by = {"Thread": ("name", 3), "ThreadPoolExecutor": ("thread_name_prefix", 2)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            keyword, place = named_by.get(called, ("", 0))
            if keyword and len(node.args) < place and keyword not in [given.arg for given in node.keywords]:
                yield node.lineno


# name: (rule, packages it holds for, files it does not hold for, a line that breaks it)
RULES: dict[str, tuple[Rule, tuple[str, ...], tuple[str, ...], str]] = {
    "the engine knows nothing of Qt": (imports_of(*QT), ("engine",), (), "def f():\n    from PySide6.QtCore import QObject"),
    "the engine knows nothing of the app": (imports_of("app"), ("engine",), (), "import app.cli"),
    "the app never imports the model libraries": (imports_of(*MODEL_LIBRARIES), ("app",), (), "import torch.nn as nn"),
    "the app knows the engine by its face": (imports_behind_the_face, ("app",), (), "from engine.kv.pool import BlockPool"),
    "imports are absolute": (relative_imports, ("app", "engine"), (), "from .kv import pool"),
    "nothing blocks in a modal exec": (modal_exec, ("app",), ("app/window/start.py",), "dialog.exec()"),
    "no asyncSlot": (async_slot, ("app",), (), "from qasync import asyncSlot"),
    "no pickle": (
        imports_of("pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"),
        ("app", "engine"),
        (),
        "import pickle",
    ),
    "no torch.load": (torch_load, ("engine",), (), "weights = torch.load(path)"),
    "no remote code": (remote_code, ("engine",), (), "f(path, trust_remote_code=True)"),
    "every thread has a name": (nameless_threads, ("app", "engine"), (), "threading.Thread(target=f).start()"),
}


@pytest.mark.parametrize("name", RULES)
def test_rule_holds(name: str) -> None:
    rule, packages, exempt, _ = RULES[name]
    broken = []
    for package in packages:
        for path in sources(package):
            place = path.relative_to(ROOT).as_posix()
            if place not in exempt:
                broken += [f"{place}:{line}" for line in rule(ast.parse(path.read_text(encoding="utf-8")))]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("name", RULES)
def test_rule_bites(name: str) -> None:
    rule, _, _, bad = RULES[name]
    assert list(rule(ast.parse(bad)))
    assert not list(rule(ast.parse("import json\nfrom engine import Engine\nprint(json.loads('1').real)")))


# ------------------------------------------------------------------------------------------------------- rules over real imports

BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {tops!r}:
            raise ImportError("blocked by test_layers: " + name)

sys.meta_path.insert(0, Blocker())
"""


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


def import_with_blocked(tops: tuple[str, ...], modules: list[str]) -> subprocess.CompletedProcess[str]:
    return run_python(BLOCKER.format(tops=tops) + "\n".join(f"import {module}" for module in modules))


def test_the_whole_engine_imports_without_qt() -> None:
    modules = [module_name(path) for path in sources("engine") if path.name != "__main__.py"]
    assert "engine.types" in modules
    done = import_with_blocked(QT, modules)
    assert done.returncode == 0, done.stderr


def test_what_must_not_need_the_model_imports_without_it() -> None:
    paths = [*sources("engine/scheduling"), ROOT / "engine/kv/pool.py", *sources("engine/types"), *sources("app/chats")]
    done = import_with_blocked((*MODEL_LIBRARIES, "numpy", *QT), [module_name(path) for path in paths])
    assert done.returncode == 0, done.stderr


def test_the_block_really_blocks() -> None:
    assert "blocked by test_layers" in import_with_blocked(MODEL_LIBRARIES, ["torch"]).stderr


def test_the_command_line_starts_without_qt_and_without_the_model() -> None:
    """The window shows before torch is there, and `omnibus doctor` works where either is broken."""
    code = "import sys, engine, app.cli, app.doctor; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert not set(done.stdout.split()) & {*QT, *MODEL_LIBRARIES, "numpy"}


def test_import_linter_contracts() -> None:
    done = run_python("from importlinter.cli import lint_imports_command; lint_imports_command()")
    assert done.returncode == 0, done.stdout + done.stderr
