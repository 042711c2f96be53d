"""The file that a model is kept in: it comes back to the bit, or it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.model.kept import file
from engine.model.kept.file import Damaged, GivenUp

TENSORS = {
    "half": torch.arange(40, dtype=torch.float32).view(5, 8).bfloat16(),
    "turned": torch.arange(12, dtype=torch.int32).view(3, 4).T,
    "none": torch.empty(0),
    "one": torch.tensor(2.5),
    "flags": torch.tensor([True, False, True]),
}
TEXTS = {"words": "größer als 試す".encode(), "nothing": b""}


def written(path: Path) -> Path:
    file.write(path, {"who": "me"}, TENSORS, TEXTS, lambda: False)
    return path


def test_what_is_written_comes_back_to_the_bit(tmp_path: Path) -> None:
    path = written(tmp_path / "m.model")
    head = file.read_head(path)
    tensors, texts = file.read(path, head)
    assert head.facts == {"who": "me"} and texts == TEXTS
    assert file.read_text(path, head, "words") == TEXTS["words"]
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype and torch.equal(tensors[name], tensor)
        assert tensors[name].data_ptr() % file.ALIGNED == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.model"]


def test_a_flipped_bit_anywhere_and_every_cut_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path / "m.model")
    whole, head = path.read_bytes(), file.read_head(path)
    used = {place for part in head.parts.values() for place in range(head.body + part.at, head.body + part.at + part.size)}
    told = range(file._START + int.from_bytes(whole[8:16], "little"))
    for place in sorted({*told, *used})[:: 7 if len(whole) > 2000 else 1]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(Damaged):
            file.read(path, file.read_head(path))
    for length in (*range(0, len(whole), 61), len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(Damaged):
            file.read_head(path)
    path.write_bytes(whole + b"!")
    with pytest.raises(Damaged):
        file.read_head(path)


def test_writing_that_is_called_off_or_impossible_leaves_what_was_there(tmp_path: Path) -> None:
    path = written(tmp_path / "m.model")
    before = path.read_bytes()
    for after in range(3):
        looks = iter([*[False] * after, *[True] * 20])
        with pytest.raises(GivenUp):
            file.write(path, {}, TENSORS, TEXTS, lambda looks=looks: next(looks))  # type: ignore[misc]
    with pytest.raises(ValueError, match="complex"):
        file.write(path, {}, {"odd": torch.zeros(2, dtype=torch.complex64)}, {}, lambda: False)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1
