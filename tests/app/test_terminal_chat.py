"""The terminal chat over a real engine with a made-up model, and over scripted answers where a model would not say what is needed."""

from __future__ import annotations

import argparse
import io
import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from app import cli
from app.terminal_chat import TerminalChat, add_parser, open_engine
from engine import Engine, EngineError, Message, SamplingParams
from tests.engine.bench.made_up import make_engine, wait_for
from tests.engine.remote.scripted import ScriptedServer, serving

PARAMS = SamplingParams(max_tokens=5, min_tokens=5, temperature=0.0, ignore_eos=True, seed=0)


@pytest.fixture
def engine() -> Iterator[Engine]:
    with make_engine(seats=1) as made:
        made.wait_ready(60)
        yield made


def make_chat(engine: Engine, *lines: str, interactive: bool = False, params: SamplingParams = PARAMS, **more) -> TerminalChat:
    left = list(lines)

    def read(prompt: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    return TerminalChat(engine, params, read=read, out=io.StringIO(), interactive=interactive, **more)


def test_a_turn_is_streamed_and_remembered(engine: Engine) -> None:
    chat = make_chat(engine, "hello", "again")
    assert chat.converse() == 0
    assert [turn.role for turn in chat.turns] == ["user", "assistant", "user", "assistant"]
    first, second = (turn.content for turn in chat.turns if turn.role == "assistant")
    assert len(first) == len(second) == 5
    assert chat.out.getvalue() == f"{first}\n{second}\n"


def test_one_question_prints_its_answer_alone(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    chat = make_chat(engine)
    assert chat.ask("hello") == 0
    assert chat.out.getvalue() == chat.turns[-1].content + "\n"
    assert chat.ask("x" * 20_000) == 1
    assert "The prompt has" in capsys.readouterr().err and chat.out.getvalue().count("\n") == 1


def test_new_forgets_all_but_the_system_prompt(engine: Engine) -> None:
    chat = make_chat(engine, "hello", "/new", "other", system="be kind")
    chat.converse()
    assert chat.turns[:2] == [Message("system", "be kind"), Message("user", "other")]
    assert len(chat.turns) == 3


@pytest.mark.parametrize("word", ["/quit", "/exit", "/q"])
def test_quit_leaves(engine: Engine, word: str) -> None:
    chat = make_chat(engine, word, "never asked")
    assert chat.converse() == 0
    assert chat.turns == []


def test_commands_and_blank_lines_are_not_questions(engine: Engine) -> None:
    chat = make_chat(engine, "", "   ", "/help", "/nwe", interactive=True)
    chat.converse()
    assert chat.turns == []
    assert "There is no command /nwe." in chat.out.getvalue()


def test_a_path_is_a_question(engine: Engine) -> None:
    chat = make_chat(engine, "/etc/hosts is what?", "/usr/bin")
    chat.converse()
    assert [turn.content for turn in chat.turns if turn.role == "user"] == ["/etc/hosts is what?", "/usr/bin"]


def test_a_person_is_told_the_speed_and_a_pipe_is_not(engine: Engine) -> None:
    person, pipe = make_chat(engine, "hi", interactive=True), make_chat(engine, "hi")
    person.converse()
    pipe.converse()
    assert "[5 tokens" in person.out.getvalue() and "; at its limit]" in person.out.getvalue()
    assert "[" not in pipe.out.getvalue()


def test_a_refused_question_is_taken_back(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    chat = make_chat(engine, "x" * 20_000, "hello")
    assert chat.converse() == 0
    assert [turn.content for turn in chat.turns if turn.role == "user"] == ["hello"]
    assert "The prompt has" in capsys.readouterr().err


def test_a_failing_model_does_not_end_the_chat(capsys: pytest.CaptureFixture[str]) -> None:
    broken = threading.Event()
    broken.set()

    def fault(rows) -> None:
        if broken.is_set():
            broken.clear()
            raise RuntimeError("soup")

    with make_engine(seats=1, fault=fault) as engine:
        engine.wait_ready(60)
        chat = make_chat(engine, "hello", "again")
        assert chat.converse() == 0
    assert [turn.content for turn in chat.turns if turn.role == "user"] == ["again"]
    assert "soup" in capsys.readouterr().err


def test_a_closed_engine_ends_the_chat(engine: Engine) -> None:
    engine.close()
    chat = make_chat(engine, "hello")
    assert chat.converse() == 1


@pytest.mark.skipif(not hasattr(signal, "raise_signal") or os.name == "nt", reason="POSIX signals")
def test_ctrl_c_stops_the_answer_and_keeps_what_was_said() -> None:
    """The interrupt arrives in this thread, as it does in a terminal, while the answer is far from its end."""
    seen = threading.Event()
    steps = 0

    def fault(rows) -> None:
        nonlocal steps
        steps += 1
        if steps > 20 and not seen.is_set():
            seen.set()
            os.kill(os.getpid(), signal.SIGINT)
        if steps > 20:
            threading.Event().wait(0.002)  # give the reader its turn

    endless = SamplingParams(max_tokens=100_000, min_tokens=100_000, temperature=0.0, ignore_eos=True, seed=0)
    before = signal.getsignal(signal.SIGINT)
    with make_engine(seats=1, fault=fault, blocks=8192) as engine:
        engine.wait_ready(60)
        chat = make_chat(engine, "count", interactive=True, params=endless)
        assert chat.converse() == 0
        wait_for(engine, lambda: engine.snapshot.seated == 0)
    assert signal.getsignal(signal.SIGINT) is before
    said = chat.turns[-1]
    assert said.role == "assistant" and 0 < len(said.content) < 100_000
    assert said.content in chat.out.getvalue() and "; stopped]" in chat.out.getvalue()


def test_ctrl_c_at_the_prompt_explains_itself(engine: Engine) -> None:
    lines: Iterator[Callable[[], str]] = iter([interrupt, lambda: "/quit"])
    chat = TerminalChat(engine, PARAMS, read=lambda prompt: next(lines)(), out=io.StringIO(), interactive=True)
    assert chat.converse() == 0
    assert "/quit" in chat.out.getvalue()


def interrupt() -> str:
    raise KeyboardInterrupt


def test_ctrl_c_ends_a_pipe(engine: Engine) -> None:
    chat = TerminalChat(engine, PARAMS, read=lambda prompt: interrupt(), out=io.StringIO(), interactive=False)
    with pytest.raises(KeyboardInterrupt):
        chat.converse()


def test_escape_sequences_of_the_model_do_not_reach_the_terminal(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = iter(["a\x1b[2J", "b\r", "\x9b31m", "ä\t", "\n❤"])
    monkeypatch.setattr("tests.engine.bench.made_up.LetterStream.push", lambda self, token: next(pieces))
    chat = make_chat(engine, "hello")
    chat.converse()
    assert chat.out.getvalue() == "a[2Jb31mä\t\n❤\n"


def test_a_narrow_encoding_does_not_end_the_chat(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.engine.bench.made_up.LetterStream.push", lambda self, token: "ж")
    chat = make_chat(engine, "hello")
    raw = io.BytesIO()
    chat.out = io.TextIOWrapper(raw, encoding="ascii")
    chat.converse()
    chat.out.flush()
    assert raw.getvalue() == b"?????\n"


def test_loading_is_shown_and_a_missing_model_is_an_error() -> None:
    with make_engine(seats=1) as engine:
        chat = make_chat(engine, interactive=True)
        chat.wait_for_model()
        assert "made-up on cpu" in chat.out.getvalue()

    def opener(*_):
        raise EngineError("model_missing", "There is no such model.")

    with Engine(opener=opener) as engine, pytest.raises(EngineError, match="no such model"):
        make_chat(engine).wait_for_model()


def test_a_chat_with_a_remote_engine(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(ScriptedServer()) as server:
        assert cli.main(["chat", "--remote", server.url, "--key", "secret", "--prompt", "hello", "--greedy", "--max-tokens", "9"]) == 0
        (request,) = server.requests
    out = capsys.readouterr()
    assert (out.out, out.err) == ("Hello\n", "")
    assert request.key == "Bearer secret" and (request.body["temperature"], request.body["max_tokens"]) == (0.0, 9)


def test_where_the_metrics_are_can_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    engine = open_engine(parser.parse_args(["chat", "--remote", "gpu-box:8000", "--metrics", "head:8080"]))
    assert engine._remote.metrics_url == "http://head:8080/metrics"
    assert cli.main(["chat", "--remote", "http://127.0.0.1:9", "--metrics", "no address", "--prompt", "hello"]) == 1
    assert "'no address' is no address" in capsys.readouterr().err


def test_a_remote_engine_that_is_not_there_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["chat", "--remote", "http://127.0.0.1:9", "--key", "k", "--prompt", "hello"]) == 1
    out = capsys.readouterr()
    assert out.out == "" and "127.0.0.1:9 cannot be reached." in out.err
