"""The starter model as it travels: packed and unpacked to the bit, and every kind of damage told."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from engine.catalog import boxed, manifest, paths, starter
from engine.types import ModelError

HEADS, KV_HEADS, WIDTH, LAYERS, INNER, WORDS = 4, 2, 64, 2, 96, 32


def quiet(share: float, stage: str) -> None:
    pass


def make_pair(folder: Path) -> tuple[Path, Path]:
    """A GGUF file with every block format, and the model that belongs to it, written with gguf's own arithmetic."""
    import gguf
    from gguf import GGMLQuantizationType as Kind
    from gguf import quants

    dice = np.random.default_rng(1)
    shapes = {"model.embed_tokens.weight": (WORDS, WIDTH), "model.norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        shapes |= {f"{at}{name}.weight": (WIDTH,) for name in ("input_layernorm", "post_attention_layernorm")}
        shapes |= {f"{at}self_attn.{name}_proj.weight": (WIDTH, WIDTH) for name in "qo"}
        shapes |= {f"{at}self_attn.{name}_proj.weight": (WIDTH // HEADS * KV_HEADS, WIDTH) for name in "kv"}
        shapes |= {f"{at}mlp.{name}_proj.weight": (INNER, WIDTH) for name in ("gate", "up")}
        shapes |= {f"{at}mlp.down_proj.weight": (WIDTH, INNER)}
    source = folder / "tiny.gguf"
    writer = gguf.GGUFWriter(source, "llama")
    header: dict = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, shape in sorted(shapes.items()):
        kind = Kind.F32 if len(shape) == 1 else Kind.Q8_0 if "embed" in name else Kind.Q4_1
        raw = quants.quantize(dice.standard_normal(shape, dtype=np.float32), kind)
        writer.add_tensor(boxed._gguf_name(name), raw, raw_dtype=kind)
        plain = quants.dequantize(raw, kind)
        heads = HEADS if "q_proj" in name else KV_HEADS if "k_proj" in name else 0
        if heads:
            plain = plain.reshape(heads, shape[0] // heads // 2, 2, shape[1]).swapaxes(1, 2).reshape(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(body), len(body) + plain.nbytes]}
        body += np.ascontiguousarray(plain).tobytes()
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    prepared = folder / "tiny"
    prepared.mkdir()
    written = json.dumps(header).encode()
    (prepared / boxed.WEIGHTS).write_bytes(struct.pack("<Q", len(written)) + written + body)
    (prepared / "config.json").write_text(json.dumps({"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS}))
    (prepared / "tokenizer.json").write_text("{}")
    manifest.write(prepared, {"name": "tiny"})
    return prepared, source


@pytest.fixture
def box(tmp_path: Path) -> Path:
    prepared, source = make_pair(tmp_path)
    box = tmp_path / "bundle" / boxed.PLACE
    boxed.pack(prepared, source, box)
    return box


def test_what_comes_out_is_the_prepared_model(box: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    shares: list[float] = []
    boxed.unpack(box, target, lambda share, stage: shares.append(share))
    names = {path.name for path in (tmp_path / "tiny").iterdir()}
    assert {path.name for path in target.iterdir()} == names
    for name in names - {manifest.NAME}:
        assert (target / name).read_bytes() == (tmp_path / "tiny" / name).read_bytes(), name
    assert manifest.changed(target, thorough=True) == []
    assert shares == sorted(shares) and shares
    assert sum(path.stat().st_size for path in box.iterdir()) < 0.6 * (target / boxed.WEIGHTS).stat().st_size + 20_000


def test_a_wrong_order_of_rows_is_found_when_packing(tmp_path: Path) -> None:
    prepared, source = make_pair(tmp_path)
    (prepared / "config.json").write_text(json.dumps({"num_attention_heads": HEADS // 2, "num_key_value_heads": KV_HEADS}))
    with pytest.raises(ValueError, match="SHA-256"):
        boxed.pack(prepared, source, tmp_path / "box")
    assert not (tmp_path / "box.trial").exists()


@pytest.mark.parametrize("damage", ["flipped", "short", "gone", "no recipe", "half a recipe"])
def test_damage_is_told(box: Path, tmp_path: Path, damage: str) -> None:
    weights = box / "tiny.gguf"
    content = bytearray(weights.read_bytes())
    match damage:
        case "flipped":
            content[-40] ^= 255
            weights.write_bytes(content)
        case "short":
            weights.write_bytes(content[: len(content) // 2])
        case "gone":
            weights.unlink()
        case "no recipe":
            (box / boxed.RECIPE).write_text("[]")
        case "half a recipe":
            (box / boxed.RECIPE).write_text('{"files": []}')
    target = tmp_path / "out"
    target.mkdir()
    with pytest.raises(ModelError) as caught:
        boxed.unpack(box, target, quiet)
    assert caught.value.code in ("damaged_bundle", "disk_error") and caught.value.hint
    assert not (target / manifest.NAME).exists()


def test_the_first_start_of_a_bundle_needs_no_pip(box: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "höme"))
    monkeypatch.setattr(starter.sys, "_MEIPASS", str(box.parent), raising=False)
    monkeypatch.setattr(starter, "_fetch", lambda *_: pytest.fail("went for the network"))
    assert boxed.bundled() == box
    (box / boxed.RECORDINGS).mkdir()
    (box / boxed.RECORDINGS / "abc.pt").write_bytes(b"a step")
    place = starter.ensure_starter(quiet)
    assert starter.ready() and (place / boxed.WEIGHTS).stat().st_size == (tmp_path / "tiny" / boxed.WEIGHTS).stat().st_size
    kept = paths.recordings_dir() / "abc.pt"
    assert [path.name for path in kept.parent.iterdir()] == ["abc.pt"] and kept.read_bytes() == b"a step"
    kept.write_bytes(b"a newer one")
    assert boxed.give_recordings(box, kept.parent) == 0 and kept.read_bytes() == b"a newer one"
    assert boxed.give_recordings(box, tmp_path / "tiny" / boxed.WEIGHTS / "no folder") == 0


def test_a_checkout_has_no_box() -> None:
    assert boxed.bundled() is None
