"""The list of a model folder's files with their sizes and SHA-256, written when Omnibus makes the folder.

Owns the file `manifest.json` in it. A folder is whole when its manifest is there (it is written last) and every file matches. Matching is
cheap: size and time of change; only a file whose time differs is read through. It must never be the reason that a read-only folder fails.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

NAME = "manifest.json"
FORMAT = 1
_CHUNK = 4 << 20
NOTHING: Mapping[str, str] = {}


def sha256(path: Path, on_bytes: Callable[[int], None] | None = None) -> str:
    """Hash of a file, as lower-case hexadecimal digits. `on_bytes` hears the size of each piece read, and may raise to end it."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
            if on_bytes:
                on_bytes(len(piece))
    return digest.hexdigest()


def write(folder: Path, about: Mapping[str, Any], known: Mapping[str, str] = NOTHING) -> None:
    """Write the manifest of all plain files now in `folder`. `about` says what the folder is ("name", "source", …).

    Args:
        known: hashes of files by name that were computed while they were written.
    """
    files = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name != NAME:
            stat = path.stat()
            files[path.name] = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": known.get(path.name) or sha256(path)}
    text = json.dumps({"format": FORMAT, **about, "files": files}, indent=2, ensure_ascii=False)
    (folder / NAME).write_text(text, encoding="utf-8")


def read(folder: Path) -> dict[str, Any] | None:
    """The manifest; None if there is none or it cannot be read."""
    try:
        content = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    good = isinstance(content, dict) and content.get("format") == FORMAT and isinstance(content.get("files"), dict)
    return content if good else None


def changed(folder: Path, thorough: bool = False) -> list[str] | None:
    """Names of files that are missing or not as the manifest says; empty if the folder is whole, None if it has no manifest.

    Args:
        thorough: hash every file, also those whose size and time of change are as they were.
    """
    content = read(folder)
    if content is None:
        return None
    return [name for name, entry in content["files"].items() if not _matches(folder / name, entry, thorough)]


def _matches(path: Path, entry: Any, thorough: bool) -> bool:
    try:
        stat = path.stat()
        if stat.st_size != entry["size"]:
            return False
        if stat.st_mtime_ns == entry["mtime_ns"] and not thorough:
            return True
        return sha256(path) == entry["sha256"]
    except (OSError, KeyError, TypeError):
        return False
