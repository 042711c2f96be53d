"""The composer's keys: what sends, what does not, and an Enter that belongs to an input method."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QMimeData, Qt, QUrl
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.chats.attach import LONG_PASTE
from app.chats.model import Attachment, Said
from app.composer import Composer
from app.theme import Theme
from tests.app.conftest import settle

ENTER = Qt.Key.Key_Return
SHIFT = Qt.KeyboardModifier.ShiftModifier


@pytest.fixture
def composer(qapp, no_leftovers):
    widget = Composer(Theme.dark())
    widget.resize(700, 60)
    widget.show()
    widget.sent_texts = []
    widget.sent.connect(lambda text, files: widget.sent_texts.append(text))
    yield widget
    widget.close()
    widget.deleteLater()
    settle()


def compose(composer, preedit: str, commit: str = "") -> None:
    event = QInputMethodEvent(preedit, [])
    if commit:
        event.setCommitString(commit)
    QApplication.sendEvent(composer.edit, event)


def test_enter_sends_and_empties_the_box(composer):
    QTest.keyClicks(composer.edit, "hello")
    QTest.keyClick(composer.edit, ENTER)
    assert composer.sent_texts == ["hello"] and composer.text == ""


def test_shift_enter_is_a_new_line(composer):
    QTest.keyClicks(composer.edit, "one")
    QTest.keyClick(composer.edit, ENTER, SHIFT)
    QTest.keyClicks(composer.edit, "two")
    assert composer.sent_texts == []
    QTest.keyClick(composer.edit, Qt.Key.Key_Enter)
    assert composer.sent_texts == ["one\ntwo"]


def test_blank_text_is_not_sent(composer):
    QTest.keyClicks(composer.edit, "   ")
    QTest.keyClick(composer.edit, ENTER)
    assert composer.sent_texts == [] and not composer.button.isEnabled()


def test_enter_never_sends_while_an_input_method_composes(composer):
    compose(composer, "にほ")
    assert composer.edit.composing
    QTest.keyClick(composer.edit, ENTER)
    assert composer.sent_texts == []
    compose(composer, "", commit="日本")
    assert composer.text == "日本" and not composer.edit.composing
    QTest.keyClick(composer.edit, ENTER)
    assert composer.sent_texts == ["日本"]


def test_the_button_is_send_then_stop_in_the_same_place(composer):
    before = composer.button.geometry()
    stops = []
    composer.stop_asked.connect(lambda: stops.append(1))
    composer.set_running(True)
    settle()
    assert composer.button.accessibleName() == "Stop" and composer.button.geometry() == before
    QTest.mouseClick(composer.button, Qt.MouseButton.LeftButton)
    assert stops == [1] and composer.sent_texts == []
    composer.set_running(False)
    QTest.keyClicks(composer.edit, "x")
    assert composer.button.accessibleName() == "Send"
    QTest.mouseClick(composer.button, Qt.MouseButton.LeftButton)
    assert composer.sent_texts == ["x"]


def test_enter_still_hands_text_over_while_an_answer_is_written(composer):
    composer.set_running(True)
    QTest.keyClicks(composer.edit, "next")
    QTest.keyClick(composer.edit, ENTER)
    assert composer.sent_texts == ["next"]


def test_held_messages_go_out_with_an_empty_enter(composer):
    composer.set_follow_ups([Said("one"), Said("two")], held=True)
    assert composer.follow_up_count == 2 and composer.button.isEnabled()
    QTest.keyClick(composer.edit, ENTER)
    assert composer.sent_texts == [""]
    composer.set_follow_ups([Said("two")], held=False)
    QTest.keyClick(composer.edit, ENTER)
    assert composer.sent_texts == [""]


def test_the_box_grows_to_its_bound_and_no_further(composer):
    composer.bound_height(500)
    small = composer.edit.height()
    composer.set_text("\n".join("line" for _ in range(4)))
    assert small < composer.edit.height() < 200
    composer.set_text("\n".join("line" for _ in range(80)))
    assert composer.edit.height() == 200
    composer.set_text("")
    assert composer.edit.height() == small


def test_up_in_an_empty_box_recalls_and_elsewhere_moves(composer):
    recalls = []
    composer.recalled.connect(lambda: recalls.append(1))
    QTest.keyClick(composer.edit, Qt.Key.Key_Up)
    QTest.keyClicks(composer.edit, "x")
    QTest.keyClick(composer.edit, Qt.Key.Key_Up)
    assert recalls == [1]


def test_only_text_is_pasted(composer):
    data = QMimeData()
    data.setHtml('<b>bold</b><img src="http://127.0.0.1:9/x.png">')
    data.setText("bold")
    composer.edit.insertFromMimeData(data)
    assert composer.text == "bold"
    assert "<img" not in composer.edit.toHtml() and "font-weight:700" not in composer.edit.toHtml()


def test_a_draft_is_told_as_it_is_typed(composer):
    drafts = []
    composer.draft_changed.connect(drafts.append)
    QTest.keyClicks(composer.edit, "ab")
    assert drafts == ["a", "ab"]


def paste(composer, text: str = "", paths=()) -> None:
    data = QMimeData()
    if text:
        data.setText(text)
    if paths:
        data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    composer.edit.insertFromMimeData(data)


def test_a_long_paste_becomes_a_chip_and_can_be_text_again(composer):
    sent = []
    composer.sent.connect(lambda text, files: sent.append((text, files)))
    paste(composer, "x" * LONG_PASTE)
    assert composer.text == "x" * LONG_PASTE and composer.files.files == ()
    composer.edit.clear()
    long = "y" * (LONG_PASTE + 1)
    paste(composer, long)
    paste(composer, long + "z")
    assert composer.text == "" and [file.name for file in composer.files.files] == ["Pasted text 1", "Pasted text 2"]
    assert composer.button.isEnabled() and len(composer.files.chips) == 2
    assert all(chip.accessibleName() for chip in composer.files.chips)
    composer.files.remove(1)
    composer.files._unfold(0)
    assert composer.text == long and composer.files.files == () and composer.files.isHidden()
    composer.edit.clear()
    paste(composer, long)
    QTest.keyClick(composer.edit, ENTER)
    assert [(text, [file.text for file in files]) for text, files in sent] == [("", [long])] and composer.files.files == ()


def test_pasted_and_dropped_files_are_read_beside_the_window(composer, tmp_path, qtbot):
    changes, troubles = [], []
    composer.files_changed.connect(changes.append)
    composer.trouble.connect(troubles.append)
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "b.bin").write_bytes(b"\x00\x01")
    paste(composer, paths=[tmp_path / "a.py", tmp_path / "b.bin", tmp_path / "gone.txt"])
    qtbot.waitUntil(lambda: len(troubles) == 2 and bool(changes), timeout=10_000)
    assert changes[-1] == (Attachment("a.py", "code", "x = 1\n"),)
    assert "b.bin is no text file" in troubles[0] and "gone.txt cannot be read" in troubles[1]
    composer.reader.close()
    assert not composer.reader.busy


def test_an_edit_keeps_draft_and_files_aside(composer):
    edited, drafts = [], []
    composer.edited.connect(lambda text, files: edited.append((text, files)))
    composer.set_text("draft")
    composer.files.add(Attachment("a", "text", "a"))
    composer.files_changed.connect(drafts.append)
    composer.begin_edit("Editing", "said", (Attachment("b", "text", "b"),))
    composer.begin_edit("Editing", "other", (Attachment("c", "text", "c"),))
    assert composer.draft == "draft" and [file.name for file in composer.files.files] == ["c"]
    QTest.keyClick(composer.edit, ENTER)
    assert edited == [("other", (Attachment("c", "text", "c"),))] and composer.sent_texts == [] and drafts == []
    assert composer.text == "draft" and [file.name for file in composer.files.files] == ["a"]
