"""German: every string that goes through translation has its words, and the compiled catalogue says the same."""

from __future__ import annotations

import ast
import string
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from app.theme.resources import resource_path
from app.translations import language_of
from app.window.keys import KEYS

ROOT = Path(__file__).resolve().parents[2]


def strings() -> dict[str, set[str]]:
    """Every string that goes through `tr`, by its context, as the sources have it; and the names of actions."""
    found: dict[str, set[str]] = {"Keys": {name[:1].upper() + name[1:] for name in KEYS}}
    for path in (ROOT / "app").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for scope in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            for call in (node for node in ast.walk(scope) if isinstance(node, ast.Call)):
                if not call.args or not isinstance(call.args[0], ast.Constant) or not isinstance(call.args[0].value, str):
                    continue
                if getattr(call.func, "attr", "") == "tr":
                    found.setdefault(scope.name, set()).add(call.args[0].value)
                elif getattr(call.func, "id", "") == "_tr":
                    found.setdefault("ChatMenu", set()).add(call.args[0].value)
    return found


def german() -> dict[tuple[str, str], str]:
    tree = ET.parse(resource_path("translations", "omnibus_de.ts"))
    words = {}
    for context in tree.getroot().iter("context"):
        for message in context.iter("message"):
            words[context.findtext("name", ""), message.findtext("source", "")] = message.findtext("translation", "")
    return words


def test_every_string_has_its_words():
    words = german()
    missing = [(context, text) for context, texts in strings().items() for text in texts if not words.get((context, text))]
    assert not missing


def test_places_to_fill_in_are_the_same():
    def places(text: str) -> list[str | None]:
        return sorted(str(field) for _, field, _, _ in string.Formatter().parse(text) if field is not None)

    for (_, source), translation in german().items():
        assert places(source) == places(translation), source


def test_the_compiled_catalogue_says_the_same():
    """In a process of its own: a translator would stay in every other test's window."""
    code = (
        "import sys; from PySide6.QtCore import QCoreApplication\n"
        "from app.translations import install; from tests.app.test_translations import german\n"
        "app = QCoreApplication([]); kept = install(app, 'de')\n"
        "wrong = [key for key, words in german().items() if QCoreApplication.translate(*key) != words]\n"
        "sys.exit(str(wrong) if wrong or len(kept) < 1 else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_language_is_english():
    assert language_of("xx") == "en" and language_of("de") == "de"
