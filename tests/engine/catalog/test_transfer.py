"""Downloads against a server that plays the hub and its file store: pieces, resuming, every fault, and what is left behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.catalog import folders
from engine.catalog.hub import Hub, HubFile, Offer
from engine.catalog.progress import Progress, State
from engine.catalog.transfer import TRIES, Download
from tests.engine.catalog.made_up_hub import MadeUpHub, serving

PIECE = 1000
REPOSITORY = "acme/Tiny-GGUF"
FILE = "Tiny.Q4_K_M.gguf"
DATA = os.urandom(7 * PIECE + 123)


@pytest.fixture
def made() -> Iterator[MadeUpHub]:
    hub = MadeUpHub()
    hub.repositories[REPOSITORY] = {FILE: DATA}
    hub.repositories["acme/Tiny"] = {"config.json": b"{}", "tokenizer.json": b'{"a": 1}', "model.safetensors": DATA}
    with serving(hub):
        yield hub


class Waits:
    """Takes the place of sleeping; remembers for how long."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, event: threading.Event, seconds: float) -> None:
        self.seconds.append(seconds)


def make_download(made: MadeUpHub, folder: Path, repository: str = REPOSITORY, **more: Any) -> Download:
    shop = Hub(made.url, more.pop("token", None))
    return Download(shop.offers(repository)[-1], folder, endpoint=shop.endpoint, token=shop.token, piece=PIECE, **{"wait": Waits()} | more)


