"""`omnibus models` as a person and a program use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app import cli
from engine.catalog import paths
from engine.catalog.registry import Registry
from engine.model.checks import WEIGHTS
from tests.engine.model.tiny_files import make_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    return make_folder(tmp_path / "tiny")


def test_a_life_in_the_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models", "add", str(folder)]) == 0
    capsys.readouterr()
    assert cli.main(["models", "list", "--json"]) == 0
    starter, tiny = json.loads(capsys.readouterr().out)
    assert (starter["name"], tiny["name"], tiny["path"], tiny["ready"]) == ("starter", "tiny", str(folder), True)
    assert cli.main(["models", "list"]) == 0
    assert "tiny" in capsys.readouterr().out
    assert cli.main(["models", "remove", "tiny"]) == 0
    assert "its files were left alone" in capsys.readouterr().out
    assert cli.main(["models", "remove", "tiny"]) == 1
    assert "There is no model 'tiny'" in capsys.readouterr().err


def test_a_chat_form_is_shown_chosen_and_forgotten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["models", "add", str(folder)])
    capsys.readouterr()
    assert cli.main(["models", "form", "tiny"]) == 0
    shown = capsys.readouterr().out
    assert "its own template" in shown and "<start_of_turn>user" in shown and "User: And of Italy?" in shown
    assert cli.main(["models", "form", "tiny", "gemma"]) == 0
    assert capsys.readouterr().out == "tiny: Gemma, if it has no template of its own\n"
    assert Registry().form_of(str(folder)) == "gemma"
    assert cli.main(["models", "form", "tiny", "auto"]) == 0
    assert Registry().form_of(str(folder)) == ""


def test_fit_for_programs_and_for_people(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models", "fit", str(folder), "--seats", "2", "--context", "128", "--device", "cpu", "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert set(numbers) == {"fits", "weights_mib", "kv_mib", "work_mib", "total_mib"}
    assert numbers["fits"] in ("yes", "tight", "no") and numbers["kv_mib"] == pytest.approx(2 * 128 * 2 * 2 * 32 * 4 / 2**20, abs=0.1)
    assert cli.main(["models", "fit", str(folder), "--device", "cpu"]) == 0
    assert "positions each" in capsys.readouterr().out


def test_check_says_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models", "check", str(folder)]) == 0
    good = capsys.readouterr()
    assert good.out == "tiny is a sound llama model.\n" and good.err == ""
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-1])
    assert cli.main(["models", "check", str(folder)]) == 1
    bad = capsys.readouterr()
    assert bad.out == "" and bad.err.count("\n") == 1 and "is incomplete" in bad.err
    assert cli.main(["models", "check", str(folder / "nowhere")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_another_folder_for_downloads(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models", "folder", str(tmp_path / "disk")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'disk'}\n"
