"""Every promised key does its thing with the focus in the composer, where most of them are pressed, and every one can be another."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QKeyCombination, Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtTest import QTest

from app.settings import SettingsFile
from app.window.keys import KEYS
from tests.app.conftest import settle
from tests.app.ux.desk import ALT, answered
from tests.app.window.test_measures import PROMISED


@pytest.fixture
def recorded(make_window):
    """A window whose keys only tell what they would do, its composer with the focus and a word in it."""
    window, engine = make_window()
    window.activateWindow()
    answered(window, engine, "words")
    done: list[str] = []
    window.keys.actions = {name: (lambda name=name: done.append(name)) for name in window.keys.actions}
    window.keys.change({})
    edit = window.page(window.current_chat).composer.edit
    edit.setPlainText("draft")
    edit.setFocus()
    settle()
    assert edit.hasFocus()
    return window, edit, done


def strike(edit, keys: str) -> None:
    combination = QKeySequence(keys)[0]
    assert isinstance(combination, QKeyCombination)
    QTest.keyClick(edit, combination.key(), combination.keyboardModifiers())


def test_every_promised_key_works_while_one_writes(recorded):
    window, edit, done = recorded
    for name, sequences in PROMISED.items():
        for keys in sequences.split():
            done.clear()
            strike(edit, keys)
            assert done == [name] and edit.toPlainText() == "draft", keys


def test_every_key_can_be_another(recorded, tmp_path):
    window, edit, done = recorded
    window.preferences.attach(SettingsFile(tmp_path))
    for name, sequences in KEYS.items():
        window.preferences.change(keys={name: ("Ctrl+Alt+F11",)})
        done.clear()
        strike(edit, "Ctrl+Alt+F11")
        assert done == [name]
        done.clear()
        for keys in sequences:
            strike(edit, keys)
        assert name not in done and SettingsFile(tmp_path).settings.keys == {name: ("Ctrl+Alt+F11",)}
        edit.setPlainText("draft")


def test_alt_and_a_digit_go_to_the_nth_tab(make_window):
    window, engine = make_window()
    window.activateWindow()
    chats = [answered(window, engine, "words") for _ in range(9)]
    for digit in (1, 9, 4, 7):
        QTest.keyClick(window, Qt.Key(Qt.Key.Key_0.value + digit), ALT)
        settle()
        assert window.current_chat == chats[digit - 1]
    window.close_tab(8)
    QTest.keyClick(window, Qt.Key.Key_9, ALT)
    assert window.current_chat == chats[6], "there is no ninth"


def test_the_list_of_keys_names_every_one(make_window):
    window, _ = make_window()
    window.keys.actions["list of keys"]()
    card = window.overlays.settings_card
    assert set(card._edits) == set(KEYS)
    for name, sequences in KEYS.items():
        shown = card._edits[name].keySequence()
        assert shown == (QKeySequence(sequences[0]) if sequences else QKeySequence()), name
    window.overlays.close_open()
