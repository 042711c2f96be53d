"""The measurement of what a streamed token costs: it says what it was asked for, over answers that are whole. (How much, is no test.)"""

from __future__ import annotations

import argparse
import json
import socket
import threading
import time
from pathlib import Path

import pytest

from engine.bench import streaming
from engine.version import __version__


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    streaming.add_parser(parser.add_subparsers())
    return parser.parse_args(["streaming", *words])


@pytest.mark.parametrize("path", streaming.PATHS)
def test_the_document_has_a_figure_a_thread(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "streaming.json"
    words = ("--chats", "2", "--tokens", "100", "--pause", "0.2", "--weights", "0", "--path", path, "--json", str(file))
    if not hasattr(time, "pthread_getcpuclockid"):
        assert streaming.run(arguments(*words)) == 1
        assert "does not tell" in capsys.readouterr().err
        return
    assert streaming.run(arguments(*words)) == 0
    document = json.loads(file.read_text())
    assert document["omnibus"] == __version__ and (document["chats"], document["tokens"], document["path"]) == (2, 100, path)
    assert all(document[f"{name}_us_token"] > 0 for name in ("engine_alone", "engine_served", "server"))
    assert "2 chats of 100 tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["--chats", "0"], ["--tokens", "79"], ["--pause", "-1"], ["--pause", "nan"], ["--chats", "1000", "--tokens", "1000"]]
)
def test_a_wrong_question_gets_a_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert streaming.run(arguments(*words)) == 2
    assert "at most" in capsys.readouterr().err


@pytest.mark.parametrize("said", [b"HTTP/1.1 429 Too Many Requests\r\n\r\n0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nhalf an"])
def test_an_answer_that_is_not_whole_counts_for_nothing(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(said)

        thread = threading.Thread(target=answer, name="half-an-answer")
        thread.start()
        with pytest.raises(RuntimeError, match="an answer"):
            streaming.listen(listener.getsockname()[1], [{}], "/v1/completions")
        thread.join()
