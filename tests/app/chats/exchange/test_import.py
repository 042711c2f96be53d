"""Chats of other programs come in whole, with their versions; what is broken is told and skipped, and nothing comes in by halves."""

from __future__ import annotations

import copy
import json
import zipfile
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.chats.book import ChatBook
from app.chats.exchange import importing, markdown, own
from app.chats.exchange.reading import UnreadableFile
from app.chats.exchange.records import as_time
from app.chats.model import Role
from app.chats.rows import chat_from, chat_row, message_from, message_row
from app.chats.store import ChatStore
from app.transcript.wording import summary


def node(key, parent, role, parts, **message):
    content = {"content_type": "text", "parts": parts}
    return {"id": key, "parent": parent, "children": [], "message": {"author": {"role": role}, "content": content, **message}}


CHATGPT = {
    "title": "Zürich",
    "create_time": 1700000000.5,
    "update_time": 1700000500.0,
    "conversation_id": "c1",
    "current_node": "gone-tool",
    "mapping": {
        "root": {"id": "root", "message": None, "parent": None, "children": ["sys"]},
        "sys": node("sys", "root", "system", [""], metadata={"is_visually_hidden_from_conversation": True}),
        "ask": node("ask", "sys", "user", ["Plan", None], create_time=None),
        "old": node("old", "ask", "assistant", ["Old"], metadata={"model_slug": "gpt-4"}),
        "new": node("new", "ask", "assistant", ["New"]),
        "call": node("call", "new", "assistant", ["search()"], recipient="browser"),
        "tool": node("tool", "call", "tool", ["results"]),
        "more": node("more", "tool", "user", [{"content_type": "image_asset_pointer"}, "日本"]),
        "gone-tool": node("gone-tool", "more", "tool", ["late"]),
    },
}
OPENWEBUI = {
    "id": "o1",
    "title": "Outer",
    "created_at": 1700000000,
    "updated_at": 1700000100,
    "pinned": True,
    "chat": {
        "title": "Bread",
        "params": {"system": "Be brief."},
        "history": {
            "currentId": "b",
            "messages": {
                "q": {"id": "q", "parentId": None, "role": "user", "content": "How?", "timestamp": 1700000001},
                "a": {"id": "a", "parentId": "q", "role": "assistant", "content": "First", "model": "qwen"},
                "b": {"id": "b", "parentId": "q", "role": "assistant", "content": "Second"},
                "c": {"id": "c", "parentId": "a", "role": "user", "content": "after the first"},
            },
        },
    },
}
LMSTUDIO = {
    "name": "Tides",
    "pinned": False,
    "createdAt": 1700000000123,
    "systemPrompt": "You know the sea.",
    "messages": [
        {"versions": [{"type": "singleStep", "role": "user", "content": [{"type": "text", "text": "Why tides?"}]}], "currentlySelected": 0},
        {
            "versions": [
                {
                    "role": "assistant",
                    "steps": [{"type": "contentBlock", "content": [{"type": "text", "text": "Moon"}]}, {"type": "debugInfoBlock"}],
                },
                {
                    "role": "assistant",
                    "senderInfo": {"senderName": "gemma"},
                    "steps": [{"type": "contentBlock", "content": [{"type": "text", "text": "Sun"}]}],
                },
            ],
            "currentlySelected": 0,
        },
        {"versions": [{"role": "user", "content": [{"type": "text", "text": "Thanks"}]}], "currentlySelected": 0},
        {"versions": []},
    ],
}
JAN_THREAD = {"id": "t1", "title": "Stars", "created": 1700000000, "updated": 1700000009, "assistants": [{"instructions": "Look up."}]}
JAN_LINES = [
    {
        "id": "m2",
        "role": "assistant",
        "content": [{"type": "text", "text": {"value": "Fusion", "annotations": []}}],
        "created_at": 1700000002000,
    },
    {"id": "m1", "role": "user", "content": [{"type": "text", "text": {"value": "Why shine?"}}], "created_at": 1700000001000},
]


def read(tmp_path, document, name="in.json"):
    path = tmp_path / name
    path.write_text(json.dumps(document), encoding="utf-8")
    return importing.read_chats(path, clock=lambda: 5.0)


def said(chat):
    return [(message.role.value, message.text) for message in chat.messages]


