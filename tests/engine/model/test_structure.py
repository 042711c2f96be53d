"""The kept table of transformers' modules: the same as transformers', and out of the way when it is not."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.model import structure

ROOT = Path(__file__).parents[3]
TABLE: dict[Any, Any] = {
    "llama": {frozenset(): {"configuration_llama": {"LlamaConfig"}}, frozenset({"torch"}): {"modeling_llama": {"A", "B"}}},
    "auto": {"inner": {frozenset({"torch>=2.2", "vision"}): {"x": {"# odd", ""}}}},
    frozenset(): {"beside": {"Name"}},
}

START = """
import builtins, hashlib, sys
from engine.model.lean import bring_in
read = []
real = builtins.open
def counting(file, *given, **named):
    if "models" in str(file) and str(file).endswith(".py"):
        read.append(file)
    return real(file, *given, **named)
builtins.open = counting
bring_in()
builtins.open = real
import transformers
from transformers.utils import import_utils
from transformers import LlamaConfig, AutoModelForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM
ask = import_utils.create_import_structure_from_path
table = (ask.__wrapped__ if read else ask)(transformers.models.__path__[0] + "/__init__.py")  # their own remembers what it has just said

def told(item):
    if isinstance(item, dict):
        return sorted((str(sorted(key) if isinstance(key, frozenset) else key), told(value)) for key, value in item.items())
    return sorted(item)

print(len(read) > 1000, [type(item).__name__ for item in sys.meta_path].count("_Finder"), len(table) > 300)
print(hashlib.sha256(repr(told(table)).encode()).hexdigest())
"""


def start(home: Path) -> list[str]:
    environment = {**os.environ, "OMNIBUS_HOME": str(home)}
    command = [sys.executable, "-W", "ignore", "-c", START]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_second_start_reads_no_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIBUS_HOME", str(tmp_path))
    package = importlib.util.find_spec("transformers")
    assert package is not None and package.origin is not None
    file = structure._own_file(Path(package.origin).parent)
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    first, made = start(tmp_path)  # one that is damaged is made anew by transformers' own function, as one that is missing
    again, kept = start(tmp_path)
    assert (first, again) == ("True 0 True", "False 0 True") and kept == made
    assert list(file.parent.iterdir()) == [file]


def test_a_table_comes_back_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "transformers-1-x.json"
    structure.write(file, TABLE)
    assert structure.read(file) == TABLE
    structure.write(later := file.with_name("transformers-2-x.json"), TABLE)
    assert list(file.parent.iterdir()) == [later]  # those of other versions go


@pytest.mark.parametrize(
    "content",
    [
        *([], {}, "x", {"folders": {}}, {"folders": [], "files": []}, {"folders": {"a.b": {"folders": {}, "files": []}}, "files": []}),
        *({"folders": {}, "files": [[["torch"], {"..os": ["x"]}]]}, {"folders": {}, "files": [[[1], {"a": ["x"]}]]}),
        *({"folders": {}, "files": [[[], {"a": [2]}]]}, {"folders": {}, "files": [[]]}),
    ],
)
def test_what_is_no_table_is_not_taken_for_one(tmp_path: Path, content: Any) -> None:
    (tmp_path / "t.json").write_text(json.dumps(content))
    assert structure.read(tmp_path / "t.json") is None


def test_without_a_place_to_keep_it_nothing_happens(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    structure.write(tmp_path / "file" / "t.json", TABLE)
    assert structure.read(tmp_path / "none.json") is None
