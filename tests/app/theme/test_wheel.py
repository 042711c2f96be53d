"""Scrolling past a choice or a number changes neither, on any page that scrolls."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractSpinBox, QComboBox, QScrollArea, QWidget

from tests.app.conftest import settle


def wheel_over(field: QWidget, turn: int) -> None:
    window = field.window()
    QTest.wheelEvent(window.windowHandle(), field.mapTo(window, field.rect().center()), QPoint(0, turn))
    settle()


def value(field: QWidget) -> object:
    return field.currentIndex() if isinstance(field, QComboBox) else field.value()


def page_of(window, name: str) -> QScrollArea:
    window.resize(1280, 420)  # low, so that each has something to scroll
    window.activateWindow()
    if name == "settings":
        window.overlays.open_settings()
        return window.overlays.settings_card.findChild(QScrollArea)
    if name == "panel":
        window.parts.toggle_panel()
        return window.parts.panel.findChild(QScrollArea)
    window.parts.set_dashboard("full")
    return window.parts.dashboard.scroller


@pytest.mark.parametrize("name", ["settings", "panel", "dashboard"])
def test_the_wheel_scrolls_the_page_and_changes_nothing(make_window, name):
    window, _ = make_window()
    page = page_of(window, name)
    settle()
    bar = page.verticalScrollBar()
    fields = [field for kind in (QComboBox, QAbstractSpinBox) for field in page.findChildren(kind) if field.isVisible()]
    assert len(fields) >= 2
    for field in fields:
        page.ensureWidgetVisible(field)
        settle()
        before, place = value(field), bar.value()
        wheel_over(field, -120 if place < bar.maximum() else 120)
        assert value(field) == before and not field.hasFocus(), field.accessibleName()
        assert bar.value() != place, "the page went on"


def test_a_number_that_was_clicked_into_takes_the_wheel(make_window):
    window, _ = make_window()
    page_of(window, "panel")
    field = window.parts.panel.temperature
    field.setFocus()
    settle()
    before = field.value()
    wheel_over(field, -120)
    assert field.value() == pytest.approx(before - field.singleStep())
