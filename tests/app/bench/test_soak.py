"""The soak's chats on disk: what was said is compared with the file, and a difference would be told."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from app.bench import cli, soak
from app.bench.soak import KeptChats
from engine import ErrorInfo, FinishedEvent, FinishReason, TimeSplit, Usage

END = FinishedEvent("r", FinishReason.STOP, Usage(3, 2), TimeSplit(0.1, 0.2, 0.3, 0.0))


def talk(kept: KeptChats, words: str, end: FinishedEvent | ErrorInfo = END) -> str:
    chat = kept.begin()
    answer = kept.ask(chat, words)
    for piece in ("one ", "two"):
        kept.append(answer, piece)
    kept.finish(chat, answer, end)
    kept.leave(chat, "a draft")
    return chat


def test_chats_are_compared_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "CHATS", 5)
    kept = KeptChats(tmp_path)
    for number in range(9):
        talk(kept, f"question {number}", END if number % 2 else ErrorInfo("made_up", "Made up."))
    assert kept.close() == []
    figures = kept.figures()
    assert (figures["chats_kept"], figures["chats_deleted"]) == (5, 4) and figures["database_mib"] > 0


@pytest.mark.parametrize(
    "harm, words",
    [
        ("UPDATE messages SET text = 'something else' WHERE role = 'assistant'", "is another in the file"),
        ("DELETE FROM chats", "is not in the file"),
        ("UPDATE chats SET draft = ''", "the draft of chat"),
    ],
)
def test_a_word_that_is_lost_is_told(tmp_path: Path, harm: str, words: str) -> None:
    kept = KeptChats(tmp_path)
    talk(kept, "question")
    close = kept._store.close

    def close_and_harm(timeout: float) -> bool:
        done = close(timeout)
        connection = apsw.Connection(str(kept._path))
        connection.execute(harm)
        connection.close()
        return done

    kept._store.close = close_and_harm  # type: ignore[method-assign]
    assert any(words in told for told in kept.close())


def test_the_engines_soak_is_given_the_chats(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    fake = SimpleNamespace(run=lambda args, keeper: given.append((args, keeper)) or 7, add_parser=lambda subparsers: None)
    monkeypatch.setattr(soak, "_engines", lambda: fake)
    args = argparse.Namespace()
    assert soak.run(args) == 7 and given == [(args, KeptChats)]
    assert cli.BENCHES["soak"][0] == "app.bench.soak"
