"""`omnibus demo` as it is called, over a made-up model; tests/e2e/test_demo.py has the real one."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from engine import Engine, EngineError, ModelError, Policy
from engine.bench import demo, demo_view
from engine.bench.load import riders, rush_hour
from engine.bench.policy_run import run_policy
from engine.version import __version__
from tests.engine.bench.made_up import make_opener

FIGURES = {
    "steps",
    "makespan_s",
    "tok_s",
    "ttft_p50_s",
    "ttft_p95_s",
    "idle_seat_steps",
    "boarded_step",
    "finished_step",
    "text",
}


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    demo.add_parser(parser.add_subparsers())
    return parser.parse_args(["demo", *words])


def demonstrate(*words: str, opener=None) -> int:
    return demo.demonstrate(parse(*words), opener or make_opener())


def test_the_riders_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "riders.json"
    assert demonstrate("--riders", "--json", str(path)) == 0
    document = json.loads(path.read_text())
    assert document["omnibus"] == __version__
    static, in_flight = document["policies"]["static"], document["policies"]["in_flight"]
    assert list(document["policies"]) == ["static", "in_flight"]
    assert set(static) == set(in_flight) == FIGURES
    assert static["boarded_step"] == {"A": 1, "B": 1, "C": 1, "D": 9, "E": 9, "F": 9}
    assert in_flight["boarded_step"] == {"A": 1, "B": 1, "C": 1, "D": 3, "E": 7, "F": 9}
    assert static["finished_step"] == {"A": 8, "B": 2, "C": 6, "D": 16, "E": 10, "F": 14}
    assert in_flight["finished_step"] == {"A": 8, "B": 2, "C": 6, "D": 10, "E": 8, "F": 14}
    assert (static["steps"], static["idle_seat_steps"]) == (16, 16)
    assert (in_flight["steps"], in_flight["idle_seat_steps"]) == (14, 10)
    assert static["text"] == in_flight["text"]
    assert {name: len(text) for name, text in static["text"].items()} == {"A": 8, "B": 2, "C": 6, "D": 8, "E": 2, "F": 6}
    for figures in (static, in_flight):
        assert figures["makespan_s"] > 0 and figures["tok_s"] > 0
        assert 0 < figures["ttft_p50_s"] <= figures["ttft_p95_s"] <= figures["makespan_s"] + 0.1
    out = capsys.readouterr().out
    assert "seat 2  /#....../#......" in out and "seat 2  /#/#######...." in out, "the picture shows the holes"


def test_the_whole_document(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    assert demonstrate("--pace", "0", "--json", str(path)) == 0
    document = json.loads(path.read_text())
    names = {request.id for request in rush_hour().requests}
    for figures in document["policies"].values():
        assert set(figures) == FIGURES | {"trace"}
        assert set(figures["boarded_step"]) == set(figures["finished_step"]) == set(figures["text"]) == names
        assert len(figures["trace"]) == figures["steps"]
        assert all(entry["rows"] for entry in figures["trace"])
        kinds = [decision["kind"] for entry in figures["trace"] for decision in entry["decisions"]]
        assert kinds.count("admit") == kinds.count("finish") == len(names)
    assert document["policies"]["static"]["text"] == document["policies"]["in_flight"]["text"]
    assert document["riders"]["static"]["steps"] == 16


def test_standard_output_holds_the_document_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert demonstrate("--riders", "--json", "-") == 0
    streams = capsys.readouterr()
    assert json.loads(streams.out)["omnibus"] == __version__
    assert "Tour bus" in streams.err


def test_a_file_that_cannot_be_written_is_found_before_any_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def opener(*_):
        raise AssertionError("no model is needed to see that the folder is missing")

    assert demonstrate("--json", str(tmp_path / "no" / "such.json"), opener=opener) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_model_that_cannot_be_had_is_a_sentence() -> None:
    def opener(*_):
        raise ModelError("model_missing", "There is no model in this folder.", "Name another.")

    with pytest.raises(EngineError, match="There is no model in this folder.") as caught:
        demonstrate("--riders", opener=opener)
    assert caught.value.hint == "Name another."


@pytest.mark.parametrize("pace", ["-1", "nan", "inf"])
def test_a_pace_that_is_none_is_refused(pace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert demonstrate("--pace", pace) == 2
    assert "--pace" in capsys.readouterr().err


@pytest.mark.parametrize("dtype, status, words", [("float32", 1, "a fault worth reporting"), ("bfloat16", 0, "bfloat16 rounds")])
def test_different_answers_are_told(
    dtype: str, status: int, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = demo.run_policy

    def forgetful(engine: Engine, load, policy: Policy, **more):
        run = real(engine, load, policy, **more)
        if policy is Policy.IN_FLIGHT:
            run.text["D"] = "something else"
        return run

    monkeypatch.setattr(demo, "run_policy", forgetful)
    assert demonstrate("--riders", opener=make_opener(dtype=dtype)) == status
    out = capsys.readouterr().out
    assert "Not the same under both: D." in out and words in out


def test_the_plain_output_is_short_ascii_within_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert demonstrate("--pace", "0") == 0
    out = capsys.readouterr().out
    assert out.isascii() and "\x1b" not in out
    lines = out.splitlines()
    assert max(map(len, lines)) < 80
    assert len(lines) < 120
    table = [line for line in lines if line.startswith("  empty seat-steps")]
    assert len(table) == 2 and re.findall(r"[\d,.]+", table[0]) == ["16", "10", "1.60"]


def test_decode_step_is_measured_from_decoding_steps(engine: Engine) -> None:
    both = {policy: run_policy(engine, riders(), policy) for policy in demo.POLICIES}
    durations = [record.duration for run in both.values() for record in run.records]
    assert min(durations) <= demo.decode_step_s(both) <= max(durations)


def test_waiting_for_the_model_tells_the_stages() -> None:
    told: list[str] = []
    with Engine(opener=make_opener()) as engine:
        demo.wait_for_model(engine, told.append)
        assert engine.snapshot.model.name == "made-up"
    assert all("loading" in line for line in told)


def test_the_screen_is_left_as_it_was_found() -> None:
    class Terminal:
        encoding = "utf-8"

        def __init__(self) -> None:
            self.text = ""

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> None:
            self.text += text

        def flush(self) -> None:
            pass

    terminal = Terminal()
    with pytest.raises(KeyboardInterrupt), demo_view.Screen(terminal, {"TERM": "xterm"}) as screen:
        screen.stage("loading")
        raise KeyboardInterrupt
    assert terminal.text.startswith("\x1b[?25l") and "\x1b[?25h" in terminal.text
