"""Settings: what is damaged is set aside and told; what makes no sense is a default; what a newer version wrote is kept."""

from __future__ import annotations

import json

import pytest

from app.settings import FILE, Settings, SettingsFile


def test_settings_come_back(tmp_path):
    file = SettingsFile(tmp_path)
    assert file.settings == Settings() and file.trouble == ""
    assert file.change(theme="light", keys={"search": ("Ctrl+J",)}) == ""
    again = SettingsFile(tmp_path)
    assert again.settings == Settings(theme="light", keys={"search": ("Ctrl+J",)})
    assert json.loads((tmp_path / FILE).read_text())["version"] == 1


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"theme": "dark"}', "[" * 100_000, "\x00\xff"])
def test_a_damaged_file_is_set_aside_and_told(tmp_path, content):
    (tmp_path / FILE).write_text(content, encoding="latin-1")
    file = SettingsFile(tmp_path)
    assert file.settings == Settings() and "It is kept as settings.json.damaged-" in file.trouble
    (aside,) = tmp_path.glob("settings.json.damaged-*")
    assert aside.read_text(encoding="latin-1") == content
    assert file.change(theme="dark") == "" and SettingsFile(tmp_path).trouble == ""


def test_values_that_make_no_sense_are_defaults(tmp_path):
    record = {"version": 1, "theme": "pink", "motion": 3, "notify": "yes", "keys": {"a": "x", "b": [1], "search": ["Ctrl+J"]}}
    (tmp_path / FILE).write_text(json.dumps(record))
    assert SettingsFile(tmp_path).settings == Settings(keys={"search": ("Ctrl+J",)})


def test_what_a_newer_version_wrote_is_kept(tmp_path):
    (tmp_path / FILE).write_text(json.dumps({"version": 9, "theme": "dark", "telepathy": True}))
    file = SettingsFile(tmp_path)
    file.change(theme="light")
    record = json.loads((tmp_path / FILE).read_text())
    assert (record["version"], record["telepathy"], record["theme"]) == (9, True, "light")


def test_a_place_that_cannot_be_written_is_told_and_the_change_holds(tmp_path):
    (tmp_path / "file").write_text("in the way")
    file = SettingsFile(tmp_path / "file")
    assert "could not be saved" in file.change(theme="light") and file.settings.theme == "light"


def test_half_of_a_surrogate_pair_in_a_name_stops_no_writing(tmp_path):
    file = SettingsFile(tmp_path)
    assert file.change(presets={"half \ud83d": {"temperature": 1.0}}) == "" and file.change(theme="light") == ""
    assert SettingsFile(tmp_path).settings == Settings(theme="light", presets={"half ?": {"temperature": 1.0}})
