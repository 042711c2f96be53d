"""Ctrl+K: finds while one types, shows what was said around them, and goes there."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.chats.book import ChatBook
from app.chats.store import ChatStore
from app.window.search_card import HIT
from tests.app.conftest import settle


def make_book(store=None) -> ChatBook:
    book = ChatBook(store)
    for number in range(3):
        chat = book.new_chat()
        book.add_user(chat.id, f"Question {number} about 北京 and C++")
        answer = book.begin_answer(chat.id)
        book.append(answer, f"Answer {number}: the zebra <b>runs</b>.")
        book.stop(chat.id, answer)
        book.rename(chat.id, f"Chat {number}")
    return book


def find(qtbot, window, words: str) -> list:
    card = window.overlays.search_card
    card.field.setText(words)
    qtbot.waitUntil(lambda: card.shown_for == words, timeout=30_000)
    return [card.list.item(row).data(HIT) for row in range(card.list.count())]


def test_finds_while_typing_and_goes_there(make_window, qtbot):
    window, _ = make_window(book=make_book())
    window.overlays.open_search()
    card = window.overlays.search_card
    assert QApplication.focusWidget() is card.field and card.list.count() == 3  # the recent chats
    hits = find(qtbot, window, "zebra 1")
    assert [hit.title for hit in hits] == ["Chat 1"]
    assert "zebra <b>runs</b>" in card.preview.toPlainText()  # plain: nothing that was said becomes markup
    assert [selection.cursor.selectedText() for selection in card.preview.extraSelections()] == ["1", "zebra"]
    QTest.keyClick(card.field, Qt.Key.Key_Return)
    assert card.isHidden() and window.book[window.current_chat].title == "Chat 1"


def test_keys_move_and_escape_closes(make_window, qtbot):
    window, _ = make_window(book=make_book())
    window.overlays.open_search()
    card = window.overlays.search_card
    assert len(find(qtbot, window, "北京")) == 3
    for key, row in ((Qt.Key.Key_Down, 1), (Qt.Key.Key_Down, 2), (Qt.Key.Key_Down, 2), (Qt.Key.Key_Up, 1)):
        QTest.keyClick(card.field, key)
        assert card.list.currentRow() == row
    QTest.keyClick(card.field, Qt.Key.Key_Escape)
    assert card.isHidden()


def test_a_click_beside_the_card_closes_it(make_window):
    window, _ = make_window(book=make_book())
    window.overlays.open_search()
    card = window.overlays.search_card
    QTest.mouseClick(card, Qt.MouseButton.LeftButton, pos=card.card.geometry().topLeft() / 2)
    assert card.isHidden()


def test_a_version_that_is_not_in_view_is_brought_there(make_window, qtbot):
    book = make_book()
    chat = book.listed()[-1]
    first = chat.last
    again = book.begin_answer(chat.id, instead_of=first)
    book.append(again, "something else")
    book.stop(chat.id, again)
    window, _ = make_window(book=book)
    window.overlays.open_search()
    (hit,) = find(qtbot, window, f"answer {chat.title[-1]}")
    window.go_to(hit.chat_id, hit.message_id)
    assert book[chat.id].last is first


def test_a_find_far_back_in_a_long_chat_is_brought_into_view(make_window, qtbot):
    book = ChatBook()
    chat = book.new_chat()
    for number in range(250):
        book.add_user(chat.id, f"Question {number}")
        answer = book.begin_answer(chat.id)
        book.append(answer, f"Answer {number}: " + ("the zebra runs" if number == 20 else "nothing") + "\n\nmore words\n" * 5)
        book.stop(chat.id, answer)
    window, _ = make_window(book=book)
    window.overlays.open_search()
    (hit,) = find(qtbot, window, "zebra")
    QTest.keyClick(window.overlays.search_card.field, Qt.Key.Key_Return)
    settle()
    view = window.page(chat.id).view
    assert view.textCursor().selectedText() == "zebra" and view.entry_of(hit.message_id) is not None
    assert 0 <= view.cursorRect(view.textCursor()).top() < view.viewport().height()


def test_a_store_is_searched_on_its_own_thread(make_window, qtbot, tmp_path):
    store = ChatStore(tmp_path / "chats.db")
    book = make_book(store)
    assert book.commit(5)
    window, _ = make_window(book=book)
    window.overlays.open_search()
    assert len(find(qtbot, window, "c++")) == 3
    assert find(qtbot, window, "nowhere") == []
    window.shut_down()
    assert store.close(60)
