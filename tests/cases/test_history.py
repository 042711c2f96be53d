"""HIS: chats on disk through damage, haste, size and odd words, and chats that come from other programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from app.chats.book import ChatBook
from app.chats.exchange import html, importing, markdown, own
from app.chats.lock import FolderInUse, FolderLock
from app.chats.reader import ChatReader
from app.chats.schema import open_database
from app.chats.search import search
from app.chats.store import ChatStore
from app.settings import SettingsFile
from app.theme import Theme
from app.window.library import Library
from app.window.main_window import MainWindow
from engine import FinishedEvent, FinishReason, TimeSplit, Usage
from engine.catalog import paths
from engine.catalog.registry import Registry
from tests.app.conftest import settle
from tests.app.fakes import FakeEngine

END = FinishedEvent("r", FinishReason.STOP, Usage(3, 4), TimeSplit(0.1, 0.2, 0.3, 0.0))


def filled(path: Path, count: int = 8, size: int = 4000) -> list[str]:
    """A closed database of chats with one exchange each; their ids."""
    book = ChatBook(store := ChatStore(path))
    chats = []
    for number in range(count):
        chat = book.new_chat()
        book.add_user(chat.id, f"question {number}")
        answer = book.begin_answer(chat.id)
        book.append(answer, f"answer {number} " + "word " * (size // 5))
        book.finish(chat.id, answer, END)
        chats.append(chat.id)
    assert store.close(60)
    return chats


@pytest.mark.case("HIS-02")
@pytest.mark.parametrize("damage", ["zeros", "empty", "half", "last pages"])
def test_a_file_damaged_by_a_power_cut_is_kept_aside_and_the_program_starts(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "chats.db"
    filled(path)
    data = path.read_bytes()
    broken = {
        "zeros": bytes(64_000),
        "empty": b"",
        "half": data[: len(data) // 2],
        "last pages": data[:-64_000] + bytes(min(64_000, len(data))),
    }[damage]
    path.write_bytes(broken)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    if damage == "last pages":  # as after a kill: nobody marked the file as closed in order
        raw = apsw.Connection(str(path))
        with suppress(apsw.Error):
            raw.execute("UPDATE session SET value = '0' WHERE key = 'clean'")
        raw.close()
        broken = path.read_bytes()
    store = ChatStore(path)
    book = ChatBook(store)
    chat = book.new_chat()
    book.add_user(chat.id, "life goes on")
    assert store.close(60)
    if damage != "empty":
        kept = [file for file in tmp_path.iterdir() if "damaged" in file.name and not file.name.endswith(("-wal", "-shm"))]
        assert [file.read_bytes() for file in kept] == [broken]
    with ChatReader(path) as reader:
        assert "life goes on" in {message.text for found in reader.chats() for message in reader.messages(found.id)}


SETTINGS = ("", "{", "[]", "null", "\0" * 1_000_000, '{"seats":"many","data_dir":5}', '{"version": 999}')


@pytest.mark.case("HIS-04")
@pytest.mark.parametrize("text", SETTINGS, ids=["empty", "open", "list", "null", "zeros", "types", "version"])
def test_damaged_settings_never_keep_it_from_starting_nor_hide_the_chats(
    qapp: Any, no_leftovers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    chats = filled(tmp_path / "chats.db", 2)
    connection = open_database(tmp_path / "chats.db")
    for (key,) in list(connection.execute("SELECT key FROM session")) + [("window",), ("theme",)]:
        connection.execute("INSERT OR REPLACE INTO session VALUES(?, ?)", (key, text.replace("\0", "x")))
    connection.close()
    models = paths.data_dir() / "models.json"
    models.parent.mkdir(parents=True, exist_ok=True)
    models.write_text(text)
    (tmp_path / "settings.json").write_text(text)
    settings = SettingsFile(tmp_path)
    library, engine = Library(tmp_path), FakeEngine()
    window = MainWindow(engine, library.book, Theme.named(library.remembered("theme") or "system"))
    library.attach(window)
    window.preferences.attach(settings, fixed_theme=False)
    window.show()
    settle()
    try:
        assert settings.settings.theme in ("system", "dark", "light") and settings.settings.api_port > 0
        assert text in {path.read_text() for path in tmp_path.glob("settings.json*")}, "what was there is kept"
        assert settings.change(theme="dark") == "" and SettingsFile(tmp_path).settings.theme == "dark"
        assert set(chats) <= {chat.id for chat in library.book.listed()}
        assert [entry.kind for entry in Registry().entries()]
    finally:
        engine.close()
        window.shut_down()
        assert library.close()
        window.deleteLater()
        settle()


@pytest.mark.case("HIS-04")
def test_a_folder_in_place_of_the_settings_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    (paths.data_dir() / "models.json").mkdir(parents=True)
    assert Registry().entries()
    (tmp_path / "settings.json").mkdir()
    settings = SettingsFile(tmp_path)
    assert settings.settings.theme == "system" and settings.trouble and settings.change(theme="dark"), "each time in a sentence"


@pytest.mark.case("HIS-06")
def test_what_was_said_and_named_a_moment_before_the_end_is_there(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    for number in range(3):
        book = ChatBook(store := ChatStore(path))
        chat = book.new_chat()
        book.add_user(chat.id, "hello")
        answer = book.begin_answer(chat.id)
        book.append(answer, "text")
        book.finish(chat.id, answer, END)
        book.rename(chat.id, f"Name {number}")
        assert store.close(60)
        with ChatReader(path) as reader:
            found = {item.title for item in reader.chats()}
            assert f"Name {number}" in found and [item.text for item in reader.messages(chat.id)] == ["hello", "text"]


@pytest.mark.case("HIS-10")
def test_thousands_of_chats_are_all_listed_and_one_is_read_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    filled(path, 1)
    connection = open_database(path)
    chats = [(f"c{number:05}", f"Chat {number}", number, f"f{number % 150}") for number in range(5300)]
    with connection:
        connection.execute("DELETE FROM chats")
        connection.executemany(
            "INSERT INTO chats(id, title, named, created, updated, draft, follow_ups, settings, unread, folder) "
            "VALUES(?, ?, 0, ?3, ?3, '', '[]', '{}', 0, ?4)",
            chats,
        )
        connection.executemany(
            "INSERT INTO messages(id, chat_id, place, role, text, created, state, parent) VALUES(?, ?, ?, ?, ?, 1, 'done', ?)",
            (
                (
                    f"{chat}-{place}",
                    chat,
                    place,
                    ("user", "assistant")[place % 2],
                    f"{chat} says {place}",
                    f"{chat}-{place - 1}" if place else None,
                )
                for chat, _, _, _ in chats
                for place in range(12)
            ),
        )
    connection.close()
    store = ChatStore(path)
    reads: list[str] = []
    book = ChatBook(store)
    listed = book.listed()
    assert len(listed) == 5300 and sum(chat.folder == "f7" for chat in listed) >= 35
    unread = [chat for chat in listed if not chat.tree.loaded] if hasattr(listed[0].tree, "loaded") else None
    oldest = listed[-1]
    assert [message.text for message in oldest.messages] == [f"c00000 says {place}" for place in range(12)]
    if unread is not None:
        assert len(unread) == 5300 and sum(chat.tree.loaded for chat in listed) == 1
    assert reads == [] and store.close(30)


CHINESE = "第3步重启svc-auth后清空缓存再试"


@pytest.mark.case("HIS-11")
@pytest.mark.parametrize("words", ["清空", "缓存", "svc", "auth", "启s"])
def test_words_without_spaces_between_them_are_found(tmp_path: Path, words: str) -> None:
    book = ChatBook(store := ChatStore(tmp_path / "chats.db"))
    message = book.add_user(book.new_chat().id, CHINESE)
    book.add_user(book.new_chat().id, "something else")
    assert store.close(60)
    with ChatReader(tmp_path / "chats.db") as reader:
        assert [hit.message_id for hit in reader.search(words) if hit.message_id] == [message.id]


@pytest.mark.case("HIS-13")
@pytest.mark.parametrize(
    "words", ["C++", "AND", "100%", '"quotes"', "_", "*", "(", "'; --", " ", "x" * 10_000], ids=lambda words: words[:8].strip() or "space"
)
def test_what_is_searched_for_is_taken_literally(tmp_path: Path, words: str) -> None:
    texts = ["C++ and AND", '100% "quotes" _ * ( \'; --', "nothing of it: C 100 quotes"]
    book = ChatBook(store := ChatStore(tmp_path / "chats.db"))
    for text in texts:
        book.add_user(book.new_chat().id, text)
    assert store.close(60)
    connection = apsw.Connection(str(tmp_path / "chats.db"))
    found = {hit.snippet for hit in search(connection, words) if hit.message_id}
    connection.close()
    wanted = {text for text in texts if words.strip() and words.lower() in text.lower()}
    assert found >= wanted and (texts[2] not in found or words in ("AND", '"quotes"')), found


def node(parent: str | None, role: str, content: Any, **message: Any) -> dict[str, Any]:
    return {"parent": parent, "children": [], "message": {"author": {"role": role}, "content": content, **message}}


def text(words: str) -> dict[str, Any]:
    return {"content_type": "text", "parts": [words]}


HIDDEN = {
    "title": "Greeting",
    "default_model_slug": "some-model-2",
    "current_node": "d",
    "mapping": {
        "r": {"id": "r", "message": None, "parent": None, "children": ["a"]},
        "a": node(
            "r",
            "user",
            {"content_type": "user_editable_context", "user_profile": "PRIVATE", "user_instructions": "PRIVATE"},
            metadata={"is_visually_hidden_from_conversation": True},
        ),
        "b": node("a", "user", text("Hi"), metadata={}),
        "c": node("b", "assistant", {"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "greet"}]}),
        "e": node("c", "assistant", {"content_type": "reasoning_recap", "content": "Thought for 2s"}),
        "d": node("e", "assistant", text("Hello!")),
    },
}
PARTS = {
    "title": "Parts",
    "current_node": "m4",
    "mapping": {
        "m0": {"id": "m0", "message": None, "parent": None, "children": ["m1"]},
        "m1": node(
            "m0",
            "user",
            {
                "content_type": "multimodal_text",
                "parts": [{"content_type": "image_asset_pointer", "asset_pointer": "file-service://x", "width": 1}, "What is it?", None],
            },
        ),
        "m2": node("m1", "assistant", {"content_type": "code", "language": "python", "text": "print(1)"}, recipient="python"),
        "m3": node("m2", "tool", {"content_type": "execution_output", "text": "1"}),
        "m4": node(
            "m3",
            "assistant",
            {
                "content_type": "multimodal_text",
                "parts": [
                    {"content_type": "audio_transcription", "text": "A cat.", "direction": "out"},
                    {"content_type": "audio_asset_pointer", "asset_pointer": "sediment://y"},
                ],
            },
        ),
        "m5": node("m4", "user", "bare string"),
        "m6": node("m5", "assistant", None),
    },
}


def read(tmp_path: Path, document: Any) -> tuple[list[Any], importing.Report]:
    path = tmp_path / "in.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return importing.read_chats(path)


@pytest.mark.case("HIS-15")
def test_hidden_context_and_thoughts_do_not_come_in_as_messages(tmp_path: Path) -> None:
    (chat,), report = read(tmp_path, [HIDDEN])
    assert [message.text for message in chat.messages] == ["Hi", "Hello!"] and not report.skipped
    assert chat.messages[1].model == "some-model-2" and chat.messages[1].parent == chat.messages[0].id
    assert "PRIVATE" not in own.dump([chat])


@pytest.mark.case("HIS-16")
def test_an_export_of_many_files_comes_in_whole_from_its_zip(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(53):
            conversation = HIDDEN | {"title": f"T{number}", "conversation_id": f"c{number}"}
            archive.writestr(f"conversations-{number:03}.json", json.dumps([conversation]))
        archive.writestr("user.json", '{"id": "me"}')
        archive.writestr("shared_conversations.json", "[]")
        archive.writestr("empty.json", "")
        archive.writestr("Bilder/Übersicht/fröhlich.json", json.dumps([HIDDEN | {"title": "Z", "conversation_id": "deep"}]))
    book = ChatBook()
    report = importing.add_chats(book, *importing.read_chats(path))
    assert len(report.added) == 54 and report.words().startswith("54 chats imported from ChatGPT.")


@pytest.mark.case("HIS-18")
def test_parts_that_are_no_text_stand_as_their_names_and_every_export_works(tmp_path: Path) -> None:
    (chat,), report = read(tmp_path, [PARTS])
    said = [message.text for message in chat.tree.everything()]
    assert said[0] == "[image]\n\nWhat is it?" and "A cat.\n\n[audio]" in said and "bare string" in said and not report.skipped
    for document in (markdown.dump([chat]), html.dump([chat]), own.dump([chat])):
        assert "What is it?" in document and "A cat." in document
        assert "None" not in document and "asset_pointer" not in document


@pytest.mark.case("HIS-19")
def test_one_bad_conversation_is_named_and_the_others_come_in_once(tmp_path: Path) -> None:
    good = [HIDDEN | {"title": f"T{number}", "conversation_id": f"c{number}"} for number in range(3)]
    document = [good[0], good[1], {"title": 5, "mapping": "x"}, None, good[2]]
    book = ChatBook()
    report = importing.add_chats(book, *read(tmp_path, document))
    assert (len(report.added), len(report.skipped)) == (3, 2)
    assert [where for where, _ in report.skipped] == ["entry 3", "entry 4"] and "2 entries were skipped" in report.words()
    again = importing.add_chats(book, *read(tmp_path, document))
    assert (len(again.added), again.known, len(book.listed())) == (0, 3, 3)


HOLDER = """
import sys, time
from pathlib import Path
from app.chats.book import ChatBook
from app.chats.lock import FolderLock
from app.chats.store import ChatStore
lock = FolderLock(Path(sys.argv[1]))
book = ChatBook(ChatStore(Path(sys.argv[1]) / "chats.db"))
chat = book.new_chat()
book.add_user(chat.id, "mine")
answer = book.begin_answer(chat.id)
book.append(answer, "so far")
assert book.commit(10)
print("holding", flush=True)
while True:
    book.append(answer, ".")
    time.sleep(0.01)
"""


@pytest.mark.case("HIS-21")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9")
def test_a_folder_has_one_writer_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    program = [sys.executable, "-c", HOLDER, str(tmp_path)]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stdout is not None and process.stdout.readline() == "holding\n"
    with pytest.raises(FolderInUse):
        FolderLock(tmp_path)
    with ChatReader(tmp_path / "chats.db") as reader:
        assert len(reader.chats()) == 1, "reading is always allowed"
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    process.stdout.close()
    with FolderLock(tmp_path):
        store = ChatStore(tmp_path / "chats.db")
        (chat,) = ChatBook(store).listed()
        assert chat.last.text.startswith("so far")  # type: ignore[union-attr]
        assert store.close(60)
