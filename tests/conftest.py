"""What every test shares: no screen, no network, few threads, and none of the person's own folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

# Before anything imports Qt, torch or huggingface_hub, all of which read these once.
os.environ["QT_QPA_PLATFORM"] = "offscreen"
os.environ["HF_HUB_OFFLINE"] = "1"
# Beside another worker of the same run two threads would wait for each other's cores at every barrier.
os.environ.setdefault("OMP_NUM_THREADS", "1" if "PYTEST_XDIST_WORKER" in os.environ else "2")

import pytest

THREADS = int(os.environ["OMP_NUM_THREADS"])

# platformdirs reads these at every call. The cache folder is left alone: it holds the starter model, which is only ever read.
USER_FOLDERS = ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")


@pytest.fixture(autouse=True)
def user_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A fresh folder that stands for the person's data, settings and logs during one test."""
    home = tmp_path_factory.mktemp("home")
    for name in USER_FOLDERS:
        monkeypatch.setenv(name, str(home / name.lower()))
    yield home


@pytest.fixture
def torch_threads() -> int:
    """As many torch threads as a test may use beside others."""
    import torch

    torch.set_num_threads(THREADS)
    return torch.get_num_threads()
