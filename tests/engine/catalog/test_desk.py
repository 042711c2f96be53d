"""The desk: questions are answered in order, from its thread; trouble is told; closing ends it."""

from __future__ import annotations

import queue
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.catalog import paths
from engine.catalog.desk import Added, Fitted, Found, Listed, ModelDesk, Moved, Offered, Said
from engine.catalog.fit import Machine, Verdict
from engine.catalog.hub import Hub
from engine.catalog.progress import State
from engine.catalog.registry import Registry
from tests.engine.catalog.made_up_hub import MadeUpHub, serving
from tests.engine.model.tiny_files import make_folder

ROOT = Path(__file__).resolve().parents[3]
ROOMY = Machine("cpu", "16-bit", free=64 << 30, reserve=0, block_size=32)


class Heard(queue.SimpleQueue[Any]):
    def next(self, kind: type) -> Any:
        """The next answer of a kind; others before it are passed over."""
        while True:
            answer = self.get(timeout=30)
            if isinstance(answer, kind):
                return answer


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MadeUpHub]:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    hub = MadeUpHub()
    hub.repositories["acme/Tiny-GGUF"] = {"Tiny.Q4_K_M.gguf": b"GGUF" + bytes(5000)}
    with serving(hub):
        yield hub


@pytest.fixture
def desk(made: MadeUpHub, heard: Heard) -> Iterator[ModelDesk]:
    opened = ModelDesk(heard.put, machine=lambda: ROOMY, hub=lambda: Hub(made.url))
    yield opened
    assert opened.close(60)


def test_a_list_and_then_each_fit(desk: ModelDesk, heard: Heard, tmp_path: Path) -> None:
    sound, faulty = make_folder(tmp_path / "sound"), make_folder(tmp_path / "faulty")
    (faulty / "config.json").write_text("{")
    for place in (sound, faulty):
        desk.add(str(place))
        assert heard.next(Said).words == f"{place.name} is in the list."
    desk.refresh()
    assert [entry.name for entry in heard.next(Listed).entries] == ["starter", "faulty", "sound"]
    bad, good = heard.next(Fitted), heard.next(Fitted)
    assert bad.fit is None and bad.error.code == "damaged_model"
    assert good.source == str(sound) and good.fit.verdict is Verdict.YES
    desk.remove("sound")
    assert "its files are where they were" in heard.next(Said).words


def test_from_a_search_to_a_model_in_the_list(desk: ModelDesk, heard: Heard) -> None:
    desk.search("tiny")
    (model,) = heard.next(Found).models
    desk.offers(model.repository)
    (offer,) = heard.next(Offered).offers
    desk.download(offer)
    while (moved := heard.next(Moved)).progress.state is not State.DONE:
        assert moved.name == "acme/Tiny-GGUF · Balanced" == desk.name_of(offer)
    desk.refresh()
    assert heard.next(Listed).entries[1].name == "Tiny.Q4_K_M"


def test_servers_are_remembered_and_their_keys_are_not_in_the_list(desk: ModelDesk, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[tuple[str, str]] = []
    monkeypatch.setattr("engine.remote.keys.keep", lambda url, key: kept.append((url, key)) or "kept")
    desk.add_server("box:8000", "secret", "org/two")
    assert heard.next(Added).source == "http://box:8000/v1#org/two"
    desk.refresh()
    assert heard.next(Listed).servers == ("http://box:8000/v1#org/two",)
    assert "secret" not in (paths.data_dir() / "models.json").read_text()
    desk.remove_server("http://box:8000/v1#org/two")
    assert "forgotten" in heard.next(Said).words or "forgotten" in heard.next(Said).words
    assert kept == [("http://box:8000/v1", "secret"), ("http://box:8000/v1", "")]


def test_an_address_of_metrics_is_kept_with_its_server(desk: ModelDesk, heard: Heard) -> None:
    desk.add_server("box:8000", "", "", False, "head:8080")
    assert heard.next(Added).source == "http://box:8000/v1###http://head:8080/metrics"
    desk.add_server("box:9000", "", "", False, "no address")
    said = heard.next(Said)
    while not said.failed:
        said = heard.next(Said)
    assert "no address" in said.words and "/metrics" in said.words
    assert Registry().servers == ("http://box:8000/v1###http://head:8080/metrics",)


def test_trouble_is_told_in_words(desk: ModelDesk, heard: Heard, tmp_path: Path) -> None:
    desk.add(str(tmp_path / "nowhere"))
    said = heard.next(Said)
    assert said.failed and "There is nothing at" in said.words
    desk.offers("acme/None")
    assert "no model 'acme/None'" in heard.next(Said).words
    desk.remove("unknown")
    assert heard.next(Said).failed


def test_once_closed_nothing_is_heard(desk: ModelDesk, heard: Heard) -> None:
    desk.close()
    desk.refresh()
    assert heard.empty()


def test_looking_at_models_while_one_loads_harms_neither(tmp_path: Path) -> None:
    """In a process of its own: transformers must be met by both threads for the first time."""
    code = f"""
import threading
from engine.catalog.fit import fit, this_machine
from engine.engine import Engine
from engine.types import EngineConfig
from pathlib import Path
folder = {str(make_folder(tmp_path / "tiny"))!r}
with Engine(EngineConfig(model=folder, device="cpu", threads=1, seats=1)) as engine:
    print(fit(Path(folder), this_machine("cpu")).verdict)
    print(engine.wait_ready(120).state)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout.split() == ["yes", "ready"], done.stderr
