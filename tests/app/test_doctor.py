"""The doctor: an honest report, also where next to nothing is installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from app import doctor
from engine.version import __version__

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return doctor.examine()


def test_the_report_describes_this_machine(report: dict[str, Any]) -> None:
    import torch

    assert report["omnibus"] == __version__
    assert report["packages"]["torch"] == torch.__version__ == report["torch"]["version"]
    assert [device["kind"] for device in report["torch"]["devices"]][-1] == "cpu"
    assert report["display"]["screen"] is True, "the tests run on Qt's offscreen screen"
    assert 0 < report["memory"]["available"] < report["memory"]["total"]
    assert all(free > 0 for free in report["disk"].values())
    assert Path(report["starter"]["path"]).is_relative_to(report["folders"]["cache"])
    assert not any(problem["blocks"] for problem in report["problems"])


def test_it_says_of_each_model_what_would_run(report: dict[str, Any]) -> None:
    (starter,) = report["models"]
    assert starter["name"] == "starter" and starter["fits"] in ("yes", "tight", "no")
    assert starter["says"] in doctor.as_text(report)


def test_the_text_says_the_same(report: dict[str, Any]) -> None:
    text = doctor.as_text(report)
    for said in (__version__, report["packages"]["torch"], report["folders"]["data"], report["starter"]["path"]):
        assert said in text
    if not report["problems"]:
        assert text.endswith("Nothing stands in the way.")


def test_it_lists_every_direct_dependency() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        dependencies = tomllib.load(file)["project"]["dependencies"]
    names = {re.match(r"[\w.-]+", entry)[0] for entry in dependencies}  # type: ignore[index]
    assert names == set(doctor.PACKAGES)


def test_with_nothing_installed_it_names_what_is_missing() -> None:
    """-S: no site-packages at all."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from app.cli import main; sys.exit(main(['doctor', '--json']))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["packages"]["torch"] is None and found["torch"] is None
    assert any(problem["blocks"] and "torch" in problem["message"] for problem in found["problems"])


def make_report(report: dict[str, Any], **changes: Any) -> list[str]:
    return [problem["message"] for problem in doctor.problems({**report, **changes})]


def test_each_trouble_is_told(report: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    without_gpu = {**report["torch"], "devices": [{"kind": "cpu"}], "warnings": ["The NVIDIA driver on your system is too old"]}
    told = make_report(
        report,
        packages={**report["packages"], "gguf": None, "PySide6-Essentials": None},
        torch=without_gpu,
        display={"screen": False, "environment": {}},
        starter={"name": "x", "path": "/x", "ready": False},
        memory={"total": 8e9, "available": 2e8},
        disk={"data": 5e8, "cache": None},
    )
    for words in ("gguf", "too old", "no display", "starter model", "0.2 GB of memory", "disk"):
        assert sum(words in message for message in told) == 1, (words, told)
    assert any("stuck" in message for message in make_report(report, torch={"error": "a driver may be stuck"}))
