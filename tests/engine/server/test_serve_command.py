"""`omnibus serve` up to the model: its options, its token, its refusals."""

from __future__ import annotations

import argparse
import ast
from pathlib import Path

import pytest

from app.cli import main
from engine.server import cli
from engine.server.access import VARIABLE, stored_token, token_file

ROOT = Path(__file__).resolve().parents[3]


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    return parser.parse_args(["serve", *words])


def test_by_default_it_is_for_this_machine_only() -> None:
    args = parse()
    assert (args.host, args.no_token, args.token, args.allow_origin, args.allow_host) == ("127.0.0.1", False, None, [], [])


def test_one_token_at_a_time() -> None:
    with pytest.raises(SystemExit):
        parse("--token", "x", "--no-token")


def test_the_token_is_the_given_one_else_the_environments_else_the_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert cli.choose_token(None, True)[0] is None
    token, words = cli.choose_token(None, False)
    assert token == stored_token() and str(token_file()) in words
    monkeypatch.setenv(VARIABLE, "from-the-environment")
    assert cli.choose_token(None, False)[0] == "from-the-environment"
    assert cli.choose_token("given", False)[0] == "given"
    assert cli.choose_token(None, True)[0] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0", "--no-token"], "a token is needed"),
        (["--host", "0.0.0.0", "--token", "1234"], "too easy to guess"),
        (["--port", "70000", "--no-token"], "cannot be listened on"),
        (["--max-queue", "0", "--no-token"], "must be at least 1"),
        (["--seats", "0", "--no-token"], "must be at least 1"),
        (["--threads", "100000", "--no-token"], "must be at most 1024"),
        (["--model-name", "", "--no-token"], "name of the model is empty"),
        (["--tier-tokens", "-1", "--no-token"], "must be 0 or more"),
        (["--tier-folder", "/tmp", "--no-token"], "nothing would be set aside"),
    ],
)
def test_what_is_unsafe_or_unsound_is_refused_before_a_model_is_loaded(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *words]) == 1
    error = capsys.readouterr().err
    assert said in error


def test_the_window_brings_no_server_along() -> None:
    """Off by default: outside the command, nothing in the app or the engine imports what can listen."""
    listeners = ("uvicorn", "starlette", "http.server", "socketserver", "engine.server.serving")
    found = []
    for path in [*ROOT.glob("app/**/*.py"), *ROOT.glob("engine/**/*.py")]:
        place = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", "")]
            if isinstance(node, (ast.Import, ast.ImportFrom)) and any((name or "").startswith(listeners) for name in names):
                found.append(place)
    elsewhere = {place for place in found if not place.startswith("engine/server/")}
    # These listen when they are asked for.
    measurements = {f"engine/bench/{name}.py" for name in ("endpoint", "soak_real", "parity_model", "streaming")}
    assert elsewhere <= measurements
    assert "engine/server/serving.py" in found
