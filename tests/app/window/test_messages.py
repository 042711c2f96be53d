"""What the actions on a message do in the whole window: versions, edits on both sides, branches, deletion with undo."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.chats.model import AnswerState, Attachment, Said
from tests.app.conftest import settle
from tests.app.fakes import Script
from tests.app.ux.desk import answered, finish


def press(window, name: str, which: str = "pinned") -> None:
    QTest.mouseClick(getattr(window.page(window.current_chat).view.bars, which).button(name), Qt.MouseButton.LeftButton)
    settle()


def texts(window, chat_id: str) -> list[str]:
    return [message.text for message in window.book[chat_id].messages]


def shown(window, chat_id: str) -> str:
    return window.page(chat_id).view.document().toPlainText()


def test_regenerate_keeps_versions_and_alt_left_and_right_step_through_them(make_window):
    window, engine = make_window()
    chat_id = answered(window, engine, "first")
    engine.scripts.append(Script(("second",)))
    press(window, "retry")
    finish(window, engine)
    assert "second" in shown(window, chat_id) and "first" not in shown(window, chat_id)
    edit = window.page(chat_id).composer.edit
    QTest.keyClick(edit, Qt.Key.Key_Left, Qt.KeyboardModifier.AltModifier)
    settle()
    assert "first" in shown(window, chat_id) and texts(window, chat_id) == ["question 0", "first"]
    QTest.keyClick(edit, Qt.Key.Key_Left, Qt.KeyboardModifier.AltModifier)  # there is none before it
    QTest.keyClick(edit, Qt.Key.Key_Right, Qt.KeyboardModifier.AltModifier)
    settle()
    assert texts(window, chat_id) == ["question 0", "second"]


def test_up_edits_the_last_question_escape_gives_the_draft_back(make_window):
    window, engine = make_window()
    chat_id = answered(window, engine, "first")
    page = window.page(chat_id)
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Up)
    assert page.composer.editing and page.composer.text == "question 0" and window.book[chat_id].draft == ""
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Escape)
    assert not page.composer.editing and page.composer.text == ""
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Up)
    QTest.keyClicks(page.composer.edit, ", please")
    engine.scripts.append(Script(("polite",)))
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Return)
    finish(window, engine)
    assert texts(window, chat_id) == ["question 0, please", "polite"] and page.composer.text == ""
    assert [message.content for message in engine.prompts[-1]] == ["question 0, please"]


def test_an_answer_can_be_edited_and_a_draft_survives_that(make_window):
    window, engine = make_window()
    chat_id = answered(window, engine, "wrong")
    page = window.page(chat_id)
    QTest.keyClicks(page.composer.edit, "a draft")
    press(window, "edit")
    assert page.composer.text == "wrong" and window.book[chat_id].draft == "a draft"
    page.composer.edit.setPlainText("right")
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Return)
    settle()
    assert texts(window, chat_id) == ["question 0", "right"] and page.composer.text == "a draft" == window.book[chat_id].draft
    assert "right" in shown(window, chat_id) and len(engine.submitted) == 1


def test_a_branch_opens_beside_its_chat_and_asks_with_the_same_beginning(make_window):
    window, engine = make_window()
    chat_id = answered(window, engine, "one", "two")
    view = window.page(chat_id).view
    view.bars.point_at(view.entry_rect(view.entries[1]).center().y())
    settle()
    press(window, "branch", "floating")
    branch = window.current_chat
    assert branch != chat_id and texts(window, branch) == ["question 0", "one"]
    window.send(branch, "elsewhere")
    assert engine.prompts[-1][:2] == engine.prompts[1][:2]
    finish(window, engine)
    assert texts(window, chat_id) == ["question 0", "one", "question 1", "two"]


def test_a_deleted_message_comes_back_with_undo(make_window):
    window, engine = make_window()
    chat_id = answered(window, engine, "one", "two")
    page = window.page(chat_id)
    press(window, "delete")
    assert "two" not in shown(window, chat_id) and page.undo_bar.isVisible()
    window.messages.act(chat_id, "delete", window.book[chat_id].messages[0].id)
    assert texts(window, chat_id) == ["one", "question 1"]
    page.undo_bar.choose("undo")
    page.undo_bar.choose("undo")
    settle()
    assert texts(window, chat_id) == ["question 0", "one", "question 1", "two"] and page.undo_bar.isHidden()
    assert shown(window, chat_id).index("one") < shown(window, chat_id).index("two")


def test_deleting_what_is_being_written_stops_it_first(make_window):
    window, engine = make_window()
    engine.scripts.append(Script(("a", "b", "c"), prefill_ticks=0))
    chat_id = window.new_chat()
    window.send(chat_id, "go")
    engine.tick(2)
    settle()
    window.messages.act(chat_id, "delete", window.book[chat_id].messages[0].id)
    assert not window.answering.active(chat_id) and texts(window, chat_id) == ["ab"]
    finish(window, engine)
    assert window.book[chat_id].last.state is AnswerState.STOPPED
    window.messages.act(chat_id, "delete", "no such message")


def test_ctrl_f_finds_in_the_chat_and_escape_closes(make_window, qtbot):
    window, engine = make_window()
    chat_id = answered(window, engine, "a needle here", "and a needle there")
    page = window.page(chat_id)
    QTest.keyClick(page.composer.edit, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    assert page.find_bar.isVisible() and page.find_bar.field.hasFocus()
    QTest.keyClicks(page.find_bar.field, "needle")
    QTest.keyClick(page.find_bar.field, Qt.Key.Key_Return)
    assert page.find_bar.count.text() == "2 of 2" and len(page.view.extraSelections()) == 2
    QTest.keyClick(page.find_bar.field, Qt.Key.Key_F3)
    assert page.find_bar.count.text() == "1 of 2"
    QTest.keyClick(page.find_bar.field, Qt.Key.Key_F3, Qt.KeyboardModifier.ShiftModifier)
    assert page.find_bar.count.text() == "2 of 2"
    QTest.keyClick(page.find_bar.field, Qt.Key.Key_Escape)
    assert page.find_bar.isHidden() and page.view.extraSelections() == [] and page.composer.edit.hasFocus()


def test_where_one_was_reading_is_kept_with_the_chat(make_window):
    window, engine = make_window()
    chat_id = answered(window, engine, *("long answer " * 40 for _ in range(8)))
    page = window.page(chat_id)
    assert page.view.following
    page.view.go_to(window.book[chat_id].messages[3].id, 5)
    settle()
    window.new_chat()
    kept = window.book[chat_id].scroll
    assert kept is not None and kept.message_id == window.book[chat_id].messages[3].id
    window.open_chat(chat_id)
    page.view.scroll_to_end()
    window.shut_down()
    assert window.book[chat_id].scroll is None


def test_the_last_code_is_copied_to_the_byte(make_window, qapp):
    window, engine = make_window()
    chat_id = answered(window, engine, "```py\nif x:\n\ty = 1\n```\n", "words only")
    window.messages.copy_last_code()
    assert qapp.clipboard().text() == "if x:\n\ty = 1\n" and window.current_chat == chat_id


def test_files_of_a_draft_and_of_a_queued_message_are_not_lost(make_window, qtbot, tmp_path):
    window, engine = make_window()
    chat_id = window.new_chat()
    page = window.page(chat_id)
    page.composer.files.add(Attachment("a.txt", "text", "alpha"))
    assert window.book[chat_id].draft_files == (Attachment("a.txt", "text", "alpha"),)
    engine.scripts.append(Script(("one", "two")))
    QTest.keyClicks(page.composer.edit, "look")
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Return)
    assert window.book[chat_id].draft_files == () and "Attached: a.txt" in shown(window, chat_id)
    page.composer.files.add(Attachment("b.txt", "text", "beta"))
    QTest.keyClicks(page.composer.edit, "then")
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Return)
    assert window.book[chat_id].follow_ups == [Said("then", (Attachment("b.txt", "text", "beta"),))]
    page.composer.follow_up_edited.emit(0)
    assert page.composer.text == "then" and [file.name for file in page.composer.files.files] == ["b.txt"]
    finish(window, engine)
    assert "alpha" in engine.prompts[0][0].content and window.book[chat_id].messages[0].text == "look"
