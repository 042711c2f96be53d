"""The composer's rows that want the whole window: what Esc does first, what a restart brings back, what is queued and taken back."""

from __future__ import annotations

from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QToolButton

from app.chats.model import AnswerState, Attachment
from app.theme import Theme
from app.window.library import Library
from app.window.main_window import MainWindow
from tests.app.conftest import settle
from tests.app.fakes import FakeEngine
from tests.app.ux.desk import NONE, answered, asked, finish, press, tick

LEFT = Qt.MouseButton.LeftButton


def test_the_box_grows_to_two_fifths_of_the_height_and_scrolls_then(make_window):
    window, _ = make_window()
    page = window.page(window.current_chat)
    edit = page.composer.edit
    small = edit.height()
    edit.setPlainText("\n".join("line" for _ in range(6)))
    settle()
    assert small < edit.height() < 0.3 * page.height() and not edit.verticalScrollBar().isVisible()
    edit.setPlainText("\n".join("line" for _ in range(200)))
    settle()
    assert abs(edit.height() - 0.4 * page.height()) <= 1 and edit.verticalScrollBar().isVisible()
    window.resize(window.width(), 600)
    settle()
    assert abs(edit.height() - 0.4 * page.height()) <= 1
    edit.clear()
    settle()
    assert edit.height() == small


def test_escape_takes_the_topmost_thing_then_the_edit_then_the_answer_then_the_queue(make_window):
    window, engine = make_window()
    window.activateWindow()
    chat_id = answered(window, engine, "first")
    asked_again = window.book[chat_id]
    engine.scripts.clear()
    window.send(chat_id, "again")
    window.send(chat_id, "later")
    settle()
    page = window.page(chat_id)
    page.begin_edit(asked_again.messages[0])
    page.find_bar.open_bar()
    window.overlays.open_search()

    def standing() -> list[bool]:
        things = [not window.overlays.search_card.isHidden(), not page.find_bar.isHidden(), page.composer.editing]
        return [*things, window.answering.active(chat_id), bool(asked_again.follow_ups)]

    settle()
    for gone in range(5):
        assert standing() == [False] * gone + [True] * (5 - gone)
        press(window, Qt.Key.Key_Escape)
    assert standing() == [False] * 5 and page.composer.edit.hasFocus()


def test_escape_leaves_things_as_they_are_where_something_is_asked(make_window):
    window, engine = make_window()
    window.activateWindow()
    chat_id = asked(window, engine)
    for ask in (lambda: window.close_tab(0), window.close):
        ask()
        assert not window.bar.isHidden()
        press(window, Qt.Key.Key_Escape)
        assert window.bar.isHidden() and window.answering.active(chat_id) and window.isVisible()
    closed = []
    window.closed.connect(lambda: closed.append(1))
    window.close()
    assert not closed, "the question that was left unanswered is asked anew"


def test_a_file_dropped_anywhere_on_the_page_is_attached(make_window, qtbot, tmp_path):
    window, engine = make_window()
    page = window.page(answered(window, engine, "words"))
    (tmp_path / "a.py").write_text("x = 1\n")
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(tmp_path / "a.py"))])
    enter = QDragEnterEvent(page.rect().center(), Qt.DropAction.CopyAction, data, LEFT, NONE)
    page.dragEnterEvent(enter)
    assert enter.isAccepted()
    page.dropEvent(QDropEvent(QPointF(page.rect().center()), Qt.DropAction.CopyAction, data, LEFT, NONE))
    qtbot.waitUntil(lambda: bool(page.composer.files.files), timeout=30_000)
    assert page.composer.files.files == (Attachment("a.py", "code", "x = 1\n"),)
    assert window.book[page.chat.id].draft_files == page.composer.files.files
    page.composer.reader.close()


def day(folder) -> tuple[Library, FakeEngine, MainWindow]:
    library, engine = Library(folder), FakeEngine()
    window = MainWindow(engine, library.book, Theme.dark())
    library.attach(window)
    window.show()
    settle()
    return library, engine, window


def night(library, engine, window) -> None:
    engine.close()
    window.shut_down()
    assert library.close(30)
    window.deleteLater()
    settle()


