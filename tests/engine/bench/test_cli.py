"""`omnibus bench`: the table of measurements, and how `work` is asked for; no engine runs here."""

from __future__ import annotations

import argparse
import importlib
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine.bench import cli, contest, peers, work
from engine.bench.contest import ContestFailed
from engine.bench.demo_view import Screen
from engine.version import __version__


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers(dest="command"))
    return parser.parse_args(["bench", *words])


def work_args(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    work.add_parser(parser.add_subparsers())
    return parser.parse_args(["work", *words])


@pytest.mark.parametrize("name", cli.BENCHES)
def test_every_measurement_is_there(name: str) -> None:
    module = importlib.import_module(cli.BENCHES[name][0])
    parser = argparse.ArgumentParser()
    module.add_parser(parser.add_subparsers())
    assert callable(module.run)


def test_the_rest_of_the_line_goes_to_the_chosen_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[argparse.Namespace] = []
    monkeypatch.setattr(work, "run", lambda args: seen.append(args) or 7)
    assert cli.run(parse("work", "--work", "W6", "--class", "32-bit", "--json", "x.json")) == 7
    assert (seen[0].work, seen[0].precision, seen[0].json) == ("W6", "32-bit", "x.json")


def test_help_of_one_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.run(parse("work", "--help"))
    assert caught.value.code == 0
    assert "--repeats" in capsys.readouterr().out


def test_an_unknown_measurement_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse("speeed")
    assert caught.value.code == 2
    assert "speeed" in capsys.readouterr().err


def test_listing_them_imports_none_of_them() -> None:
    code = "import sys, engine.bench.cli; print(*[name for name in sys.modules if name in ('torch', 'engine.bench.work', 'numpy')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(cli.__file__).parents[2])
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    "words, complaint",
    [
        (["--class", "3-bit"], "no class 3-bit"),
        (["--only", "nobody"], "no engine nobody"),
        (["--repeats", "0"], "above 0"),
        (["--rate", "nan"], "above 0"),
        (["--rate", "inf"], "at most 100"),
        (["--threads", "100000"], "at most 1024"),
        (["--log", "/"], "cannot be written"),
        (["--json", "/no/such/folder/x.json"], "cannot be written"),
    ],
)
def test_a_wrong_question_gets_a_sentence(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert work.run(work_args(*words)) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("words, status", [(["--seeds", "0"], 2), (["--seeds", "1", "--json", "/no/such/folder/x.json"], 1)])
def test_orders_of_eviction_are_not_compared_over_nothing_or_for_nobody(
    words: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(parse("eviction", *words)) == status
    told = capsys.readouterr()
    assert "omnibus bench eviction: " in told.err and not told.out


def test_only_what_is_installed_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers.Peer, "installed", lambda self: self.needs != "transformers")
    ours = ["omnibus", "omnibus-http"]
    assert work.choose(work_args()) == ours
    assert work.choose(work_args("--gguf", "x.gguf")) == [*ours, "llama-cpp"]
    assert work.choose(work_args("--url", "http://127.0.0.1:1/v1")) == [*ours, "endpoint"]
    with pytest.raises(ValueError, match="not installed"):
        work.choose(work_args("--only", "hf-static"))


def test_a_class_is_left_to_those_who_can_run_it() -> None:
    assert work.choose(work_args("--class", "8-bit")) == ["omnibus", "omnibus-http"]
    assert work.choose(work_args("--only", "omnibus-static,omnibus")) == ["omnibus-static", "omnibus"]
    with pytest.raises(ValueError, match="hf-static cannot run in 8-bit"):
        work.choose(work_args("--class", "8-bit", "--only", "hf-static"))
    with pytest.raises(ValueError, match="endpoint needs --url"):
        work.choose(work_args("--only", "endpoint"))


FIGURES = {
    "whole": [2, 2],
    "tok_s": 10.0,
    "ttft_p50_s": 0.1,
    "ttft_p95_s": 0.2,
    "itl_p50_ms": 1.0,
    "itl_p95_ms": 2.0,
    "itl_max_ms": 3.0,
    "rss_mib": 100.0,
}


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A folder that holds just the tokenizer that counts prompts."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return str(tmp_path)


def test_the_document_has_a_line_an_engine(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(name, setting, job, repeats, salt, tell, errors=None):
        tell("runs")
        assert (setting.dtype, setting.seats, setting.max_len) == ("bfloat16", 3, 2048)
        if name == "hf-static":
            raise ContestFailed("it fell over")
        return [dict(FIGURES)] * repeats

    monkeypatch.setattr(work, "measure", measure)
    path = tmp_path / "work.json"
    assert work.run(work_args("--work", "W1,W1q", "--model", model, "--json", str(path), "--repeats", "2")) == 0
    document = json.loads(path.read_text())
    assert document["omnibus"] == __version__
    ours = [result for result in document["results"] if result["engine"] == "omnibus"]
    assert [result["work"] for result in ours] == ["W1", "W1q"]
    assert ours[0] == {"engine": "omnibus", "class": "16-bit", "work": "W1", **FIGURES, "whole": [4, 4], "runs": 2}
    assert document["failed"][0] == {"engine": "hf-static", "class": "16-bit", "work": "W1", "error": "it fell over"}


def test_our_own_failure_is_a_failure(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(name, *more, **others):
        raise ContestFailed("it fell over")

    monkeypatch.setattr(work, "measure", measure)
    assert work.run(work_args("--work", "W1", "--model", model)) == 1


def test_a_contestant_that_dies_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = peers.Setting(model="/no/such/model", dtype="float32", threads=1, seats=1, max_len=64, kv_tokens=64)
    job = {"name": "T", "time_limit_s": 5, "requests": []}
    told: list[str] = []
    with pytest.raises(ContestFailed) as caught:
        contest.measure("hf-static", setting, job, 1, "s", told.append)
    assert told == ["loads the model"] and "no/such/model" in str(caught.value)
    monkeypatch.setattr(contest.sys, "executable", "/bin/false")
    with pytest.raises(ContestFailed, match="status 1"):
        contest.measure("omnibus", setting, job, 1, "s", told.append)


def test_extras_are_told_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = work.extras([{"engine": "omnibus", "tok_s": 1.0, "stall": {"worst_gap_s": 0.12345, "long_ttft_s": None}, "lost": {"why": []}}])
    assert lines == [" omnibus: worst_gap_s 0.123"]


def test_a_model_that_is_no_folder_is_a_sentence(tmp_path: Path) -> None:
    from engine import EngineError

    with pytest.raises(EngineError, match="not a model folder"):
        work.model_folder(str(tmp_path), Screen(io.StringIO(), {}).stage)


def test_memory_is_measured() -> None:
    assert contest.peak_rss_mib() > 5
