"""The about box and the papers behind it: in a checkout, in a bundle, and where a paper is missing."""

from __future__ import annotations

import json
from pathlib import Path

from PySide6.QtCore import Qt

from app.papers import Paper, parts
from app.theme import Theme, apply_theme
from app.window.about import AboutBox
from engine.version import __version__


def test_a_checkout_lists_what_is_installed():
    found = parts()
    names = [paper.name for paper in found]
    assert names[0] == "Omnibus" and {"torch", "PySide6-Essentials", "Inter", "SmolLM2-135M-Instruct"} <= set(names)
    assert found[0].version == __version__ and "Apache License" in found[0].text()
    assert "SIL OPEN FONT LICENSE" in next(paper for paper in found if paper.name == "Inter").text().upper()
    assert all(paper.text() for paper in found)


def test_a_bundle_lists_its_papers(tmp_path: Path):
    (tmp_path / "licences" / "b").mkdir(parents=True)
    (tmp_path / "licences" / "b" / "LICENSE").write_text("the terms of b")
    entry = {"version": "1", "licence": "MIT", "home": ""}
    listed = [{**entry, "name": name, "texts": [f"licences/{name}/LICENSE"]} for name in ("Omnibus", "b", "A")]
    (tmp_path / "licences.json").write_text(json.dumps(listed))
    found = parts(tmp_path)
    assert [paper.name for paper in found] == ["Omnibus", "A", "b"]
    assert found[2].text() == "the terms of b" and found[1].text() == "A is under MIT."
    (tmp_path / "licences.json").write_text("{")
    assert parts(tmp_path)[0].name == "Omnibus"


def test_the_box_shows_each_licence_and_closes_with_esc(qapp, qtbot, no_leftovers):
    apply_theme(qapp, Theme.dark())
    box = AboutBox(papers=[Paper("Omnibus", "1", "Apache-2.0", ""), Paper("b", "2", "MIT", "https://b.example")])
    box.show()
    assert "Apache-2.0" in box.text.toPlainText()
    box.list.setFocus()
    qtbot.keyClick(box.list, Qt.Key.Key_Down)
    assert box.licence.text() == "MIT  ·  https://b.example" and "b is under MIT" in box.text.toPlainText()
    assert not box.isModal()
    qtbot.keyClick(box, Qt.Key.Key_Escape)
    assert not box.isVisible()
    qapp.setStyleSheet("")


def test_f1_opens_it(make_window, qapp):
    window, _ = make_window()
    window.show_about()
    (box,) = window.findChildren(AboutBox)
    assert box.isVisible() and f"{__version__}" in box.list.item(0).text()
    box.close()
