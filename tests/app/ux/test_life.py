"""The life of a chat: stored before it is sent, deleted and taken back in any order, named where its name can be seen."""

from __future__ import annotations

import json

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLineEdit

from app.chats.book import ChatBook
from app.chats.reader import ChatReader
from app.chats.store import ChatStore
from app.window.chat_files import AT_ONCE
from app.window.library import Library
from tests.app.conftest import settle
from tests.app.ux.desk import CONTROL, SHIFT, answered, asked, press


def test_a_prompt_is_on_disk_before_the_engine_hears_of_it(make_window, tmp_path):
    store = ChatStore(tmp_path / "chats.db")
    window, engine = make_window(book=ChatBook(store))
    found = []
    submit = engine.submit

    def look_first(*args, **kwargs):
        with ChatReader(tmp_path / "chats.db") as reader:
            chat = reader.chat(kwargs["chat_id"])
            found.append([message.text for message in chat.messages])
        return submit(*args, **kwargs)

    engine.submit = look_first
    chat_id = window.new_chat()
    window.send(chat_id, "do not lose this")
    assert found == [["do not lose this", ""]]
    window.shut_down()
    assert store.close(30)


def test_deletions_are_taken_back_one_after_another_with_their_tabs(make_window):
    window, engine = make_window()
    chats = tuple(answered(window, engine, "words") for _ in range(4))
    window.open_chat(chats[1])
    press(window, Qt.Key.Key_Backspace, CONTROL | SHIFT)
    assert window.open_chats == (chats[0], chats[2], chats[3]) and "question 0" in window.bar.words
    window.chats.delete([chats[0], chats[3]])
    assert window.open_chats == (chats[2],) and "2 chats" in window.bar.words
    window.bar.choose("undo")
    assert window.open_chats == (chats[0], chats[2], chats[3]) and window.current_chat == chats[2], "what was in view stays in view"
    assert "question 0" in window.bar.words, "the one before it can be taken back, too"
    window.bar.choose("undo")
    assert window.open_chats == chats and window.current_chat == chats[1] and window.bar.isHidden()
    assert {chat.id for chat in window.book.listed()} == set(chats)


def test_a_question_in_between_does_not_take_undo_away(make_window):
    window, engine = make_window()
    gone = answered(window, engine, "words")
    asked(window, engine)
    window.chats.delete([gone])
    window.close_tab(window.tabs.index_of(window.current_chat))
    assert "cancel" in window.bar.keys and "undo" not in window.bar.keys
    window.bar.choose("cancel")
    assert "undo" in window.bar.keys and not window.bar.isHidden()
    window.bar.choose("forget")
    assert window.bar.isHidden()
    window.close_tab(window.tabs.index_of(window.current_chat))
    window.bar.choose("cancel")
    assert window.bar.isHidden(), "what was let go is not offered again"


def test_a_chat_is_renamed_with_f2_where_its_name_can_be_seen(make_window):
    window, engine = make_window()
    window.activateWindow()
    chat_id = answered(window, engine, "words")
    window.parts.toggle_sidebar()
    settle()
    press(window, Qt.Key.Key_F2)
    assert not window.sidebar.collapsed
    editor = QApplication.focusWidget()
    assert isinstance(editor, QLineEdit) and editor.isVisible()
    editor.setText("A better name")
    QTest.keyClick(editor, Qt.Key.Key_Return)
    settle()
    assert window.book[chat_id].title == "A better name" and window.tabs.tabText(window.tabs.index_of(chat_id)) == "A better name"


def test_chats_go_out_in_every_format_and_our_own_comes_back(make_window, tmp_path):
    window, engine = make_window()
    chat_id = answered(window, engine, "**bold** and $x^2$")
    for form in ("md", "json", "html", "pdf"):
        window.files.export([window.book[chat_id]], tmp_path / f"chat.{form}", form)
        assert (tmp_path / f"chat.{form}").is_file() and str(tmp_path / f"chat.{form}") in window.bar.words
    assert json.loads((tmp_path / "chat.json").read_text(encoding="utf-8"))["chats"][0]["messages"][1]["text"] == "**bold** and $x^2$"
    assert (tmp_path / "chat.pdf").read_bytes().startswith(b"%PDF")


def test_tabs_are_kept_while_the_window_is_open_so_that_a_crash_loses_none(make_window, qtbot, tmp_path):
    library = Library(tmp_path)
    window, engine = make_window(book=library.book)
    library.attach(window)
    chats = [answered(window, engine, "words") for _ in range(3)]
    window.tabs.moveTab(2, 0)
    order = window.open_chats
    assert order == (chats[2], chats[0], chats[1])

    def kept() -> list[str]:
        return json.loads(library.remembered("window") or "{}").get("tabs", [])

    qtbot.waitUntil(lambda: tuple(kept()) == order, timeout=30_000)
    window.close_tab(0)
    qtbot.waitUntil(lambda: tuple(kept()) == order[1:], timeout=30_000)
    window.shut_down()
    assert library.close(30)


def test_many_chats_are_exported_beside_the_window(make_window, qtbot, tmp_path):
    library = Library(tmp_path / "data")
    window, engine = make_window(book=library.book)
    library.attach(window)
    chats = [window.book[answered(window, engine, f"answer {number} with $x^2$")] for number in range(3)]
    for form in ("md", "json", "html", "pdf"):
        target = tmp_path / f"all.{form}"
        window.files.export(chats, target, form)
        assert "Writing" in window.bar.words, "the window does not wait for it"
        qtbot.waitUntil(lambda target=target: str(target) in window.bar.words, timeout=60_000)
        assert target.stat().st_size > 200
    text = (tmp_path / "all.md").read_text(encoding="utf-8")
    assert all(f"answer {number}" in text for number in range(3))
    window.files.export(chats, tmp_path / "no" / "where.md", "md")
    qtbot.waitUntil(lambda: "could not be written" in window.bar.words, timeout=30_000)
    assert [path.name for path in tmp_path.glob("*.part")] == []
    window.files._ending.set()  # as at the end of the window: nothing half written is left
    window.files.export(chats, tmp_path / "late.md", "md")
    window.files._thread.join(30)
    assert not list(tmp_path.glob("late*"))
    window.shut_down()
    assert library.close(30)


def test_a_large_import_comes_in_whole_while_the_window_goes_on(make_window, qtbot, tmp_path):
    window, engine = make_window()
    said = [{"id": "1", "role": "user", "text": "hello", "parent": None}]
    chats = [{"id": f"c{number}", "title": f"chat {number}", "messages": said} for number in range(2 * AT_ONCE + 5)]
    (tmp_path / "many.json").write_text(json.dumps({"format": "omnibus-chats", "version": 1, "chats": [*chats, chats[0]]}))
    turns = []
    window.files.import_file(tmp_path / "many.json")
    take_in = window.files._take_in
    window.files._take_in = lambda *values: (turns.append(values[2:] or (0,)), take_in(*values))
    qtbot.waitUntil(lambda: f"{len(chats)} chats imported" in window.bar.words, timeout=30_000)
    assert turns == [(0,), (AT_ONCE,), (2 * AT_ONCE,)] and "1 chat was here already" in window.bar.words
    assert len(window.book.listed()) == len(chats) == window.sidebar.model.rowCount() - 1
