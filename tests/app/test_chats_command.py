"""`omnibus chats`, as a person types it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest

from app import cli
from app.chats.book import ChatBook
from app.chats.lock import FolderLock
from app.chats.model import ChatSettings
from app.chats.store import ChatStore

EXPORT = [
    {
        "title": f"Chat {number}",
        "conversation_id": str(number),
        "create_time": 1700000000 + number,
        "mapping": {
            "a": {"parent": None, "message": {"author": {"role": "user"}, "content": {"parts": [f"question {number} 北京 C++"]}}},
            "b": {"parent": "a", "message": {"author": {"role": "assistant"}, "content": {"parts": [f"answer \x1b[31m{number}"]}}},
        },
    }
    for number in range(3)
]


@pytest.fixture
def data(tmp_path, capsys):
    (tmp_path / "conversations.json").write_text(json.dumps([*EXPORT, {"mapping": 1, "title": "bad"}]))
    assert cli.main(["chats", "import", str(tmp_path / "conversations.json"), "--data", str(tmp_path / "data")]) == 0
    out = capsys.readouterr().out
    assert "3 chats imported from ChatGPT. 1 entry was skipped." in out and "bad" in out
    return tmp_path / "data"


def test_list_shows_every_chat_newest_first(data, capsys):
    assert cli.main(["chats", "--data", str(data), "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rsplit("  ", 1)[1] for line in lines] == ["Chat 2", "Chat 1", "Chat 0"] and "    2  Chat" in lines[0]


def test_a_full_disk_under_the_output_is_not_blamed_on_the_chats(data, capsys, monkeypatch):
    def full(text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sys.stdout, "write", full)
    assert cli.main(["chats", "--data", str(data), "list"]) == 1
    told = capsys.readouterr().err
    assert "what was to be said could not be written" in told and str(data) not in told


def test_search_finds_and_never_steers_the_terminal(data, capsys):
    assert cli.main(["chats", "search", "北京", "c++", "--data", str(data)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert cli.main(["chats", "search", "answer", "--data", str(data)]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 3 and "\x1b" not in out
    assert cli.main(["chats", "search", "nowhere", "--data", str(data)]) == 1
    assert "Nothing was found" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["md", "json", "html"])
def test_export_to_the_standard_output_and_to_files(data, form, capsys, tmp_path):
    assert cli.main(["chats", "export", "--format", form, "--data", str(data)]) == 0
    out = capsys.readouterr().out
    assert all(f"question {number} 北京" in out for number in range(3))
    assert cli.main(["chats", "export", "Chat 1", "--format", form, "--data", str(data), "-o", str(tmp_path / "one")]) == 0
    one = (tmp_path / "one").read_text(encoding="utf-8")
    assert "question 1" in one and "question 2" not in one
    assert cli.main(["chats", "export", "--format", form, "--data", str(data), "-o", f"{tmp_path}/many/"]) == 0
    assert len(list((tmp_path / "many").glob(f"Chat ? *.{form}"))) == 3


def test_odd_letters_stop_no_export(tmp_path, capsysbinary):
    """Half of a surrogate pair in the system prompt, and a title of letters that take four bytes each in a file's name."""
    book = ChatBook(store := ChatStore(tmp_path / "chats.db"))
    chat = book.new_chat()
    book.set_settings(chat.id, ChatSettings(system_prompt="half \ud83d"))
    book.add_user(chat.id, "hi")
    book.rename(chat.id, "\U00020010" * 60)
    assert book.commit(60) and store.close(60)
    for form in ("md", "json", "html", "pdf"):
        assert cli.main(["chats", "export", "--format", form, "--data", str(tmp_path)]) == 0
        assert capsysbinary.readouterr().out
        assert cli.main(["chats", "export", "--format", form, "--data", str(tmp_path), "-o", f"{tmp_path}/out/"]) == 0
    assert len(list((tmp_path / "out").iterdir())) == 4


def test_what_was_exported_is_imported(data, tmp_path, capsys):
    assert cli.main(["chats", "export", "--format", "json", "--data", str(data), "-o", str(tmp_path / "all.json")]) == 0
    assert cli.main(["chats", "import", str(tmp_path / "all.json"), "--data", str(tmp_path / "other")]) == 0
    assert "3 chats imported from Omnibus." in capsys.readouterr().out
    assert cli.main(["chats", "export", "--format", "md", "--data", str(tmp_path / "other"), "-o", str(tmp_path / "b.md")]) == 0
    assert cli.main(["chats", "export", "--format", "md", "--data", str(data), "-o", str(tmp_path / "a.md")]) == 0
    assert (tmp_path / "a.md").read_text() == (tmp_path / "b.md").read_text()


def test_pdf_needs_no_screen(data, tmp_path):
    environment = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")}
    command = [sys.executable, "-m", "app", "chats", "export", "--format", "pdf", "--data", str(data)]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.startswith(b"%PDF-") and done.stdout.rstrip().endswith(b"%%EOF")
    assert done.stdout.count(b"/Type /Page\n") == 3  # each chat from a new page


def test_importing_beside_an_open_window_is_refused_and_reading_is_not(data, tmp_path, capsys):
    with FolderLock(data):
        assert cli.main(["chats", "import", str(tmp_path / "conversations.json"), "--data", str(data)]) == 1
        assert "Omnibus is open on the chats" in capsys.readouterr().err
        assert cli.main(["chats", "list", "--data", str(data)]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list"], "There are no chats in"),
        (["search", "x"], "There are no chats in"),
        (["import", "nothing.json"], "There is no file nothing.json"),
        (["export", "--format", "pdf"], "There are no chats in"),
    ],
)
def test_nothing_there_is_one_sentence(arguments, words, tmp_path, capsys):
    assert cli.main(["chats", *arguments, "--data", str(tmp_path / "none")]) == 1
    assert words in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_an_unknown_chat_is_told(data, capsys):
    assert cli.main(["chats", "export", "No such", "--data", str(data)]) == 1
    assert "There is no chat “No such”" in capsys.readouterr().err


def test_a_damaged_file_is_one_sentence(data, capsys):
    (data / "chats.db").write_bytes(b"no database" * 1000)
    for extra in ("chats.db-wal", "chats.db-shm"):
        (data / extra).unlink(missing_ok=True)
    assert cli.main(["chats", "list", "--data", str(data)]) == 1
    assert "cannot be read" in capsys.readouterr().err