def test_chatgpt(tmp_path):
    (chat,), report = read(tmp_path, [CHATGPT])
    assert said(chat) == [("user", "Plan"), ("assistant", "New"), ("user", "[image]\n\n日本")]
    assert [version.text for version in chat.tree.versions(chat.messages[1])] == ["Old", "New"]
    assert chat.tree.versions(chat.messages[1])[0].model == "gpt-4"
    assert (chat.title, chat.named, chat.created, chat.updated) == ("Zürich", True, 1700000000.5, 1700000500.0)
    assert report.skipped == [] and report.words() == "0 chats imported from ChatGPT."


def test_openwebui(tmp_path):
    (chat,), _ = read(tmp_path, [OPENWEBUI])
    assert said(chat) == [("user", "How?"), ("assistant", "Second")]
    first = chat.tree.versions(chat.messages[1])[0]
    assert [message.text for message in chat.tree.below(first)] == ["First", "after the first"] and first.model == "qwen"
    assert (chat.title, chat.pinned, chat.settings.system_prompt) == ("Bread", True, "Be brief.")


def test_openwebui_without_a_history(tmp_path):
    plain = {"id": "o2", "chat": {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}}
    (chat,), _ = read(tmp_path, [plain])
    assert said(chat) == [("user", "a"), ("assistant", "b")] and chat.title == "a" and not chat.named


def test_what_a_model_thought_in_openwebui_is_reasoning_here(tmp_path):
    thought = '<details type="reasoning" done="true" duration="3">\n<summary>Thought for 3 seconds</summary>\n{}\n</details>\nSo: yes.'
    for lines in ("> is it &lt;b&gt;?\n> it is", "&gt; is it &lt;b&gt;?\n&gt; it is"):
        answer = {"role": "assistant", "content": thought.format(lines)}
        (chat,), _ = read(tmp_path, [{"id": "o3", "chat": {"messages": [{"role": "user", "content": "a"}, answer]}}])
        assert chat.last.text == "<think>is it <b>?\nit is</think>\n\nSo: yes."


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_json_of_any_unicode_is_read(tmp_path, encoding):
    path = tmp_path / "conversations.json"
    path.write_bytes(json.dumps([CHATGPT], ensure_ascii=False).encode(encoding))
    (chat,), _ = importing.read_chats(path)
    assert chat.title == "Zürich"


def test_a_chat_without_a_time_is_of_now(tmp_path):
    (chat,), _ = read(
        tmp_path, {"format": "omnibus-chats", "version": 1, "chats": [{"id": "x", "messages": [{"id": "1", "role": "user", "text": "a"}]}]}
    )
    assert chat.created == chat.updated == 5.0  # what the clock says


def test_lmstudio(tmp_path):
    (chat,), _ = read(tmp_path, LMSTUDIO, "1700000000123.conversation.json")
    assert said(chat) == [("user", "Why tides?"), ("assistant", "Moon"), ("user", "Thanks")]
    assert [(version.text, version.model) for version in chat.tree.versions(chat.messages[1])] == [("Moon", ""), ("Sun", "gemma")]
    assert chat.created == pytest.approx(1700000000.123) and chat.settings.system_prompt == "You know the sea."


def make_jan(folder):
    thread = folder / "threads" / "t1"
    thread.mkdir(parents=True)
    (thread / "thread.json").write_text(json.dumps(JAN_THREAD))
    (thread / "messages.jsonl").write_text("\n".join(json.dumps(line) for line in JAN_LINES) + '\n{"half')
    return thread


def test_jan(tmp_path):
    thread = make_jan(tmp_path)
    for path in (tmp_path, thread, thread / "messages.jsonl"):
        (chat,), _ = importing.read_chats(path)
        assert said(chat) == [("user", "Why shine?"), ("assistant", "Fusion")]
        assert (chat.title, chat.created, chat.settings.system_prompt) == ("Stars", 1700000000.0, "Look up.")


def test_a_zip_is_read_without_unpacking_and_its_other_files_are_passed_over(tmp_path):
    make_jan(tmp_path / "jan")
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", json.dumps([CHATGPT]))
        archive.writestr("user.json", json.dumps({"email": "x"}))
        archive.writestr("broken.json", "{")
        archive.writestr("../escape.json", json.dumps([OPENWEBUI]))
        archive.write(tmp_path / "jan/threads/t1/messages.jsonl", "t1/messages.jsonl")
    before = sorted(tmp_path.rglob("*"))
    chats, report = importing.read_chats(path)
    assert {chat.title for chat in chats} == {"Zürich", "Bread", "Why shine?"}
    assert report.kinds == {"chatgpt", "openwebui", "jan"}
    assert sorted(tmp_path.rglob("*")) == before


