"""Files in: a JSON file, an export's zip, or a folder becomes entries, each with the importer that knows it.

Everything read is untrusted: sizes are bounded, nothing is unpacked to disk, and what is no JSON is one sentence, not a traceback.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from app.chats.exchange import chatgpt, jan, lmstudio, openwebui, own
from app.chats.exchange.records import BadEntry
from engine import Sentence

MOST_BYTES = 2 << 30  # of one file, unpacked
KINDS = "ChatGPT, Open WebUI, LM Studio, Jan, or Omnibus's own JSON"


class UnreadableFile(Exception):
    """A file out of which nothing can be read. `args[0]` is a sentence for a person."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One conversation as it stood in a file. `where` names it for a person."""

    where: str
    kind: str
    value: Any


def read_entries(path: Path) -> Iterator[Entry]:
    """Every conversation of a file, a zip or a folder. Raises UnreadableFile where there is none that could be meant."""
    found = False
    for name, value in _documents(path):
        for entry in _entries(name, value):
            found = True
            yield entry
    if not found:
        raise UnreadableFile(Sentence("{0} holds no chats that Omnibus knows: it reads exports of {1}.", path.name, KINDS))


# ------------------------------------------------------------------------------------------------------------------- documents


def _documents(path: Path) -> Iterator[tuple[str, Any]]:
    """(name, value) of every JSON document; Jan's two files of a thread come as one."""
    if path.is_dir():
        names = {
            str(PurePosixPath(file.relative_to(path))): file for file in sorted(path.rglob("*")) if _wanted(file.name) and file.is_file()
        }
        yield from _parsed(names, lambda file: _read_file(file), path.name)
        return
    if not path.exists():
        raise UnreadableFile(Sentence("There is no file {0}.", path))
    if zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                infos = {info.filename: info for info in archive.infolist() if _wanted(info.filename) and not info.is_dir()}
                yield from _parsed(infos, lambda info: _read_member(archive, info), path.name)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise UnreadableFile(Sentence("{0} is a damaged or encrypted zip: {1}.", path.name, error)) from error
        return
    if path.name == "messages.jsonl":
        yield from _parsed(
            {name: path.with_name(name) for name in ("thread.json", "messages.jsonl")}, lambda file: _read_file(file), path.name
        )
        return
    yield path.name, _json(_read_file(path), path.name)


def _wanted(name: str) -> bool:
    return name.endswith((".json", "messages.jsonl")) and not PurePosixPath(name).name.startswith("._")


def _parsed(files: dict[str, Any], read: Callable[[Any], bytes], whole: str) -> Iterator[tuple[str, Any]]:
    """The documents among many files. What is broken or foreign among them is passed over, unless nothing else is there."""
    problems: list[str] = []
    for name, file in files.items():
        place = PurePosixPath(name)
        try:
            if place.name == "thread.json":
                continue  # comes with its messages
            if place.name == "messages.jsonl":
                beside = files.get(str(place.with_name("thread.json")))
                try:
                    thread = _json(read(beside), name) if beside is not None else {}
                except (UnreadableFile, OSError):
                    thread = {}  # the messages are what matters
                yield name, {"thread": thread, "messages": _lines(read(file))}
            else:
                yield name, _json(read(file), name)
        except (UnreadableFile, OSError) as error:
            problems.append(error.args[0])
    if problems and len(problems) == len(files):
        raise UnreadableFile(problems[0] if len(problems) == 1 else Sentence("Nothing in {0} can be read: {1}", whole, problems[0]))


def _read_file(path: Path) -> bytes:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UnreadableFile(Sentence("{0} is larger than {1} GiB.", path.name, MOST_BYTES >> 30))
        return path.read_bytes()
    except OSError as error:
        raise UnreadableFile(Sentence("{0} cannot be read: {1}.", path.name, error.strerror or error)) from error


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    with archive.open(info) as member:
        data = member.read(MOST_BYTES + 1)  # the size in the header may lie
    if len(data) > MOST_BYTES:
        raise UnreadableFile(Sentence("{0} is larger than {1} GiB.", info.filename, MOST_BYTES >> 30))
    return data


def _json(data: bytes, name: str) -> Any:
    """A document in UTF-8, or in UTF-16 or 32, as an editor or a shell of Windows may have saved it."""
    if not data.strip():
        raise UnreadableFile(Sentence("{0} is empty.", name))
    if data.startswith(b"PK\x03\x04"):
        raise UnreadableFile(Sentence("{0} is a damaged zip: fetch it again.", name))
    try:
        return json.loads(data.decode(json.detect_encoding(data)))
    except UnicodeDecodeError as error:
        raise UnreadableFile(Sentence("{0} is not text in UTF-8, as JSON must be: save it as UTF-8 and try again.", name)) from error
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(Sentence("{0} is not valid JSON: {1}.", name, error)) from error


def _lines(data: bytes) -> list[Any]:
    """Messages one a line; a line that is broken (a crash of its writer) is left out."""
    lines = []
    for line in data.decode("utf-8-sig", "replace").splitlines():
        if line.strip():
            try:
                lines.append(json.loads(line))
            except (ValueError, RecursionError):
                continue
    return lines


# --------------------------------------------------------------------------------------------------------------------- entries

_IMPORTERS = {module.SOURCE: module for module in (chatgpt, openwebui, lmstudio, jan)}


def _entries(name: str, document: Any) -> Iterable[Entry]:
    """The conversations of one document, by what they look like. Nothing for a document that is something else."""
    if own.recognises(document):
        try:
            return [Entry(Sentence("chat {0}", number), "omnibus", value) for number, value in enumerate(own.entries(document), 1)]
        except BadEntry as error:
            raise UnreadableFile(Sentence("{0} cannot be taken over: {1}.", name, error)) from error
    many = document if isinstance(document, list) else document.get("conversations") if isinstance(document, dict) else None
    values = many if isinstance(many, list) else [document]
    kinds = [_kind(value) for value in values]
    common = next((kind for kind in kinds if kind), None)
    if common is None:
        return ()
    # In a list of conversations whatever is not one is a bad entry of it, and is told.
    return [
        Entry(Sentence("entry {0}", number) if many else name, kind or common, value)
        for number, (value, kind) in enumerate(zip(values, kinds, strict=True), 1)
    ]


def _kind(value: Any) -> str | None:
    return next((kind for kind, module in _IMPORTERS.items() if module.recognises(value)), None)
