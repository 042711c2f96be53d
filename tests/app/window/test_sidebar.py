"""The sidebar: pinned chats and folders above the days, many chats at once, and undo."""

from __future__ import annotations

from PySide6.QtCore import QItemSelectionModel, Qt
from PySide6.QtTest import QTest

from app.chats.book import ChatBook
from tests.app.conftest import settle


def make_book(count: int = 4) -> tuple[ChatBook, list[str]]:
    book = ChatBook()
    ids = []
    for number in range(count):
        chat = book.new_chat()
        book.add_user(chat.id, f"question {number}")
        ids.append(chat.id)
    return book, ids


def rows(window) -> list[str]:
    model = window.sidebar.model
    return [model.index(row).data() for row in range(model.rowCount())]


def mark(window, ids) -> None:
    for chat_id in ids:
        window.sidebar.list.selectionModel().select(window.sidebar.model.index_of(chat_id), QItemSelectionModel.SelectionFlag.Select)


def choose(window, ids, label) -> None:
    menu = window.sidebar.menu.make(ids)
    action = next(action for action in _all(menu) if action.text() == label)
    assert action.isEnabled()
    action.trigger()
    menu.deleteLater()
    settle()


def _all(menu):
    for action in menu.actions():
        yield from _all(action.menu()) if action.menu() else (action,)


def test_pinned_chats_and_folders_stand_above_the_days(make_window):
    book, ids = make_book()
    window, _ = make_window(book=book)
    choose(window, [ids[0]], "Pin")
    window.chats.move([ids[1]], "Work")
    assert rows(window) == ["Pinned", "question 0", "Work", "question 1", "Today", "question 3", "question 2"]
    choose(window, [ids[2]], "Work")
    choose(window, [ids[1]], "Out of its folder")
    choose(window, [ids[0]], "Unpin")
    assert rows(window)[:2] == ["Work", "question 2"] and "Pinned" not in rows(window)
    window.open_chat(ids[3])
    window.keys.actions["pin or unpin"]()
    assert rows(window)[:2] == ["Pinned", "question 3"]


def test_a_new_folder_is_asked_for_beside_everything_else(make_window):
    book, ids = make_book()
    window, _ = make_window(book=book)
    dialog = window.sidebar.menu.ask_folder([ids[0], ids[1]])
    dialog.setTextValue("  Home ")
    dialog.accept()
    settle()
    assert book.folders() == ["Home"] and rows(window)[:3] == ["Home", "question 1", "question 0"]


def test_many_chats_are_deleted_and_come_back_together(make_window):
    book, ids = make_book()
    window, _ = make_window(book=book)
    window.open_chat(ids[1])
    mark(window, ids[:3])
    assert set(window.sidebar.selected()) == set(ids[:3])
    QTest.keyClick(window.sidebar.list, Qt.Key.Key_Delete)
    settle()
    assert rows(window) == ["Today", "question 3"] and "3 chats were deleted" in window.bar.words
    assert ids[1] not in window.open_chats
    window.bar.choose("undo")
    assert set(rows(window)) == {"Today", *(f"question {number}" for number in range(4))}


def test_a_click_opens_and_marking_more_does_not(make_window):
    book, ids = make_book()
    window, _ = make_window(book=book)
    sidebar = window.sidebar
    place = sidebar.list.visualRect(sidebar.model.index_of(ids[2])).center()
    QTest.mouseClick(sidebar.list.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert window.current_chat == ids[2]
    other = sidebar.list.visualRect(sidebar.model.index_of(ids[0])).center()
    QTest.mouseClick(sidebar.list.viewport(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.ControlModifier, other)
    assert window.current_chat == ids[2] and set(sidebar.selected()) == {ids[0], ids[2]}
    labels = [action.text() for action in sidebar.menu.make(sidebar.selected()).actions()]
    assert "Delete 2 chats" in labels and "Rename" not in labels


def test_search_and_settings_have_their_buttons(make_window):
    window, _ = make_window()
    window.sidebar.search.click()
    assert not window.overlays.search_card.isHidden()
    window.sidebar.settings_button.click()
    assert window.overlays.search_card.isHidden() and not window.overlays.settings_card.isHidden()


def test_deleting_the_chat_in_view_by_its_key(make_window):
    book, ids = make_book()
    window, _ = make_window(book=book)
    window.open_chat(ids[0])
    QTest.keyClick(window, Qt.Key.Key_Backspace, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
    settle()
    assert ids[0] not in book and "question 0" in window.bar.words


def test_collapsed_everything_has_its_own_place(make_window):
    window, _ = make_window()
    window.parts.toggle_sidebar()
    settle()
    sidebar = window.sidebar
    assert sidebar.width() == 56
    buttons = [sidebar.collapse_button, sidebar.new_button, sidebar.search, sidebar.settings_button, sidebar.theme_button]
    places = [button.geometry() for button in buttons]
    assert all(button.isVisible() and place.left() >= 0 and place.right() < 56 for button, place in zip(buttons, places, strict=True))
    assert all(not one.intersects(other) for number, one in enumerate(places) for other in places[:number])
    window.parts.toggle_sidebar()
    settle()
    assert sidebar.width() == 248 and sidebar.search.text().startswith("Search")


def test_how_far_a_load_is_stays_in_sight(make_window):
    window, _ = make_window()
    sidebar = window.sidebar
    for words in ("Ready", "Starting the model library, 57%", "Reading the vocabulary, 100%"):
        sidebar.set_model("a model", words, False)
        settle()
        shown = sidebar.model_words
        assert shown.fontMetrics().horizontalAdvance(shown.text()) <= shown.width() and shown.text()[-3:] == words[-3:]
        assert shown.toolTip() == words
