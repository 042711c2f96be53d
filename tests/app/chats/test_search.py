"""Search: two Chinese characters, code, accents, beginnings of words; and nothing that a person types can raise."""

from __future__ import annotations

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.chats import indexing
from app.chats.book import ChatBook
from app.chats.model import Attachment, Role
from app.chats.reader import ChatReader
from app.chats.rows import attachments_cell
from app.chats.schema import MIGRATIONS
from app.chats.search import LIMIT, search, search_chats, snippet_of
from app.chats.store import ChatStore
from app.chats.words import Query, find_spans, fold, indexable

TEXTS = (
    "我们明天去北京大学看书",
    "A short program in C++ and another in C++17",
    "F# is not C, nor is it Clean",
    "The operators AND, OR and NOT of logic",
    "It is 100% certain, at 1+1=2",
    "Das Café in Zürich: naïve Straße",
    "東京タワーへ行きました",
    "snake_case_names and kebab-case",
    'He said "never again" twice',
    "한국어 학교에서 배웁니다",
    "ภาษาไทยไม่มีช่องว่าง",
    "ＦＵＬＬ width",
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A database of one chat a text, as the real store writes it; closed."""
    path = tmp_path_factory.mktemp("search") / "chats.db"
    book = ChatBook(store := ChatStore(path))
    for number, text in enumerate(TEXTS):
        chat = book.new_chat()
        book.add_user(chat.id, text)
        book.rename(chat.id, f"Chat {number}")
    assert store.close(60)
    return path


@pytest.fixture(scope="module")
def find(filled):
    """Numbers of the texts that a search finds, by the index alone and by reading directly; both must agree."""
    connection = apsw.Connection(str(filled))
    while indexing.index_some(connection):
        pass
    book = ChatBook(ChatStore(filled))

    def run(words: str) -> set[int]:
        indexed = {int(hit.title.split()[1]) for hit in search(connection, words) if hit.message_id}
        read = {int(hit.title.split()[1]) for hit in search_chats(book.listed(), words) if hit.message_id}
        assert indexed == read
        return indexed

    yield run
    connection.close()
    book._store.close()


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        ("北京", {0}),
        ("大学", {0}),
        ("京大", {0}),
        ("タワー", {6}),
        ("행", set()),
        ("학교", {9}),
        ("ไทย", {10}),
        ("C++", {1}),
        ("c++17", {1}),
        ("F#", {2}),
        ("AND", {3, 1, 7}),
        ("NOT OR", {3}),
        ("100%", {4}),
        ("%", {4}),
        ("1+1", {4}),
        ("cafe zurich", {5}),
        ("CAFÉ", {5}),
        ("naive strasse", {5}),
        ("snake_case", {7}),
        ("kebab-case", {7}),
        ("keb", {7}),
        ('"never again"', {8}),
        ('"again never"', set()),
        ('"never', {8}),
        ("full", {11}),
        ("certain certain", {4}),
        ("certain missing", set()),
        ("", set()),
        ("  ", set()),
    ],
)
def test_finds(find, words, texts):
    assert find(words) == texts


@pytest.mark.parametrize(
    "words", ["NEAR(", "text:x", "^a", "*", "a*", "-", '"', '""', "' OR 1=1 --", "{}", "a AND", "(", "\0", "\ud800", "%_"]
)
def test_nothing_that_is_typed_raises(find, words):
    find(words)


@given(st.text(max_size=30))
@settings(max_examples=150, deadline=None)
def test_no_text_is_a_syntax_error(words):
    connection = apsw.Connection("")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5(text, tokenize=\"unicode61 remove_diacritics 0 tokenchars '+#'\")")
    asked = Query.of(words).index_query()
    if asked:
        connection.execute("SELECT * FROM t WHERE t MATCH ?", (asked.encode("utf-8", "replace").decode(),)).fetchall()
    connection.close()


# A word of a text, or its beginning, is always proposed by the index: what `matches` would accept must not be lost before it is asked.
@given(
    st.lists(
        st.sampled_from(["C++", "naïve", "北京大学", "x+y", "#tag", "foo_bar", "100%", "Straße", "ｗｉｄｅ", "a.b"]), min_size=1, max_size=4
    )
)
@settings(max_examples=150, deadline=None)
def test_the_index_proposes_every_word_of_a_text(words):
    connection = apsw.Connection("")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5(text, tokenize=\"unicode61 remove_diacritics 0 tokenchars '+#'\")")
    connection.execute("INSERT INTO t VALUES(?)", (indexable(fold(" ".join(words))),))
    for word in words:
        assert connection.execute("SELECT count(*) FROM t WHERE t MATCH ?", (Query.of(word).index_query(),)).get == 1
    connection.close()


def test_titles_come_first_and_newer_before_older(tmp_path):
    clock = iter(range(1, 100))
    book = ChatBook(store := ChatStore(tmp_path / "chats.db"), clock=lambda: next(clock))
    first, second, third = (book.new_chat() for _ in range(3))
    book.add_user(first.id, "apples here")
    book.add_user(second.id, "more apples there")
    book.add_user(third.id, "something else")
    for chat, title in ((first, "One"), (second, "Two"), (third, "Apples")):
        book.rename(chat.id, title)
    assert store.close(60)
    with ChatReader(tmp_path / "chats.db") as reader:
        hits = reader.search("apples")
    assert [(hit.title, bool(hit.message_id)) for hit in hits] == [("Apples", False), ("Two", True), ("One", True)]
    assert hits[1].snippet == "more apples there" and hits[1].spans == ((5, 11),) and hits[1].role is Role.USER


@pytest.mark.parametrize("stored", [True, False])
def test_a_chat_full_of_it_leaves_room_for_the_others(tmp_path, stored):
    clock = iter(range(1, 1000))
    store = ChatStore(tmp_path / "chats.db") if stored else None
    book = ChatBook(store, clock=lambda: next(clock))
    others = [book.new_chat() for _ in range(10)]
    for chat in others:
        book.add_user(chat.id, "once about apples")
        book.rename(chat.id, "another")
    full = book.new_chat()
    for number in range(80):
        book.add_user(full.id, f"apples again, {number}")
    book.rename(full.id, "full")
    if store is None:
        hits = search_chats(book.listed(), "apples")
    else:
        assert store.close(60)
        with ChatReader(tmp_path / "chats.db") as reader:
            hits = reader.search("apples")
    assert len(hits) == LIMIT and {hit.chat_id for hit in hits} == {chat.id for chat in (*others, full)}
    assert hits[0].snippet == "apples again, 79", "newer before older, as ever"


def test_what_changed_or_went_is_found_as_it_is_now(tmp_path):
    path = tmp_path / "chats.db"
    book = ChatBook(store := ChatStore(path))
    chat, other = book.new_chat(), book.new_chat()
    book.add_user(chat.id, "zebra")
    book.add_user(other.id, "zebra too")
    answer = book.begin_answer(chat.id)
    book.append(answer, "a giraffe ")
    book.append(answer, "came")
    assert book.commit(5)
    with ChatReader(path) as reader:
        assert [hit.snippet for hit in reader.search("giraffe")] == []  # it is still being written: not in its row yet
    book.delete(other.id)
    assert store.close(60)
    again = ChatStore(path)  # the answer was cut off: its text lies in chunks
    again.load()
    with ChatReader(path) as reader:
        assert [hit.snippet for hit in reader.search("giraffe came")] == ["a giraffe came"]
        assert [hit.chat_id for hit in reader.search("zebra") if hit.message_id] == [chat.id]
    assert again.close(60)


def test_the_store_indexes_in_the_background(tmp_path):
    path = tmp_path / "chats.db"
    book = ChatBook(store := ChatStore(path))
    for number in range(3):
        book.add_user(book.new_chat().id, f"word{number}")
    assert book.commit(5)
    probe = apsw.Connection(str(path))
    for _ in range(200):
        if probe.execute("SELECT count(*) FROM unindexed").get == 0:
            break
        store.save_session("poke", "1")
        store.commit(1)
    assert probe.execute("SELECT count(*) FROM words WHERE words MATCH 'word1'").get == 1
    probe.close()
    assert store.close(60)


def test_files_of_a_message_are_found_by_name_and_text(tmp_path):
    def fill(book):
        chat = book.new_chat()
        far = "filler " * 30_000 + "a pangolin sleeps" + " filler" * 1000
        book.add_user(chat.id, "Summarise this", (Attachment("report.txt", "text", far), Attachment("b.py", "code", "x => 42")))
        return chat

    path = tmp_path / "chats.db"
    stored = ChatBook(store := ChatStore(path))
    memory = ChatBook()
    for book in (stored, memory):
        fill(book)
    assert store.commit(10)
    for indexed in (False, True):
        if indexed:
            assert store.close(60)  # the index is brought up before
            connection = apsw.Connection(str(path))
            while indexing.index_some(connection):
                pass
        for words in ("pangolin", "report.txt", "=>", "summarise pangolin", "sleeps 42"):
            found = search(connection, words) if indexed else stored.search_everything(words)
            for hits in (found, memory.search_everything(words)):
                hits = [hit for hit in hits if hit.message_id]
                assert len(hits) == 1 and hits[0].spans, (words, indexed)
        assert "pangolin sleeps" in (search(connection, "pangolin") if indexed else stored.search_everything("pangolin"))[0].snippet
    connection.execute("UPDATE messages SET attachments = '{damaged'")
    assert search(connection, "pangolin") == [] and len([hit for hit in search(connection, "summarise") if hit.message_id]) == 1
    connection.close()


def test_files_of_older_versions_are_indexed_after_the_migration(tmp_path, monkeypatch):
    path = tmp_path / "chats.db"
    old = apsw.Connection(str(path))
    for statements in MIGRATIONS[:3]:
        old.execute(statements)
    old.pragma("user_version", 3)
    old.execute(
        "INSERT INTO chats(id, title, named, created, updated, draft, follow_ups, settings, unread) VALUES('c','t',0,1,1,'','[]','{}',0)"
    )
    columns = "id, chat_id, place, role, text, created, state, attachments"
    files = attachments_cell((Attachment("a.txt", "text", "an ocelot"),))
    old.execute(f"INSERT INTO messages({columns}) VALUES('m', 'c', 0, 'user', '', 1, 'done', ?)", (files,))
    old.close()
    store = ChatStore(path)
    assert [hit.message_id for hit in ChatBook(store).search_everything("ocelot")] == ["m"]
    assert store.close(60)


def test_snippets_show_what_was_found_and_where():
    text = "x " * 200 + "the Café\nof Zürich " + "y " * 200
    query = Query.of("cafe")
    snippet = snippet_of(text, query)
    ((start, end),) = find_spans(snippet, query)
    assert snippet[start:end] == "Café" and snippet.startswith("… ") and snippet.endswith(" …") and "\n" not in snippet


@pytest.mark.parametrize(
    ("text", "words", "found"),
    [("Straße", "strasse", ["Straße"]), ("e\u0301te\u0301", "ete", ["e\u0301te\u0301"]), ("x aXXb Xx", "x", ["x", "X"])],
)
def test_spans_are_places_of_the_original(text, words, found):
    assert [text[start:end] for start, end in find_spans(text, Query.of(words))] == found
