"""One tiny model of each family: what rides is exact alone and in company, what cannot ride is refused by name with the reason."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from app.cli import main
from engine.bench.census import FAMILIES, census_of

CANNOT_RIDE = {"minimax", "openai-gpt", "recurrent_gemma", "rwkv", "zamba"}


def test_the_census_is_broad() -> None:
    assert len(FAMILIES.keys() - CANNOT_RIDE) >= 75


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - CANNOT_RIDE))
def test_exact_alone_and_in_company(family: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a family's own deprecations are not ours
        assert census_of(family) == "exact"


@pytest.mark.parametrize("family", sorted(CANNOT_RIDE))
def test_refused_by_name_with_the_reason(family: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        words = census_of(family)
    assert words.startswith("refused: ") and ("cannot share a batch: it" in words or "in a shared batch than alone" in words)


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "census.json"
    assert main(["bench", "census", "llama", "rwkv", "--json", str(path)]) == 0
    table = json.loads(path.read_text())["families"]
    assert table["llama"] == "exact" and table["rwkv"].startswith("refused")
    assert "1 of 2 families exact" in capsys.readouterr().out
    assert main(["bench", "census", "nonsense"]) == 1
