"""Files of chats lie in memory."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(in_memory: Path) -> Path:
    return in_memory
