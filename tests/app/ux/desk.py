"""What the tests of this folder do again and again: chats that are being answered or were, and keys at whatever has the focus."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from tests.app.conftest import settle
from tests.app.fakes import Script

NONE = Qt.KeyboardModifier.NoModifier
CONTROL = Qt.KeyboardModifier.ControlModifier
SHIFT = Qt.KeyboardModifier.ShiftModifier
ALT = Qt.KeyboardModifier.AltModifier


def asked(window, engine, pieces=("one ", "two ", "three ", "four"), **script) -> str:
    """A chat in view, in a tab of its own, whose answer is on its way."""
    engine.scripts.append(Script(tuple(pieces), **script))
    chat_id = window.new_chat()
    window.send(chat_id, f"question {len(engine.submitted)}")
    settle()
    return chat_id


def tick(window, engine, count: int = 1) -> None:
    engine.tick(count)
    window.bridge.drain()
    settle()


def finish(window, engine) -> None:
    engine.run()
    window.bridge.drain()
    settle()


def answered(window, engine, *answers: str) -> str:
    """A chat in view in which this was answered, one question each."""
    chat_id = window.new_chat()
    for number, answer in enumerate(answers):
        engine.scripts.append(Script((answer,)))
        window.send(chat_id, f"question {number}")
        finish(window, engine)
    return chat_id


def press(window, key, modifiers=NONE) -> None:
    """A key at whatever has the focus."""
    QTest.keyClick(QApplication.focusWidget() or window, key, modifiers)
    settle()
