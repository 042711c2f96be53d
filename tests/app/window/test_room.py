"""Narrow and low windows: nothing is cut off, and what gave way is back as soon as there is room."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QRect
from PySide6.QtWidgets import QAbstractSpinBox, QApplication, QComboBox, QPushButton, QScrollArea, QToolButton, QWidget

from app.translations import install
from tests.app.conftest import settle

ONES = (QPushButton, QToolButton, QComboBox, QAbstractSpinBox)


def cut_off(window, within: QWidget) -> list[str]:
    """Buttons and fields of a part that the window's border cuts off."""
    cut = []
    for kind in ONES:
        for widget in within.findChildren(kind):
            place = QRect(widget.mapTo(window, QPoint(0, 0)), widget.size())
            if widget.isVisible() and not (place.left() >= 0 and place.right() < window.width()):
                cut.append(widget.accessibleName() or getattr(widget, "text", str)())
    return cut


@pytest.mark.parametrize("width", [540, 640, 800, 1000])
def test_nothing_is_cut_off_in_a_narrow_window(make_window, width):
    window, engine = make_window()
    window.resize(width, 600)
    settle()
    assert window.width() == width
    parts = window.parts
    assert cut_off(window, parts) == []
    assert not cut_off(window, window.page(window.current_chat))
    window.send(window.current_chat, "hello")
    engine.run()
    parts.toggle_panel()
    settle()
    assert cut_off(window, parts.panel) == [] and parts.panel.geometry().right() == window.width() - 1
    assert parts.panel.geometry().bottom() < parts.strip.y() or parts.panel.parentWidget() is not parts
    parts.toggle_panel()
    parts.set_dashboard("full")
    settle()
    assert cut_off(window, parts.dashboard.heading) == [] and parts.dashboard.cards.geometry().right() < parts.dashboard.width()
    parts.set_dashboard("off")
    if parts.sidebar.collapsed:
        parts.toggle_sidebar()  # by hand: it stays, and the chat has what is left
    settle()
    assert not parts.sidebar.collapsed and cut_off(window, parts.stack) == []


def test_the_sidebar_gives_way_and_comes_back(make_window):
    window, _ = make_window()
    parts = window.parts
    assert not parts.sidebar.collapsed
    window.resize(560, 600)
    settle()
    assert parts.sidebar.collapsed and parts.sidebar_wish, "the session keeps what the person had"
    window.resize(1200, 600)
    settle()
    assert not parts.sidebar.collapsed
    parts.toggle_sidebar()
    window.resize(560, 600)
    settle()
    window.resize(1200, 600)
    settle()
    assert parts.sidebar.collapsed and not parts.sidebar_wish, "who collapsed it finds it collapsed"


def test_the_panel_of_a_low_window_scrolls(make_window):
    window, _ = make_window()
    window.resize(1280, 480)
    window.parts.toggle_panel()
    settle()
    panel = window.parts.panel
    area = panel.findChild(QScrollArea)
    assert area.verticalScrollBar().maximum() > 0
    fields = [panel.temperature, panel.top_p, panel.top_k, panel.min_p, panel.repetition, panel.max_tokens, panel.seed]
    for above, below in zip(fields, fields[1:], strict=False):
        assert above.geometry().bottom() < below.geometry().top(), "no field lies over another"


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_panel_is_wide_enough_for_its_fields_with_a_scroll_bar(qapp, make_window, language):
    translators = install(qapp, language)
    window, _ = make_window()
    window.resize(1280, 480)
    window.parts.toggle_panel()
    settle()
    area = window.parts.panel.findChild(QScrollArea)
    assert area.verticalScrollBar().isVisible() and area.widget().width() == area.viewport().width()
    for translator in translators:
        qapp.removeTranslator(translator)


def test_what_is_hidden_takes_no_focus_along(make_window):
    window, _ = make_window()
    window.activateWindow()
    page = window.page(window.current_chat)
    page.focus_composer()
    window.parts.set_dashboard("full")
    settle()
    assert window.parts.dashboard.isAncestorOf(QApplication.focusWidget())
    window.parts.set_dashboard("off")
    settle()
    assert QApplication.focusWidget() is page.composer.edit
    window.parts.toggle_panel()
    window.parts.panel.seed.setFocus()
    window.parts.toggle_panel()
    settle()
    assert QApplication.focusWidget() is page.composer.edit
