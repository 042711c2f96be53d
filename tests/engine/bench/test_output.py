from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from engine.bench.output import NotWritable, check_writable, human_stream, usable_cores, write_document
from engine.version import __version__


def test_a_document_carries_the_version(tmp_path: Path) -> None:
    path = str(tmp_path / "out.json")
    check_writable(path)
    assert not os.path.exists(path), "the check leaves nothing behind"
    write_document(path, {"a": 1})
    assert json.loads(Path(path).read_text()) == {"omnibus": __version__, "a": 1}


def test_the_check_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    check_writable(str(path))
    assert path.read_text() == "old"


@pytest.mark.parametrize("place", ["", "missing/out.json"])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, place: str) -> None:
    path = str(tmp_path / place)
    with pytest.raises(NotWritable, match="cannot be written"):
        check_writable(path)
    with pytest.raises(NotWritable, match="could not be written"):
        write_document(path, {})


def test_dash_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    check_writable("-")
    write_document("-", {"a": [1]})
    assert json.loads(capsys.readouterr().out)["a"] == [1]
    assert human_stream("-") is sys.stderr and human_stream("file") is sys.stdout and human_stream(None) is sys.stdout


def test_no_file_is_no_document(capsys: pytest.CaptureFixture[str]) -> None:
    check_writable(None)
    write_document(None, {"a": 1})
    assert capsys.readouterr().out == ""


def test_there_is_a_core() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