def test_draft_attachments_and_the_place_in_the_chat_survive_a_restart(qapp, no_leftovers, tmp_path):
    library, engine, window = day(tmp_path)
    first = answered(window, engine, *(f"answer {number} " + "with many words " * 60 for number in range(8)))
    second = answered(window, engine, "short")
    page = window.page(second)
    QTest.keyClicks(page.composer.edit, "half a thought")
    page.composer.files.add(Attachment("notes.txt", "text", "hello"))
    window.open_chat(first)
    middle = window.book[first].messages[5]
    window.page(first).view.go_to(middle.id, 12)
    settle()
    place = window.page(first).view.scroll_place()
    assert place is not None and place.message_id == middle.id
    night(library, engine, window)
    library, engine, window = day(tmp_path)
    assert window.open_chats == (first, second) and window.current_chat == first
    view = window.page(first).view
    assert not view.following and view.scroll_place() == place
    window.open_chat(second)
    composer = window.page(second).composer
    assert composer.text == "half a thought" and composer.files.files == (Attachment("notes.txt", "text", "hello"),)
    assert len(composer.files.chips) == 1
    night(library, engine, window)


def chip_buttons(page, name: str) -> list[QToolButton]:
    return [button for button in page.composer.findChildren(QToolButton) if button.accessibleName() == name and button.isVisible()]


def test_queued_messages_are_chips_that_can_be_edited_and_removed(make_window):
    window, engine = make_window()
    chat_id = asked(window, engine)
    page = window.page(chat_id)
    for text in ("second", "third"):
        QTest.keyClicks(page.composer.edit, text)
        QTest.keyClick(page.composer.edit, Qt.Key.Key_Return)
    settle()
    assert [said.text for said in window.book[chat_id].follow_ups] == ["second", "third"] and page.composer.text == ""
    QTest.mouseClick(chip_buttons(page, "Remove queued message")[0], LEFT)
    settle()
    assert [said.text for said in window.book[chat_id].follow_ups] == ["third"]
    QTest.mouseClick(chip_buttons(page, "Edit queued message")[0], LEFT)
    settle()
    assert window.book[chat_id].follow_ups == [] and page.composer.text == "third" and page.composer.edit.hasFocus()
    assert chip_buttons(page, "Edit queued message") == []


def test_a_queued_message_taken_back_in_the_middle_of_an_edit_is_a_draft(make_window):
    window, engine = make_window()
    chat_id = answered(window, engine, "first")
    page = window.page(chat_id)
    window.send(chat_id, "again")
    window.send(chat_id, "queued")
    QTest.keyClicks(page.composer.edit, "draft")
    page.begin_edit(window.book[chat_id].messages[0])
    settle()
    QTest.mouseClick(chip_buttons(page, "Edit queued message")[0], LEFT)
    settle()
    assert not page.composer.editing and page.composer.text == "queued\ndraft" == window.book[chat_id].draft
    assert window.book[chat_id].messages[0].text == "question 0"


def test_the_words_of_an_edit_whose_message_was_deleted_are_a_draft(make_window):
    window, engine = make_window()
    chat_id = answered(window, engine, "first")
    page = window.page(chat_id)
    message = window.book[chat_id].messages[0]
    page.begin_edit(message)
    QTest.keyClicks(page.composer.edit, " in other words")
    window.messages.delete(chat_id, message)
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Return)
    settle()
    assert page.composer.text == "question 0 in other words" == window.book[chat_id].draft and not page.composer.editing


def test_a_stopped_answer_stays_says_so_and_goes_on(make_window):
    window, engine = make_window()
    chat_id = asked(window, engine, ["one ", "two ", "three"])
    tick(window, engine, 3)
    page = window.page(chat_id)
    QTest.mouseClick(page.composer.button, LEFT)
    tick(window, engine)
    answer = window.book[chat_id].last
    assert answer.state is AnswerState.STOPPED and answer.text == "one two "
    assert "one two" in page.view.document().toPlainText() and "stopped by you" in page.view.document().toPlainText()
    bar = page.view.bars.pinned
    assert bar.isVisible() and "continue" in bar.names
    QTest.mouseClick(bar.button("continue"), LEFT)
    settle()
    assert engine.continued[-1] and window.book[chat_id].last is answer and window.answering.active(chat_id)
    finish(window, engine)
    assert answer.text.startswith("one two ") and answer.state is AnswerState.DONE and "continue" not in bar.names
