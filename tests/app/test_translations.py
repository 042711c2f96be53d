"""German: every string that goes through translation has its words, and the compiled catalogue says the same."""

from __future__ import annotations

import ast
import string
import subprocess
import sys
import xml.etree.ElementTree as ET
from datetime import datetime
from pathlib import Path

from app.theme.resources import resource_path
from app.translations import begun, day_in_words, language_of
from app.window.keys import KEYS
from engine import CHAT_FORMS, PRESETS

ROOT = Path(__file__).resolve().parents[2]


def strings() -> dict[str, set[str]]:
    """Every string that goes through `tr` or `translate`, by its context; names of actions, and what the engine's tables say, too."""
    found: dict[str, set[str]] = {"Keys": {name[:1].upper() + name[1:] for name in KEYS}}
    found["Models"] = {words for form in CHAT_FORMS for words in (form.title, form.words)} | {preset.hint for preset in PRESETS}
    found["Stages"] = stages()
    found["Sentences"] = sentences()[0]
    for path in (ROOT / "app").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if "translate" in (getattr(call.func, "id", ""), getattr(call.func, "attr", "")) and len(call.args) >= 2:
                context, text = (getattr(argument, "value", None) for argument in call.args[:2])
                if isinstance(context, str) and isinstance(text, str):
                    found.setdefault(context, set()).add(text)
        for scope in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            for call in (node for node in ast.walk(scope) if isinstance(node, ast.Call)):
                if not call.args or not isinstance(call.args[0], ast.Constant) or not isinstance(call.args[0].value, str):
                    continue
                if getattr(call.func, "attr", "") == "tr":
                    found.setdefault(scope.name, set()).add(call.args[0].value)
                elif getattr(call.func, "id", "") == "_tr":
                    found.setdefault("ChatMenu", set()).add(call.args[0].value)
        if path.parent.name not in ROOMS:
            continue
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            words = [argument.value for argument in call.args[:2] if isinstance(argument, ast.Constant)]
            if name_of(call) in ("translate", "later") and len(words) == 2:
                found.setdefault(str(words[0]), set()).add(str(words[1]))
    return found


def stages() -> set[str]:
    """What the engine calls the stages of a load; those with a name in them stay as they are."""
    found = {"preparing the fast lane"}
    for path in (ROOT / "engine").rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)):
            if name_of(call) in ("progress", "_progress") and len(call.args) >= 2 and isinstance(call.args[1], ast.Constant):
                found.add(str(call.args[1].value))
    return found


TROUBLES = {  # what carries sentences to a person, and which of its arguments they are
    **dict.fromkeys(("EngineError", "ModelError", "RequestRefused", "ErrorInfo"), slice(1, 3)),
    **dict.fromkeys(("AttachError", "UnreadableFile", "FolderInUse", "StoreError", "BadEntry", "Sentence"), slice(0, 1)),
}


def sentences() -> tuple[set[str], list[str]]:
    """What the engine and the store of chats say to a person, and where they do so in a string that cannot be translated: one that has
    its values in it already."""
    found: set[str] = set()
    lost: list[str] = []
    own = ("engine/bench/", "engine/server/")  # for programs, and for the terminal
    files = [*(ROOT / "engine").rglob("*.py"), *(ROOT / "app" / "chats").rglob("*.py"), ROOT / "app" / "settings.py", *WITH_SENTENCES]
    for path in files:
        if path.relative_to(ROOT).as_posix().startswith(own) or path.name == "cli.py":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and name_of(node) in TROUBLES]
        said = [argument for call in calls for argument in call.args[TROUBLES[name_of(call)]]]
        names = {argument.id for argument in said if isinstance(argument, ast.Name)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id in names for target in node.targets):
                said.append(node.value)
        while said:
            node = said.pop()
            if isinstance(node, ast.IfExp):
                said += [node.body, node.orelse]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and any(map(str.isalpha, node.value)):
                found.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                lost.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found, lost


WITH_SENTENCES = [ROOT / "app" / "window" / "api_switch.py"]


