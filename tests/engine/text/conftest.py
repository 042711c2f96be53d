"""The starter model's tokenizer, and small ones of other kinds made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.catalog.starter import ensure_starter
from engine.text.codec import Codec


@pytest.fixture(scope="session")
def starter_folder() -> Path:
    return ensure_starter(lambda share, stage: None)


def make_starter_tokenizer(folder: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(str(folder))


@pytest.fixture(scope="session")
def reference(starter_folder: Path) -> Any:
    """A tokenizer of its own for the tests, as transformers loads it."""
    return make_starter_tokenizer(starter_folder)


@pytest.fixture(scope="session")
def codec(starter_folder: Path) -> Codec:
    return Codec(make_starter_tokenizer(starter_folder), [2])
