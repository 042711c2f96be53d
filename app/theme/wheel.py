"""Choices and numbers on a page that scrolls: the wheel scrolls the page, and changes them only once they were clicked into.

Qt has a field under the pointer take the wheel, and the focus with it: whoever scrolls past it changes a setting and does not notice.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtWidgets import QAbstractSpinBox, QComboBox, QWidget


class _PassedOn(QObject):
    """Lets the wheel through to the page, for fields that do not have the focus."""

    def eventFilter(self, field: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Wheel and isinstance(field, QWidget) and not field.hasFocus():
            event.ignore()  # so that Qt asks the field's parent next
            return True
        return False


def leave_the_wheel(page: QWidget) -> None:
    """Have every choice and number that is on this page now leave the wheel to it."""
    passed_on = _PassedOn(page)
    for kind in (QComboBox, QAbstractSpinBox):
        for field in page.findChildren(kind):
            field.setFocusPolicy(Qt.FocusPolicy.StrongFocus)  # not by the wheel
            field.installEventFilter(passed_on)