def name_of(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


# What shows words to a person, or reads them out.
SHOWS = {
    *("setText", "setToolTip", "setAccessibleName", "setAccessibleDescription", "setPlaceholderText", "setWindowTitle", "setTitle"),
    *("setStatusTip", "addAction", "addItem", "addItems", "addMenu", "addRow", "addTab", "ask", "showMessage", "setSpecialValueText"),
    *("setTabToolTip", "setAccessibleTabName", "QLabel", "QPushButton", "QCheckBox", "QRadioButton", "QGroupBox", "QAction"),
    *("QFileDialog", "insertText", "drawText", "begin_edit", "offer_undo", "_decimal", "_tool", "_row", "_choice"),
}
ROOMS = ("window", "composer", "transcript", "theme", "dashboard", "models")
# Names and signs that are the same in every language, by file.
UNTRANSLATED = {
    "Omnibus": "the name of the program",
    "English": "a language is called by its own name",
    "Deutsch": "a language is called by its own name",
    "Omnibus (safe mode)": "for whoever asked for it on the command line",
    "Omnibus ": "the name of the program, before its version",
}


def plain_words(node: ast.AST) -> list[ast.Constant]:
    """Strings with words in them that stand in an argument as they are: not in `tr`, not a key of a table, not in a call inside."""
    if isinstance(node, (ast.Call, ast.Lambda, ast.Subscript, ast.Compare)):
        return []
    if isinstance(node, ast.Constant):
        words = isinstance(node.value, str) and any(map(str.isalpha, node.value)) and (" " in node.value or node.value[:1].isupper())
        return [node] if words else []
    return [found for child in ast.iter_child_nodes(node) for found in plain_words(child)]


def test_no_words_go_around_translation():
    """Whatever is shown goes through `tr` or `translate`."""
    found = []
    for room in ROOMS:
        for path in sorted((ROOT / "app" / room).rglob("*.py")):
            for call in (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)):
                if name_of(call) in SHOWS:
                    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
                    words = [str(constant.value) for argument in arguments for constant in plain_words(argument)]
                    found += [(f"{path.name}:{call.lineno}", word) for word in words if word not in UNTRANSLATED]
    assert not found


def test_the_search_for_words_finds_them():
    source = """
a.setText("Some words" if b else f"{n} more")
c.setText(self.tr("Done"))
d.ask(words, (("k", "Key", "quiet"),))
e.setText("x")
"""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and name_of(node) in SHOWS]
    found = {constant.value for call in calls for argument in call.args for constant in plain_words(argument)}
    assert found == {"Some words", " more", "Key"}


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


def test_no_sentence_is_made_before_it_can_be_translated():
    """Those with values in them are told as `Sentence`, which remembers its form."""
    found, lost = sentences()
    assert not lost and len(found) > 300 and "{0} of {1} seats are taken" in found and "The engine is closed." in found


def test_places_to_fill_in_are_the_same():
    def places(text: str) -> list[str]:
        parts = ((field, spec, mark) for _, field, spec, mark in string.Formatter().parse(text) if field is not None)
        return sorted(f"{field}!{mark}:{spec}" for field, spec, mark in parts)

    for (_, source), translation in german().items():
        assert places(source) == places(translation), source


def test_the_compiled_catalogue_says_the_same():
    """In a process of its own: a translator would stay in every other test's window."""
    code = (
        "import sys; from PySide6.QtCore import QCoreApplication\n"
        "from app.translations import install; from tests.app.test_translations import german\n"
        "app = QCoreApplication([]); kept = install(app, 'de')\n"
        "wrong = [key for key, words in german().items() if QCoreApplication.translate(*key) != words]\n"
        "from datetime import datetime; from app.translations import day_in_words\n"
        "wrong += [day_in_words(datetime(2026, 10, 5))] * (day_in_words(datetime(2026, 10, 5)) != '5. Okt. 2026')\n"
        "from app.numbers import fill, number, said; from engine import Sentence\n"
        "wrong += [number(16.1, '.1f')] * (number(16.1, '.1f') != '16,1')\n"
        "wrong += [fill('{0:,} {1:.0%}', 8192, 0.5)] * (fill('{0:,} {1:.0%}', 8192, 0.5) != '8.192 50\\u00a0%')\n"
        "why = said(Sentence('{0}, {1} kept for growth', Sentence('{0}, {1} back', Sentence('{0} blocks', 1200), 'a.b, c'), 2.5))\n"
        "wrong += [why] * (why != '1200 Bl\u00f6cke, a.b, c back, 2,5 f\u00fcr Wachstum zur\u00fcckgehalten')\n"
        "wrong += [said('The engine is closed.')] * (said('The engine is closed.') != 'Der Motor ist aus.')\n"
        "sys.exit(str(wrong) if wrong or len(kept) < 1 else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_day_is_written_in_the_windows_language():
    assert day_in_words(datetime(2026, 10, 5)) == "5 Oct 2026"


def test_a_line_begins_with_a_capital_and_keeps_the_others():
    assert begun("making room for the KV cache") == "Making room for the KV cache" and begun("") == ""


def test_an_unknown_language_is_english():
    assert language_of("xx") == "en" and language_of("de") == "de"
