"""The second tier with a real model, through the engine's public face: in memory and in a file, whole and with 8-bit keys and values."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.engine import Engine
from engine.kv.restoring import RestoreCost
from engine.model.opening import open_model
from engine.types import EngineConfig, EngineError, SamplingParams
from tests.engine.model.tiny_files import make_folder

PARAMS = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)
CHATS = [f"chat {number} has words of its own " * 4 for number in range(6)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("tiny"))


def config(folder: Path, **changes: object) -> EngineConfig:
    rules: dict[str, object] = {"dtype": "float32", "plain": True, "seats": 2, "kv_tokens": 320, "block_size": 16, "threads": 1}
    return EngineConfig(model=str(folder), debug_audit=True, **{**rules, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("kv_class", ["auto", "8-bit"])
@pytest.mark.parametrize("on_disk", [False, True])
def test_chats_that_gave_way_come_back_and_say_the_same(
    folder: Path, tmp_path: Path, on_disk: bool, kv_class: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RestoreCost, "worth", lambda cost, blocks, *others: blocks)  # however fast this machine's disk is today
    place = str(tmp_path) if on_disk else None
    with Engine(config(folder, tier_tokens=4096, tier_folder=place, kv_class=kv_class)) as engine:
        engine.wait_ready(60)
        first = [engine.submit(chat, PARAMS, chat_id=f"c{number}").result(60) for number, chat in enumerate(CHATS)]
        again = [engine.submit(chat, PARAMS, chat_id=f"c{number}").result(60) for number, chat in enumerate(CHATS)]
        assert len(os.listdir(tmp_path)) == int(on_disk)
        assert engine._core is not None and engine._core.tier is not None and engine._core.tier.restored > 10
        assert engine._core.swapping.cost.block_s is not None
    assert [answer.token_ids for answer in again] == [answer.token_ids for answer in first]
    assert sum(answer.usage.cached_tokens for answer in again) > 0.8 * sum(map(len, CHATS))
    assert not os.listdir(tmp_path)


def test_more_than_memory_holds_is_refused_with_the_most_that_it_would(folder: Path) -> None:
    with pytest.raises(EngineError, match="To set 1,000,000,000,000 positions of idle chats aside takes .* only .* free") as caught:
        open_model(config(folder, tier_tokens=10**12), lambda share, stage: None, lambda: False)
    assert caught.value.code == "not_enough_memory" and "tier_folder" in caught.value.hint
    assert 0 < int(caught.value.hint.split("at most ")[1].split(",")[0]) < 10**12
