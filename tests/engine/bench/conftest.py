from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine import Engine
from tests.engine.bench.made_up import make_engine


@pytest.fixture
def engine() -> Iterator[Engine]:
    with make_engine() as made:
        made.wait_ready(60)
        yield made
