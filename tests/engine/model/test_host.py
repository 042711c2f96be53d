"""Blocks go to the second tier and come back bit for bit, in memory and in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.kv.copies import Copy
from engine.model.host import HostStore
from engine.types import EngineError
from tests.engine.model.tiny import make_lane, make_model


@pytest.mark.parametrize("on_disk", [False, True])
def test_round_trip(on_disk: bool, tmp_path: Path) -> None:
    store = make_lane(make_model("llama"), blocks=6, block_size=4).store
    for tensor in store.tensors():
        tensor.normal_()
    before = [tensor.clone() for tensor in store.tensors()]
    host = HostStore(store, 3, str(tmp_path) if on_disk else None)
    host.copy([Copy(1, 0, True), Copy(2, 1, True)])
    for tensor in store.tensors():
        tensor[1:3] = 7.0
    # Read back crosswise; then slot 0 is used again by a save of the block that was just restored.
    host.copy([Copy(4, 0, False), Copy(5, 1, False), Copy(5, 0, True), Copy(3, 0, False)])
    for old, new in zip(before, store.tensors(), strict=True):
        assert torch.equal(new[4], old[1])
        assert torch.equal(new[5], old[2])
        assert torch.equal(new[3], old[2])
        assert torch.equal(new[6], old[6])
    store.resize(9)
    host.copy([Copy(9, 0, False)])
    assert all(torch.equal(new[9], old[2]) for old, new in zip(before, store.tensors(), strict=True))
    files = list(tmp_path.iterdir())
    assert len(files) == int(on_disk)
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)
    host.close()
    assert not list(tmp_path.iterdir())


def test_no_room_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    store = make_lane(make_model("llama"), blocks=6, block_size=4).store
    with pytest.raises(EngineError, match=r"cannot take \d+\.\d GB of set-aside chats") as caught:
        HostStore(store, 1 << 44, str(tmp_path))
    assert caught.value.code == "tier_failed"
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    store = make_lane(make_model("llama"), blocks=6, block_size=4).store
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match="The folder .*file cannot take") as caught:
        HostStore(store, 3, str(tmp_path / "file"))
    assert caught.value.code == "tier_failed" and "another tier_folder" in caught.value.hint