BAD = [
    7,
    None,
    [],
    {"mapping": None, "title": "no tree"},
    {"mapping": {}},
    {"mapping": {"a": node("a", "a", "user", [""])}},
    {"chat": {"messages": 3}},
]


def test_bad_entries_are_told_and_skipped(tmp_path):
    chats, report = read(tmp_path, [*BAD, CHATGPT])
    assert [chat.title for chat in chats] == ["Zürich"]
    assert len(report.skipped) == len(BAD) and all(where.startswith("entry ") and why for where, why in report.skipped)
    assert report.skipped[3] == ("entry 4 (“no tree”)", "its mapping is not an object")


def test_a_ring_and_a_missing_parent_lose_no_words(tmp_path):
    ring = {"conversation_id": "r", "mapping": {"a": node("a", "b", "user", ["one"]), "b": node("b", "a", "assistant", ["two"])}}
    orphan = {"conversation_id": "p", "mapping": {"a": node("a", "nowhere", "user", ["three"])}}
    chats, report = read(tmp_path, [ring, orphan])
    assert not report.skipped
    assert {message.text for chat in chats for message in chat.tree.everything()} == {"one", "two", "three"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\xff\xfe\x00", "not text in UTF-8"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "holds no chats that Omnibus knows"),
        (b'{"some": "thing"}', "holds no chats that Omnibus knows"),
        (b"PK\x03\x04 and no more", "damaged zip"),
        (b"PK\x05\x06" + b"\0" * 18, "holds no chats that Omnibus knows"),
        (b'{"format": "omnibus-chats", "version": 99, "chats": []}', "newer Omnibus"),
    ],
)
def test_a_file_that_is_no_export_is_one_sentence(tmp_path, content, words):
    path = tmp_path / "in.json"
    path.write_bytes(content)
    with pytest.raises(UnreadableFile, match=words):
        importing.read_chats(path)


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(UnreadableFile, match="There is no file"):
        importing.read_chats(tmp_path / "none.json")


def test_the_same_file_twice_changes_nothing(tmp_path):
    path = tmp_path / "chats.db"
    for known in (0, 2):
        book = ChatBook(store := ChatStore(path))
        chats, report = read(tmp_path, [CHATGPT, OPENWEBUI])
        importing.add_chats(book, chats, report)
        assert (len(report.added), report.known, report.unsaved) == (2 - known, known, False)
        assert store.close(60)
    store = ChatStore(path)
    assert {tuple(said(chat)) for chat in store.load()} == {tuple(said(chat)) for chat in chats}
    assert store.close(60)


def test_a_chat_is_stored_in_one_piece(tmp_path):
    """A write that fails in the middle of an import leaves whole chats only."""
    (chat,), _ = read(tmp_path, [CHATGPT])
    store = ChatStore(tmp_path / "chats.db")
    book = ChatBook(store)
    assert book.adopt(chat) and len(store._queue) <= 1
    assert store.close(60)


def test_our_own_json_comes_back_the_same(tmp_path):
    chats, _ = read(tmp_path, [CHATGPT, OPENWEBUI, LMSTUDIO | {"mapping": {}}])
    book = ChatBook()
    chat = book.new_chat()
    book.set_settings(chat.id, type(chat.settings)("System", 0.1, 0.5, 77, seed=3))
    question = book.add_user(chat.id, "Hi")
    answer = book.begin_answer(chat.id)
    book.append(answer, "cut sho")
    book.stop(chat.id, answer)
    book.edit(chat.id, question, "Hello")
    book.show_version(chat.id, chat.messages[0], -1)
    chats.append(chat)
    document = json.loads(own.dump(chats))
    again, report = read(tmp_path, document)
    assert not report.skipped
    once_more = json.loads(own.dump(again))
    for old, new in zip(document["chats"], once_more["chats"], strict=True):
        assert {key: value for key, value in old.items() if key not in ("messages", "choices")} == {
            key: value for key, value in new.items() if key not in ("messages", "choices")
        }
        assert [{**message, "id": 0, "parent": 0} for message in old["messages"]] == [
            {**message, "id": 0, "parent": 0} for message in new["messages"]
        ]
    assert [said(chat) for chat in again] == [said(chat) for chat in chats]
    assert json.loads(own.dump(read(tmp_path, once_more)[0])) != {} and [said(chat) for chat in read(tmp_path, once_more)[0]] == [
        said(chat) for chat in chats
    ]


