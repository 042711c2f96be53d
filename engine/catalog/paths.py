"""Where Omnibus keeps what it made or fetched itself.

Owns the names of the folders, and nothing in them. The environment variable OMNIBUS_HOME puts everything under one folder, for a portable
installation and for tests; otherwise the operating system's own places are used. Read at each call, so that a test can change it.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

HOME_VARIABLE = "OMNIBUS_HOME"
_NAME = "omnibus"


def data_dir() -> Path:
    """What a person would miss: chats and settings. Not created here."""
    home = _home()
    return home / "data" if home else platformdirs.user_data_path(_NAME, appauthor=False)


def cache_dir() -> Path:
    """What can be made or fetched again: models. Not created here."""
    home = _home()
    return home / "cache" if home else platformdirs.user_cache_path(_NAME, appauthor=False)


def models_dir() -> Path:
    """Folders that are ready to load."""
    return cache_dir() / "models"


def converted_dir() -> Path:
    """Models unpacked from GGUF files that lie elsewhere."""
    return cache_dir() / "converted"


def downloads_dir() -> Path:
    """Files as they came, and what is still coming."""
    return cache_dir() / "downloads"


def recordings_dir() -> Path:
    """Recorded steps of models that were loaded before; see engine/model/shelf.py."""
    return cache_dir() / "recordings"


def _home() -> Path | None:
    value = os.environ.get(HOME_VARIABLE, "").strip()
    return Path(value).expanduser().absolute() if value else None
