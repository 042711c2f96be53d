"""The models that this machine has: the starter, those that Omnibus fetched, and those that lie elsewhere and were added.

Owns the file `models.json` in the person's data folder: places that were added, and where downloads go. It must never change or delete a
file that Omnibus did not fetch itself: to remove an added model is to forget its place. Reads files' names and sizes only, so that a list
of hundreds is there at once; whether a model is sound is asked elsewhere.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from engine.catalog import paths, starter
from engine.catalog.folders import told
from engine.types import ModelError, Sentence

FILE = "models.json"
FORMAT = 1
STARTER = "starter"


class Kind(StrEnum):
    STARTER = "starter"
    FOLDER = "folder"
    GGUF = "gguf"
    HUB_CACHE = "hub cache"  # in Hugging Face's own cache, shared with other programs


@dataclass(frozen=True, slots=True)
class Entry:
    """One model.

    Attributes:
        name: as people call it, and as `--model` takes it.
        source: what an engine is told to load.
        size: bytes on the disk.
        ready: its files are there.
        owned: Omnibus fetched it, and may delete it.
    """

    name: str
    source: str
    kind: Kind
    size: int
    ready: bool
    owned: bool

    def as_json(self) -> dict[str, object]:
        size = round(self.size / (1 << 20), 1)
        return {
            "name": self.name,
            "path": self.source if self.kind is not Kind.STARTER else str(starter.folder()),
            "kind": str(self.kind),
            "size_mib": size,
            "ready": self.ready,
            "owned": self.owned,
        }


def known_path(name: str) -> Path | None:
    """Where the model of that name lies; None for the starter, unknown names, and what is a path already."""
    if not name or name == STARTER or Path(name).expanduser().exists():
        return None
    for entry in Registry().entries():
        if entry.name == name and entry.kind is not Kind.STARTER:
            return Path(entry.source)
    return None


class Registry:
    """Reads and changes the list. Every call looks at the disk anew: there may be several programs."""

    # -------------------------------------------------------------------------------------------------------- reading

    @property
    def folder(self) -> Path:
        """Where downloads go."""
        chosen = self._content().get("folder")
        return Path(chosen) if isinstance(chosen, str) and chosen else paths.models_dir()

    def entries(self) -> list[Entry]:
        """All models, the starter first, then by name. A name that comes twice carries its folder."""
        found = [self._starter(), *self._fetched(), *self._added()]
        unique = list({os.path.realpath(entry.source) if entry.kind is not Kind.STARTER else STARTER: entry for entry in found}.values())
        names = [entry.name for entry in unique]
        told_apart = [
            Entry(_with_folder(entry), entry.source, entry.kind, entry.size, entry.ready, entry.owned)
            if names.count(entry.name) > 1 and entry.kind is not Kind.STARTER
            else entry
            for entry in unique
        ]
        return told_apart[:1] + sorted(told_apart[1:], key=lambda entry: entry.name.lower())

    def find(self, name: str) -> Entry:
        """The model of that name or at that path. Raises ModelError("model_not_found")."""
        place = os.path.realpath(Path(name).expanduser())
        for entry in self.entries():
            if name in (entry.name, entry.source) or (entry.kind is not Kind.STARTER and os.path.realpath(entry.source) == place):
                return entry
        raise ModelError(
            "model_not_found", Sentence("There is no model {0!r} in the list.", name), "`omnibus models list` shows those there are."
        )

    # ------------------------------------------------------------------------------------------------------- changing

    def add(self, path: Path) -> list[Entry]:
        """Remember a model folder, a GGUF file, or a folder of Hugging Face's cache; returns what that brought.

        Raises:
            ModelError: "model_not_found", "not_a_model", "no_permission", "disk_full".
        """
        path = Path(os.path.abspath(path.expanduser()))
        if path.suffix.lower() == ".safetensors" and path.is_file():
            path = path.parent
        brought = list(_entries_at(path))
        if not path.exists():
            raise ModelError("model_not_found", Sentence("There is nothing at {0}.", path), "Choose a model folder or a GGUF file.")
        if not brought:
            sentence = Sentence("{0} is neither a model folder nor a GGUF file.", path.name)
            raise ModelError("not_a_model", sentence, "Choose a folder with safetensors, or a GGUF file.")
        content = self._content()
        places = [place for place in content.get("added", []) if place != str(path)]
        self._write(content | {"added": [*places, str(path)]})
        return brought

    def remove(self, name: str) -> int:
        """Delete a model that Omnibus fetched, or forget one that was added. Returns the bytes that became free.

        Raises:
            ModelError: "model_not_found", "no_permission", "in_a_cache" for one model out of a cache that was added as a whole.
        """
        entry = self.find(name)
        place = starter.folder() if entry.kind is Kind.STARTER else Path(entry.source)
        if entry.owned:
            return _delete(place, self.folder)
        content = self._content()
        added = [item for item in content.get("added", []) if isinstance(item, str)]
        kept = [item for item in added if os.path.realpath(item) != os.path.realpath(place)]
        if len(kept) == len(added):
            sentence = Sentence("{0} lies in a folder of models that was added as a whole.", entry.name)
            raise ModelError("in_a_cache", sentence, "Remove that folder from the list, or delete the model with the program that owns it.")
        self._write(content | {"added": kept})
        return _forget_conversion(place)

    @property
    def servers(self) -> tuple[str, ...]:
        """Addresses of remote engines that were added; their keys are in the keyring."""
        return tuple(item for item in self._content().get("servers", []) if isinstance(item, str))

    def form_of(self, source: str) -> str:
        """The key of the chat form that was chosen for a model; "" for none."""
        forms = self._content().get("forms")
        key = forms.get(_form_key(source)) if isinstance(forms, dict) else None
        return key if isinstance(key, str) else ""

    def set_form(self, source: str, key: str) -> None:
        """Remember the chat form of a model; "" forgets it. Raises ModelError when it cannot be written."""
        content = self._content()
        forms = content.get("forms")
        kept = {name: value for name, value in forms.items() if name != _form_key(source)} if isinstance(forms, dict) else {}
        self._write(content | {"forms": kept | ({_form_key(source): key} if key else {})})

    def add_server(self, address: str) -> None:
        content = self._content()
        self._write(content | {"servers": [address, *(item for item in self.servers if item != address)]})

    def remove_server(self, address: str) -> None:
        content = self._content()
        self._write(content | {"servers": [item for item in self.servers if item != address]})

    def remove_place(self, path: Path) -> None:
        """Forget a place that was added, with all the models in it."""
        content = self._content()
        kept = [item for item in content.get("added", []) if os.path.realpath(str(item)) != os.path.realpath(path)]
        self._write(content | {"added": kept})

    def set_folder(self, folder: Path | None) -> None:
        """Where downloads go from now on; None is the program's own cache. What is there already stays and stays listed.

        Raises:
            ModelError: "no_permission", "disk_error" if nothing can be written there.
        """
        content = self._content()
        before = content.get("folder")
        added = [item for item in content.get("added", []) if isinstance(item, str)]
        if folder is not None:
            folder = Path(os.path.abspath(folder.expanduser()))
            with told("write to", folder):
                folder.mkdir(parents=True, exist_ok=True)
                probe = folder / f".omnibus-{os.getpid()}"
                probe.touch()
                probe.unlink()
        if isinstance(before, str) and before and before not in added:
            added.append(before)
        self._write(content | {"folder": str(folder) if folder else None, "added": added})

    # -------------------------------------------------------------------------------------------------------- private

    def _starter(self) -> Entry:
        ready = starter.ready()
        return Entry(STARTER, STARTER, Kind.STARTER, _size_of(starter.folder()) if ready else 0, ready, owned=True)

    def _fetched(self) -> Iterator[Entry]:
        for folder in dict.fromkeys((paths.models_dir(), self.folder)):
            for entry in _entries_in(folder):
                yield Entry(entry.name, entry.source, entry.kind, entry.size, entry.ready, owned=(folder / _top(entry, folder)).exists())

    def _added(self) -> Iterator[Entry]:
        for place in self._content().get("added", []):
            if isinstance(place, str):
                there = list(_entries_at(Path(place)))
                yield from there
                if not there:
                    kind = Kind.GGUF if place.lower().endswith(".gguf") else Kind.FOLDER
                    yield Entry(_name_of(Path(place)), place, kind, 0, ready=False, owned=False)

    def _content(self) -> dict[str, Any]:
        try:
            content = json.loads((paths.data_dir() / FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        good = isinstance(content, dict) and all(isinstance(content.get(name, []), list) for name in ("added", "servers"))
        return content if good else {}

    def _write(self, content: dict[str, Any]) -> None:
        folder = paths.data_dir()
        draft = folder / f".{FILE}.{os.getpid()}"
        with told("write to", folder):
            folder.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps({"format": FORMAT} | content, indent=2, ensure_ascii=False), encoding="utf-8")
            draft.replace(folder / FILE)


# ------------------------------------------------------------------------------------------------------------ the disk


def hub_cache() -> Path:
    """Where huggingface_hub keeps its files on this machine, by its own rules."""
    variable = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if variable:
        return Path(variable).expanduser()
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(home).expanduser() / "hub"


def _entries_at(path: Path) -> Iterator[Entry]:
    """The models at one place: the file or folder itself, or those in it where it is a folder of models."""
    try:
        if path.is_file():
            if path.suffix.lower() == ".gguf" or _starts_as_gguf(path):
                yield Entry(_name_of(path), str(path), Kind.GGUF, path.stat().st_size, ready=True, owned=False)
        elif (path / "config.json").is_file():
            yield Entry(_name_of(path), str(path), Kind.FOLDER, _size_of(path), ready=True, owned=False)
        elif path.is_dir():
            yield from _entries_in(path)
    except OSError:  # a place that may not be read has no models
        return


def _entries_in(folder: Path) -> Iterator[Entry]:
    """The models right in a folder: its GGUF files, and its sub-folders that are models, whoever laid them out."""
    try:
        children = sorted(folder.iterdir())
    except OSError:
        return
    for child in children:
        if child.name.startswith(".") or child == starter.folder():
            continue
        if child.name.startswith("models--"):
            yield from _hub_entries(child)
        elif child.is_file():
            if child.suffix.lower() == ".gguf":
                yield Entry(_name_of(child), str(child), Kind.GGUF, child.stat().st_size, ready=True, owned=False)
        elif (child / "config.json").is_file():
            yield Entry(_name_of(child), str(child), Kind.FOLDER, _size_of(child), ready=True, owned=False)
        else:
            for file in sorted(child.glob("*.gguf")):
                yield Entry(_name_of(file), str(file), Kind.GGUF, file.stat().st_size, ready=True, owned=False)


def _hub_entries(repository: Path) -> Iterator[Entry]:
    """The models of one repository in Hugging Face's cache: the snapshot that `main` names, else the newest."""
    snapshots = repository / "snapshots"
    try:
        main = (repository / "refs" / "main").read_text(encoding="utf-8").strip()
        newest = sorted((path for path in snapshots.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    except OSError:
        main, newest = "", sorted(snapshots.glob("*"))
    chosen = snapshots / main if main and (snapshots / main).is_dir() else (newest[-1] if newest else None)
    if chosen is None:
        return
    name = repository.name.removeprefix("models--").replace("--", "/")
    if (chosen / "config.json").is_file() and any(chosen.glob("*.safetensors")):
        yield Entry(name, str(chosen), Kind.HUB_CACHE, _size_of(chosen), ready=True, owned=False)
    for file in sorted(chosen.glob("*.gguf")):
        if file.is_file():
            yield Entry(f"{name}/{file.stem}", str(file), Kind.HUB_CACHE, file.stat().st_size, ready=True, owned=False)


def _form_key(source: str) -> str:
    """A model's place, by whatever path it was named."""
    return source if source == STARTER else os.path.realpath(Path(source).expanduser())


def _name_of(path: Path) -> str:
    stem = path.stem if path.suffix.lower() == ".gguf" else path.name
    return stem.replace("--", "/", 1)


def _with_folder(entry: Entry) -> str:
    return f"{entry.name} ({Path(entry.source).parent.name})"


def _top(entry: Entry, folder: Path) -> str:
    """The first step from `folder` to the entry."""
    return Path(os.path.relpath(entry.source, folder)).parts[0]


def _starts_as_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def _size_of(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(root, name)).st_size
            except OSError:
                continue
    return total


def _delete(place: Path, folder: Path) -> int:
    """Delete a fetched model: its folder, or its file and the folder made for it when that is left empty."""
    freed = _size_of(place) if place.is_dir() else place.stat().st_size
    freed += _forget_conversion(place)
    with told("delete", place):
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()
            parent = place.parent
            if parent not in (folder, paths.models_dir()) and not any(
                child for child in parent.iterdir() if not child.name.startswith(".")
            ):
                shutil.rmtree(parent)
    return freed


def _forget_conversion(place: Path) -> int:
    """Delete what was unpacked from a GGUF file; returns its size."""
    if not place.is_file():
        return 0
    from engine.model.gguf import converted_folder

    folder = converted_folder(place)
    size = _size_of(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return size
