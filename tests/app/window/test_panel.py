"""The panel at the right: every parameter of a chat goes in and comes out; presets; what the context holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QLocale

from app.chats.model import ChatSettings, Overflow
from app.theme import Theme
from app.translations import install
from app.window.panel import ParametersPanel
from app.window.presets import PRESETS
from tests.app.conftest import settle


@pytest.fixture
def panel(qapp, no_leftovers):
    widget = ParametersPanel(Theme.dark())
    widget.told = []
    widget.changed.connect(widget.told.append)
    yield widget
    widget.deleteLater()
    settle()


def test_every_parameter_goes_in_and_comes_out(panel):
    settings = ChatSettings("Be brief.", 0.35, 0.8, 77, 40, 0.05, 1.1, 7, Overflow.DROP_OLDEST.value)
    panel.show_settings(settings)
    assert panel.settings() == settings and panel.told == []
    panel.seed.setValue(-1)
    assert panel.told == [replace(settings, seed=None)]
    panel.overflow.setCurrentIndex(0)
    assert panel.told[-1].overflow == Overflow.STOP.value


def test_a_preset_changes_how_words_are_drawn_and_nothing_else(panel):
    panel.show_settings(ChatSettings("Be brief.", max_tokens=77, seed=3))
    for place, values in enumerate(PRESETS.values(), 1):
        panel.presets.box.activated.emit(place)
        assert panel.told[-1] == replace(ChatSettings("Be brief.", max_tokens=77, seed=3), **values)
        panel.told[-1].sampling().check()
    assert panel.presets.box.currentIndex() == 0


def test_the_gauge_says_what_the_context_holds(panel):
    panel.show_context(1234, 8192)
    assert "1,234 of 8,192 tokens" in panel.gauge_words.text() and panel.gauge.value() == 1234
    panel.show_context(9000, 8192)
    assert panel.gauge.value() == 8192
    panel.show_context(0, 0)
    assert panel.gauge.isHidden()


@pytest.mark.parametrize(("language", "shown"), [("en", "0.70"), ("de", "0,70")])
def test_numbers_are_typed_as_the_window_writes_them(qapp, no_leftovers, language, shown):
    desktop = QLocale()
    QLocale.setDefault(QLocale("de" if language == "en" else "en"))  # which may speak another language
    translators = install(qapp, language)
    panel = ParametersPanel(Theme.dark())
    panel.show_settings(ChatSettings(temperature=0.7))
    assert panel.temperature.text() == shown
    panel.temperature.lineEdit().setText(shown.replace("7", "3"))
    panel.temperature.interpretText()
    assert panel.settings().temperature == 0.3
    panel.deleteLater()
    for translator in translators:
        qapp.removeTranslator(translator)
    QLocale.setDefault(desktop)
    settle()
