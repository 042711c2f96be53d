"""The diagnostics bundle: what helps is in it, and no word of a person's."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from app import bundle, cli

SECRET = "my landlord Mr Grimble"
LOG = f"""2026-11-29 20:00:00,123 WARNING omnibus-engine engine.engine: the model could not be loaded: x.safetensors is incomplete.
2026-11-29 20:00:01,123 ERROR omnibus-engine engine.engine: request r7 could not be prepared
Traceback (most recent call last):
  File "{Path.home()}/omnibus/engine/text/codec.py", line 12, in encode
    ids = backend.encode("{SECRET}")
ValueError: cannot encode {SECRET}
{SECRET} on a line of its own
2026-11-29 20:00:02,123 INFO MainThread app.window: “{SECRET}” was opened
2026-11-29 20:00:03,123 INFO MainThread markdown_it: {SECRET}
KeyError: '{SECRET}'
"""


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "omnibus.log").write_text(LOG, encoding="utf-8")
    (folder / "chats.db").write_text(SECRET)
    return folder


def test_the_bundle_has_the_report_and_the_logs_and_no_words_of_a_persons(tmp_path: Path, logs: Path) -> None:
    target = tmp_path / "out" / "bundle.zip"
    names = bundle.write_bundle(target, {"folder": str(Path.home() / "x")}, f"data in {Path.home()}/x", logs)
    with zipfile.ZipFile(target) as made:
        assert made.namelist() == names == ["README.txt", "report.txt", "report.json", "logs/omnibus.log"]
        content = {name: made.read(name).decode() for name in names}
    everything = "".join(content.values())
    assert "Grimble" not in everything and str(Path.home()) not in everything
    log = content["logs/omnibus.log"]
    assert "the model could not be loaded: x.safetensors is incomplete." in log
    assert 'File "~/omnibus/engine/text/codec.py", line 12, in encode' in log
    assert "ValueError: …" in log and "KeyError: …" in log and "app.window: … was opened" in log and "markdown_it: …" in log
    assert json.loads(content["report.json"]) == {"folder": "~/x"}
    assert [path.name for path in target.parent.iterdir()] == ["bundle.zip"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.doctor.examine", lambda: {"problems": []})
    monkeypatch.setattr("app.doctor.as_text", lambda report: "all is well")
    assert cli.main(["doctor", "--bundle", str(tmp_path / "b.zip")]) == 0
    assert str(tmp_path / "b.zip") in capsys.readouterr().out
    (tmp_path / "file").touch()
    assert cli.main(["doctor", "--bundle", str(tmp_path / "file" / "b.zip")]) == 1
    assert "could not be written" in capsys.readouterr().err
