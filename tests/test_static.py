"""Style and types, as quick as they are, and what the audit of the locked packages says. Layers: test_layers.py."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
STRICT = {
    "check_untyped_defs", "disallow_any_generics", "disallow_incomplete_defs", "disallow_subclassing_any", "disallow_untyped_calls",
    "disallow_untyped_decorators", "disallow_untyped_defs", "extra_checks", "strict_equality", "warn_return_any", "warn_unused_ignores",
}  # fmt: skip


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False)


def test_ruff_finds_nothing() -> None:
    done = run("ruff", "check", "--no-cache", "--quiet", ".", "omnibus")
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_of_the_engine_hold(tmp_path: Path) -> None:
    done = run("mypy", "--cache-dir", str(tmp_path), "-p", "engine")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("module", ["engine.types.*", "engine.scheduling.*", "engine.kv.*"])
def test_mypy_is_strict_where_it_pays(module: str) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    held: set[str] = {name for name, value in settings.items() if value is True}
    for override in settings["overrides"]:
        if module in override["module"]:
            held |= {name for name, value in override.items() if value is True}
    assert held >= STRICT


# ---------------------------------------------------------------------------------------------------------------- audit


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("ci_audit", str(ROOT / ".ci" / "audit"))
    spec = importlib.util.spec_from_loader("ci_audit", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


def answering(what: Any, status: int = 0) -> tuple[str, ...]:
    """A pip-audit that says so."""
    text = what if isinstance(what, str) else json.dumps({"dependencies": what})
    return (sys.executable, "-c", f"import sys; print({text!r}); sys.exit({status})")


def test_the_locked_packages_are_asked_about_once_each(audit: ModuleType) -> None:
    packages = audit.locked()
    assert len(packages) > 40 and len(packages) == len(set(packages)) and any(name.startswith("torch==") for name in packages)
    assert not any("+" in name for name in packages)


def test_a_known_flaw_fails_and_is_named(audit: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    flaw = {"id": "PYSEC-1", "fix_versions": ["0.16"]}
    said = [{"name": "h11", "version": "0.15", "vulns": [flaw]}, {"name": "idna", "version": "3", "vulns": []}]
    assert audit.main([], answering(said, 1)) == 1
    assert "h11 0.15: PYSEC-1, mended in 0.16" in capsys.readouterr().out


def test_nothing_known_passes(audit: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main([], answering([{"name": "idna", "version": "3", "vulns": []}])) == 0
    assert "Audited 1 of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "patience"),
    [
        (answering([{"name": "h11", "skip_reason": "Dependency not found on PyPI"}]), 60),
        (answering("connection refused", 1), 60),
        ((sys.executable, "-c", "import time; time.sleep(60)"), 0.2),
        ((sys.executable, "-c", "import sys; sys.exit('No module named pip_audit')"), 60),
    ],
    ids=["knows none", "no answer", "hangs", "not installed"],
)
def test_a_service_out_of_reach_is_said_plainly_and_fails_nothing(
    audit: ModuleType, command: tuple[str, ...], patience: float, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.main([], command, patience) == 0
    assert "NOT AUDITED" in capsys.readouterr().out
    assert audit.main(["--must-reach"], command, patience) == 1
