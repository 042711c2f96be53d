"""transformers' table of its own modules, kept in a file, since working it out is a third of its import.

At each start transformers 5.24 reads the source of every model family, three thousand files, to learn which names are in which file. The
outcome depends on the installed files alone. It is kept in the cache folder, named by version, place and time of change; a bundle brings
its own. Owns that file and the one hook that hands it over; what is read from it is checked to be such a table and nothing else. A table
that is missing, damaged or of other files is worked out anew, as if this module were not there.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from engine.catalog import boxed, paths

log = logging.getLogger(__name__)

READER = "transformers.utils.import_utils"
FUNCTION = "create_import_structure_from_path"
FOLDER = "libraries"  # in the cache folder, and inside a box
Table = dict[Any, Any]


def keep_table() -> None:
    """Call before transformers is imported; afterwards it does nothing."""
    if READER not in sys.modules and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds the one module, by the help of the others, and puts itself away."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != READER:
            return None
        sys.meta_path.remove(self)
        found = (finder.find_spec(name, path, target) for finder in list(sys.meta_path))
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._real.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        if real := getattr(module, FUNCTION, None):
            setattr(module, FUNCTION, _kept(real, Path(str(module.__file__)).parents[1]))


def _kept(real: Any, package: Path) -> Any:
    """transformers' function, which looks for the families' table in a file first."""

    @functools.wraps(real)
    def create(module_path: str) -> Table:
        place = Path(module_path)
        if (place.parent if place.stem == "__init__" else place) != package / "models":
            return dict(real(module_path))
        own = _own_file(package)
        for file in (*_brought(package), own):
            if (table := read(file)) is not None:
                return table
        table = dict(real(module_path))
        write(own, table)
        return table

    for name in ("cache_clear", "cache_info"):
        if hasattr(real, name):
            setattr(create, name, getattr(real, name))
    return create


def _version(package: Path) -> str:
    """Out of the metadata beside the package: it is only just being imported itself."""
    from importlib import metadata

    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package.name)
    return "unknown"


def _own_file(package: Path) -> Path:
    models = package / "models"
    key = hashlib.sha256(f"{models}\n{models.stat().st_mtime_ns}".encode()).hexdigest()[:16]
    return paths.cache_dir() / FOLDER / f"{package.name}-{_version(package)}-{key}.json"


def _brought(package: Path) -> list[Path]:
    """What came with a bundle, whose files never change."""
    box = boxed.bundled()
    return sorted((box / FOLDER).glob(f"{package.name}-{_version(package)}-*.json")) if box is not None else []


# ------------------------------------------------------------------------------------------------------------ the file


def write(file: Path, table: Table) -> None:
    """In one stroke; without a folder that can be written it is only worked out again next time."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(_told(table)), encoding="utf-8")
        draft.replace(file)
        for other in file.parent.glob("transformers-*.json"):
            if other != file:
                other.unlink(missing_ok=True)
    except (OSError, TypeError) as error:
        log.info("the table of transformers' modules could not be kept: %s", type(error).__name__)


def read(file: Path) -> Table | None:
    """None for what is not there or is no such table."""
    try:
        return _heard(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        log.info("the table of transformers' modules cannot be used: %s", type(error).__name__)
        return None


def _told(table: Table) -> dict[str, Any]:
    """{folders: {name: table}, files: [[needs, {file: names}]]}"""
    folders = {name: _told(inner) for name, inner in table.items() if isinstance(name, str)}
    files = [
        [sorted(needs), {name: sorted(names) for name, names in inner.items()}]
        for needs, inner in table.items()
        if not isinstance(needs, str)
    ]
    return {"folders": folders, "files": files}


def _heard(content: Any) -> Table:
    """Raises ValueError, TypeError or AttributeError."""
    if not isinstance(content, dict) or content.keys() != {"folders", "files"}:
        raise ValueError("no table")
    table: Table = {_word(name): _heard(inner) for name, inner in content["folders"].items()}
    for needs, inner in content["files"]:
        table[frozenset(map(_text, needs))] = {_word(name): set(map(_text, names)) for name, names in inner.items()}
    return table


def _word(value: Any) -> str:
    """The name of a file or folder, which becomes part of a module's name."""
    if not isinstance(value, str) or not value.isidentifier():
        raise ValueError(f"{value!r} is no name of a module")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
