"""The papers that travel inside a bundle: the licences of everything in it, a bill of materials, and how it was built.

Writes into one folder: `licences/NAME/…` with the texts as each distribution ships them, `licences.json` (what the about box lists),
`sbom.cdx.json` (CycloneDX 1.6), `build.json`. Nothing in them tells the machine or the hour, so that the same parts make the same papers.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import uuid
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from omnibus_build.closure import Part

TEXT = re.compile(r"(?i)^(licen[cs]e|copying|notice|copyright|eula|third.?part|authors)[^/]*$")


@dataclass(frozen=True, slots=True)
class Extra:
    """Something in the bundle that is no Python distribution. `texts`: files with its terms."""

    name: str
    version: str
    licence: str
    home: str
    texts: tuple[Path, ...] = ()


def extras(root: Path, python_version: str, starter_sha256: str, starter_terms: tuple[Path, ...] = ()) -> list[Extra]:
    """What is bundled beside Python distributions."""
    fonts = root / "resources" / "fonts"
    return [
        Extra("Python", python_version, "PSF-2.0", "https://www.python.org", python_licence()),
        Extra("Qt", metadata.version("PySide6-Essentials"), "LGPL-3.0-only", "https://www.qt.io"),
        Extra("Inter", "4", "OFL-1.1", "https://rsms.me/inter", tuple(sorted(fonts.glob("Inter-LICENSE*")))),
        Extra("JetBrains Mono", "2", "OFL-1.1", "https://www.jetbrains.com/lp/mono", tuple(sorted(fonts.glob("JetBrainsMono-LICENSE*")))),
        Extra(
            "SmolLM2-135M-Instruct",
            starter_sha256[:12],
            "Apache-2.0",
            "https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
            starter_terms or (root / "LICENSE",),
        ),
    ]


def python_licence() -> tuple[Path, ...]:
    """Python's own licence file, where this Python has one."""
    import sysconfig

    stdlib = Path(sysconfig.get_path("stdlib"))
    return tuple(path for path in (stdlib / "LICENSE.txt", stdlib.parent.parent / "LICENSE.txt") if path.is_file())[:1]


def licence_texts(name: str) -> list[Path]:
    """The files with terms that a distribution ships, vendored parts' included."""
    there = metadata.distribution(name)
    paths = [
        Path(str(there.locate_file(file)))
        for file in there.files or []
        if TEXT.match(file.name) and not file.name.endswith((".py", ".pyc"))
    ]
    return sorted(path for path in paths if path.is_file())


# Words in a licence's name, and the standard texts that are meant. The LGPL adds to the GPL, so both belong together.
STANDARD = (("LGPL-3", ("LGPL-3.0.txt", "GPL-3.0.txt")), ("Apache", ("Apache-2.0.txt",)))


def standard_texts(root: Path, licence: str) -> list[Path]:
    """For a part that names its licence but ships no text of it."""
    for words, names in STANDARD:
        if words in licence:
            return [root / "packaging" / "licences" / name for name in names]
    return []


def write_papers(folder: Path, root: Path, parts: list[Part], others: list[Extra], build: dict[str, Any]) -> list[str]:
    """Write everything. Returns the names of parts without a licence text of their own (their licence is named all the same)."""
    shutil.rmtree(folder, ignore_errors=True)
    bare = []
    listed: list[dict[str, Any]] = []
    for name, licence, version, home, texts in [
        ("Omnibus", "Apache-2.0", build["omnibus"], "", [root / "LICENSE", root / "NOTICE"]),
        *((part.name, part.licence, part.version, part.home, licence_texts(part.name)) for part in parts),
        *((extra.name, extra.licence, extra.version, extra.home, list(extra.texts)) for extra in others),
    ]:
        kept = _copy(texts or standard_texts(root, licence), folder / "licences" / name)
        if not kept:
            bare.append(name)
            kept = ["terms.txt"]
            place = folder / "licences" / name / kept[0]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(statement(name, version, licence, home), encoding="utf-8")
        listed.append(
            {"name": name, "version": version, "licence": licence, "home": home, "texts": [f"licences/{name}/{file}" for file in kept]}
        )
    _write_json(folder / "licences.json", listed)
    _write_json(folder / "sbom.cdx.json", sbom(parts, others, build))
    _write_json(folder / "build.json", build)
    return bare


def statement(name: str, version: str, licence: str, home: str) -> str:
    """What a part says of its terms, where it ships no text: its licence's name, its authors, its home."""
    try:
        about = metadata.metadata(name)
        authors = about["Author"] or about["Author-email"] or about["Maintainer"] or "its authors"
    except (metadata.PackageNotFoundError, KeyError):
        authors = "its authors"
    return f"{name} {version}\nCopyright {authors}\nLicence: {licence}\n{home}\n\nIt ships no text of its licence; its metadata names it.\n"


def _copy(texts: list[Path], folder: Path) -> list[str]:
    """Copy the texts, each content once, under names that do not clash."""
    kept: list[str] = []
    seen: set[bytes] = set()
    for path in texts:
        content = path.read_bytes()
        digest = hashlib.sha256(content).digest()
        if digest in seen:
            continue
        seen.add(digest)
        name = path.name if path.name not in kept else f"{path.parent.name}-{path.name}"
        if name in kept:
            name = f"{digest.hex()[:8]}-{path.name}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        kept.append(name)
    return kept


def sbom(parts: list[Part], others: list[Extra], build: dict[str, Any]) -> dict[str, Any]:
    """A CycloneDX 1.6 bill of materials. The serial number follows from the content."""
    root = f"omnibus@{build['omnibus']}"
    components = [
        {
            "type": "library",
            "bom-ref": part.purl,
            "name": part.name,
            "version": part.version,
            "purl": part.purl,
            "licenses": [_licence(part.licence)],
            **({"externalReferences": [{"type": "website", "url": part.home}]} if part.home.startswith("http") else {}),
        }
        for part in parts
    ]
    kinds = {"SmolLM2-135M-Instruct": "machine-learning-model", "Inter": "file", "JetBrains Mono": "file"}
    components += [
        {
            "type": kinds.get(extra.name, "library"),
            "bom-ref": f"extra:{extra.name}",
            "name": extra.name,
            "version": extra.version,
            "licenses": [_licence(extra.licence)],
            "externalReferences": [{"type": "website", "url": extra.home}],
        }
        for extra in others
    ]
    by_key = {part.key: part.purl for part in parts}
    dependencies: list[dict[str, Any]] = [{"ref": root, "dependsOn": sorted(component["bom-ref"] for component in components)}]
    dependencies += [{"ref": part.purl, "dependsOn": sorted(by_key[name] for name in part.requires if name in by_key)} for part in parts]
    content = json.dumps([components, dependencies], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "bom-ref": root, "name": "omnibus", "version": build["omnibus"]},
            "properties": [{"name": f"omnibus:{name}", "value": str(value)} for name, value in sorted(build.items())],
        },
        "components": components,
        "dependencies": dependencies,
    }


def _licence(words: str) -> dict[str, Any]:
    """SPDX expressions as such, other words as a name."""
    spdx = re.fullmatch(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*", words)
    return {"expression": words} if spdx and words != "unknown" else {"license": {"name": words}}


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