def test_a_file_cannot_name_a_message_of_another_chat(tmp_path):
    book = ChatBook(store := ChatStore(tmp_path / "chats.db"))
    mine = book.new_chat()
    message = book.add_user(mine.id, "mine")
    forged = {"id": "x", "messages": [{"id": message.id, "parent": None, "role": "user", "text": "theirs"}]}
    chats, report = read(tmp_path, {"format": "omnibus-chats", "version": 1, "chats": [forged]})
    importing.add_chats(book, chats, report)
    assert store.close(60)
    again = ChatStore(tmp_path / "chats.db")
    assert sorted(chat.messages[0].text for chat in again.load()) == ["mine", "theirs"]
    assert again.close(60)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def with_something_else(data, sample):
    """The same export with another value somewhere."""
    sample = copy.deepcopy(sample)
    at, key = sample, None
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if not isinstance(at[key], (dict, list)) or data.draw(st.booleans()):
            at[key] = data.draw(anything)
            break
        at = at[key]
    return sample


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_no_value_anywhere_in_an_export_raises(data):
    """One place of a real export after another holds something else: the entry is taken or skipped, the others come in."""
    sample = with_something_else(data, data.draw(st.sampled_from([CHATGPT, OPENWEBUI, LMSTUDIO])))
    from app.chats.exchange.reading import _entries

    for entry in _entries("x", [sample, CHATGPT]):
        try:
            chat = importing._chat(entry, 1.0)
        except importing.BadEntry:
            continue
        assert chat.messages and all(message.text.strip() for message in chat.tree.everything())
        assert all(message.role in Role for message in chat.messages)


OWN = {
    "id": "own",
    "title": "Ours",
    "named": True,
    "created": 1.7e9,
    "updated": 1.7e9,
    "pinned": False,
    "folder": "",
    "settings": {"system_prompt": "Be brief.", "temperature": 0.5, "max_tokens": 9, "top_k": 3, "seed": 5},
    "choices": {},
    "messages": [
        {"id": "q", "parent": None, "role": "user", "text": "Hi", "attachments": [{"name": "a", "kind": "text", "text": "b"}]},
        {
            "id": "a",
            "parent": "q",
            "role": "assistant",
            "text": "<think>Hm</think>Hello",
            "created": 1.7e9,
            "state": "stopped",
            "reason": "cancelled",
            "model": "m",
            "thought": 1.5,
            "usage": {"prompt_tokens": 5, "completion_tokens": 7, "cached_tokens": 0},
            "time": {"waited": 0.1, "prefill": 0.2, "decode": 0.3, "preempted": 0.0, "ttft": None},
        },
    ],
}


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_whatever_stands_in_our_own_json_can_be_shown_stored_and_written_again(data):
    try:
        chat = own.read(with_something_else(data, OWN))
    except importing.BadEntry:
        return
    stored = chat_from(chat_row(chat))
    assert (stored.settings, stored.created, stored.updated) == (chat.settings, chat.created, chat.updated)
    assert isinstance(chat.tokens_used, int)
    for message in chat.tree.everything():
        again = message_from(message_row(chat.id, message.place, message), "")
        assert (again.usage, again.time, again.thought, again.created) == (message.usage, message.time, message.thought, message.created)
        assert isinstance(summary(message), str)
    for seconds in (chat.created, chat.updated, *(message.created for message in chat.tree.everything())):
        assert 0 < datetime.fromtimestamp(seconds + 1).year < 3001
    assert markdown.dump([chat]) and json.loads(own.dump([chat]), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("9999-12-31T23:59:59Z", 0),
        ("1900-01-01T00:00:00Z", 0),
        (9e10, 0),
        (1700000000, 1.7e9),
        (1700000000123, 1.700000000123e9),
        ("2023-11-14T22:13:20Z", 1.7e9),
        ("1700000000", 1.7e9),
        (None, 0),
        ("x", 0),
        (-5, 0),
        (float("nan"), 0),
        (float("inf"), 0),
        (True, 0),
        (10**400, 0),
    ],
)
def test_times_of_every_kind(value, seconds):
    assert as_time(value) == pytest.approx(seconds)
