"""Own presets: saved from what is set now, renamed, replaced, deleted with undo; there again at the next start."""

from __future__ import annotations

import json

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.settings import SettingsFile
from app.window.presets import PRESETS


def make(make_window, folder):
    window, _ = make_window()
    window.preferences.attach(SettingsFile(folder))
    window.parts.toggle_panel()
    return window, window.parts.panel, window.parts.panel.presets


def save(row, name, prompt=False):
    row.ask_name()
    row.with_prompt.setChecked(prompt)
    QTest.keyClicks(row.field, name)
    QTest.keyClick(row.field, Qt.Key.Key_Return)


def choose(row, name):
    row.box.activated.emit(row.box.findText(name))


def actions(menu, name=None):
    found = {action.text(): action for action in menu.actions()}
    return {action.text(): action for action in found[name].menu().actions()} if name else found


def test_what_is_set_now_is_kept_under_a_name_and_comes_back(make_window, tmp_path):
    window, panel, row = make(make_window, tmp_path)
    panel.temperature.setValue(0.33)
    panel.max_tokens.setValue(99)
    panel.system.setPlainText("Be brief.")
    save(row, "  Short   and dry ")
    save(row, "With words", prompt=True)
    assert row.names == [*PRESETS, "Short and dry", "With words"] and "saved" in row.note.text() and row.field.isHidden()
    panel.temperature.setValue(1.5)
    panel.max_tokens.setValue(7)
    panel.system.setPlainText("Another prompt")
    choose(row, "Short and dry")
    assert (panel.settings().temperature, panel.settings().max_tokens) == (0.33, 99) and panel.settings().system_prompt == "Another prompt"
    choose(row, "With words")
    assert window.book[window.current_chat].settings.system_prompt == "Be brief."
    other, _, again = make(make_window, tmp_path)
    assert again.names == row.names
    choose(again, "Short and dry")
    assert other.book[other.current_chat].settings.temperature == 0.33


def test_an_own_preset_is_renamed_replaced_and_deleted_with_undo(make_window, tmp_path):
    window, panel, row = make(make_window, tmp_path)
    save(row, "One")
    panel.temperature.setValue(1.25)
    actions(row.menu(), "One")["Replace by the present parameters"].trigger()
    assert SettingsFile(tmp_path).settings.presets["One"]["temperature"] == 1.25
    actions(row.menu(), "One")["Rename\u2026"].trigger()
    assert row.field.text() == "One" and row.with_prompt.isHidden()
    row.field.setText("balanced")
    row.save.click()
    assert "already" in row.note.text() and row.names[-1] == "One"
    row.field.setText(" ")
    row.save.click()
    assert "needs a name" in row.note.text()
    row.field.setText("ONE")
    row.save.click()
    assert row.names[-1] == "ONE" and list(SettingsFile(tmp_path).settings.presets) == ["ONE"]
    actions(row.menu(), "ONE")["Delete"].trigger()
    assert row.names == list(PRESETS) and SettingsFile(tmp_path).settings.presets == {} and not row.undo.isHidden()
    row.undo.click()
    assert row.names[-1] == "ONE" and SettingsFile(tmp_path).settings.presets["ONE"]["temperature"] == 1.25


def test_escape_gives_up_and_nothing_is_saved(make_window, tmp_path):
    _, _, row = make(make_window, tmp_path)
    actions(row.menu())["Save the present parameters\u2026"].trigger()
    QTest.keyClicks(row.field, "Never")
    QTest.keyClick(row.field, Qt.Key.Key_Escape)
    assert row.field.isHidden() and row.names == list(PRESETS)


def test_of_damaged_presets_what_makes_sense_is_kept(make_window, tmp_path):
    presets = {"Good": {"temperature": 1, "top_k": 5.0, "colour": "red", "min_p": True, "top_p": "x"}, "Bad": 3, "Empty": {"seed": []}}
    (tmp_path / "settings.json").write_text(json.dumps({"version": 1, "presets": presets}))
    _, panel, row = make(make_window, tmp_path)
    assert row.names == [*PRESETS, "Good"]
    choose(row, "Good")
    assert (panel.settings().temperature, panel.settings().top_k) == (1.0, 5)