def fetch(job: Download) -> Progress:
    job.start()
    return job.join(30)


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def until(condition: Callable[[], bool]) -> None:
    for _ in range(6000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never came true")


def test_a_file_comes_in_pieces_through_a_redirect(made: MadeUpHub, tmp_path: Path) -> None:
    heard: list[Progress] = []
    ended = fetch(make_download(made, tmp_path, token="hf_right", on_change=heard.append))
    assert (ended.state, ended.done, ended.total) == (State.DONE, len(DATA), len(DATA))
    assert ended.path == tmp_path / "acme--Tiny-GGUF" / FILE and ended.path.read_bytes() == DATA
    assert sorted(range for _, range in made.asked)[:2] == ["bytes=0-999", "bytes=1000-1999"] and len(made.asked) == 8
    assert hidden(tmp_path) == []
    assert [heard[0].state, heard[-1].state] == [State.RUNNING, State.DONE] and State.CHECKING in {item.state for item in heard}
    assert set(made.tokens_at_the_store) == {""}  # the store is another host: the token is not for it


def test_a_folder_comes_whole(made: MadeUpHub, tmp_path: Path) -> None:
    ended = fetch(make_download(made, tmp_path, "acme/Tiny"))
    assert ended.path == tmp_path / "acme--Tiny"
    assert sorted(path.name for path in ended.path.iterdir()) == ["config.json", "model.safetensors", "omnibus.json", "tokenizer.json"]
    assert hidden(tmp_path) == []


def test_a_cut_connection_goes_on_where_it_broke(made: MadeUpHub, tmp_path: Path) -> None:
    made.faults = lambda name, times: "cut" if times % 2 else ""
    ended = fetch(make_download(made, tmp_path))
    assert ended.path is not None and ended.path.read_bytes() == DATA
    first, *later = [range.removeprefix("bytes=").split("-") for _, range in made.asked]  # whichever piece was asked for first: it was cut
    assert [str((int(first[0]) + int(first[1]) + 1) // 2), first[1]] in later


def test_a_server_without_ranges(made: MadeUpHub, tmp_path: Path) -> None:
    made.ranges = False
    ended = fetch(make_download(made, tmp_path))
    assert ended.path is not None and ended.path.read_bytes() == DATA


def test_a_busy_hub_is_asked_again_when_it_says(made: MadeUpHub, tmp_path: Path) -> None:
    made.faults = lambda name, times: "429" if times == 1 else "503" if times == 2 else ""
    waits = Waits()
    assert fetch(make_download(made, tmp_path, wait=waits)).state is State.DONE
    # As long as the hub said, and then as long as we think: a second, or two if both answers met the same piece.
    assert len(waits.seconds) == 2 and 7.0 in waits.seconds and {1.0, 2.0} & {*waits.seconds}


def test_a_hub_that_stays_busy_is_given_up_and_gone_on_with(made: MadeUpHub, tmp_path: Path) -> None:
    made.faults = lambda name, times: "503" if times > 4 else ""
    job = make_download(made, tmp_path)
    ended = fetch(job)
    assert ended.state is State.FAILED and ended.error is not None and ended.error.code == "download_failed"
    assert hidden(tmp_path) and not (tmp_path / "acme--Tiny-GGUF").exists()
    before = len(made.asked)
    assert before >= TRIES
    made.faults = lambda name, times: ""
    assert fetch(job).state is State.DONE
    assert len(made.asked) - before == 4  # what was there is not asked for again


def test_a_wrong_hash_is_never_shown_as_a_model(made: MadeUpHub, tmp_path: Path) -> None:
    made.damaged.add(FILE)
    job = make_download(made, tmp_path)
    ended = fetch(job)
    assert ended.error is not None and ended.error.code == "wrong_hash"
    assert not (tmp_path / "acme--Tiny-GGUF").exists()
    made.damaged.clear()
    assert fetch(job).state is State.DONE


@pytest.mark.parametrize(("kind", "code"), [("gated", "gated"), ("private", "hub_login")])
def test_what_is_not_for_everyone(made: MadeUpHub, tmp_path: Path, kind: str, code: str) -> None:
    getattr(made, kind).add(REPOSITORY)
    ended = fetch(make_download(made, tmp_path))
    assert ended.error is not None and ended.error.code == code and "HF_TOKEN" in ended.error.hint
    if kind == "private":
        assert fetch(make_download(made, tmp_path, token=made.token)).state is State.DONE


def test_a_file_that_is_gone(made: MadeUpHub, tmp_path: Path) -> None:
    job = make_download(made, tmp_path)
    del made.repositories[REPOSITORY][FILE]
    ended = fetch(job)
    assert ended.error is not None and ended.error.code == "not_on_hub" and FILE in ended.error.message


def test_a_pause_keeps_what_is_there_for_another_day(made: MadeUpHub, tmp_path: Path) -> None:
    made.faults = lambda name, times: "slow" if times > 5 else ""
    job = make_download(made, tmp_path)
    job.start()
    until(lambda: len(made.asked) >= 6)
    job.pause()
    made.gate.set()
    assert job.join(30).state is State.PAUSED
    before = len(made.asked)
    made.faults = lambda name, times: ""
    ended = fetch(make_download(made, tmp_path))  # as after a restart of the program
    assert ended.path is not None and ended.path.read_bytes() == DATA
    assert len(made.asked) - before < 8


def test_a_cancel_leaves_nothing(made: MadeUpHub, tmp_path: Path) -> None:
    made.faults = lambda name, times: "slow" if times > 2 else ""
    job = make_download(made, tmp_path)
    job.start()
    until(lambda: len(made.asked) >= 3)
    job.cancel()
    made.gate.set()
    assert job.join(30).state is State.CANCELLED
    assert list(tmp_path.iterdir()) == []


def test_no_room_on_the_disk_is_said_before_anything_comes(made: MadeUpHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_download(made, tmp_path)
    real = folders.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(folders.shutil, "disk_usage", lambda path: real._replace(free=1000))
    ended = fetch(job)
    assert ended.error is not None and ended.error.code == "disk_full"
    assert made.asked == []


@pytest.mark.parametrize("name", ["../evil.gguf", "a/../../evil.gguf", ".hidden", "a\\b", "c:d", ""])
def test_a_file_name_cannot_leave_the_folder(made: MadeUpHub, tmp_path: Path, name: str) -> None:
    offer = Offer(REPOSITORY, "main", "Best", "F16", (HubFile(name, 3),), "", False)
    ended = fetch(Download(offer, tmp_path / "in", endpoint=made.url))
    assert ended.error is not None and ended.error.code == "bad_file_name"
    assert made.asked == [] and list(tmp_path.rglob("*.gguf")) == []


def test_without_a_network(made: MadeUpHub, tmp_path: Path) -> None:
    job = make_download(made, tmp_path)
    job._endpoint = "http://127.0.0.1:9"
    ended = fetch(job)
    assert ended.error is not None and ended.error.code == "no_network"
