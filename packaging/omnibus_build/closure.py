"""Which distributions go into a bundle: what `pyproject.toml` asks for, and what those ask for, as installed in this environment.

Owns the walk over installed metadata. The lock, the licences, the SBOM and the spec all follow this one list.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# Asked for by our dependencies, never imported by what we run: they come along in an environment and stay out of a bundle.
UNWANTED = frozenset({"setuptools", "typer", "triton"})


@dataclass(frozen=True, slots=True)
class Part:
    """One distribution. `licence`: an SPDX expression or the words its metadata has; `requires`: canonical names."""

    name: str
    version: str
    licence: str
    home: str
    requires: tuple[str, ...]

    @property
    def key(self) -> str:
        return canonicalize_name(self.name)

    @property
    def purl(self) -> str:
        """The package URL; a local version ("+cpu") is part of it."""
        return f"pkg:pypi/{self.key}@{self.version.replace('+', '%2B')}"


def wanted(pyproject: Path) -> list[str]:
    """The run-time dependencies as written."""
    return list(tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["dependencies"])


def closure(requirements: list[str], unwanted: frozenset[str] = UNWANTED) -> list[Part]:
    """Every installed distribution that the requirements lead to, by name.

    Raises:
        LookupError: one that is asked for is not installed, or not in the asked for version.
    """
    found: dict[str, Part] = {}
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        asked = waiting.pop()
        key = canonicalize_name(asked.name)
        if key in unwanted or not _applies(asked):
            continue
        try:
            there = metadata.distribution(asked.name)
        except metadata.PackageNotFoundError:
            raise LookupError(f"{asked.name} is not installed in this environment") from None
        if not asked.specifier.contains(there.version, prereleases=True):
            raise LookupError(f"{asked.name} {there.version} is installed, {asked.specifier} is asked for")
        if key in found:
            continue
        more = [Requirement(text) for text in there.requires or []]
        more = [item for item in more if _applies(item, asked.extras) and canonicalize_name(item.name) not in unwanted]
        found[key] = _part(there, tuple(sorted({canonicalize_name(item.name) for item in more})))
        waiting += more
    return [found[key] for key in sorted(found)]


def _applies(asked: Requirement, extras: set[str] | frozenset[str] = frozenset()) -> bool:
    if asked.marker is None:
        return True
    return any(asked.marker.evaluate({"extra": extra}) for extra in (*extras, ""))


def _part(there: metadata.Distribution, requires: tuple[str, ...]) -> Part:
    about = there.metadata
    return Part(about["Name"], there.version, licence_of(about), _home(about), requires)


def licence_of(about: metadata.PackageMetadata) -> str:
    """The licence in its metadata: an SPDX expression, else its classifiers, else the first line of the free text."""
    expression = about.get("License-Expression")
    if expression:
        return str(expression)
    classifiers = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or [] if line.startswith("License :: ")]
    named = [name for name in classifiers if name != "OSI Approved"]
    if named:
        return " AND ".join(named)
    text = str(about.get("License") or "").strip()
    return text.splitlines()[0][:80] if text else "unknown"


def _home(about: metadata.PackageMetadata) -> str:
    urls = dict(line.split(", ", 1) for line in about.get_all("Project-URL") or [] if ", " in line)
    for name in ("Homepage", "homepage", "Home", "Repository", "Source", "Source Code", "source", "repository"):
        if name in urls:
            return urls[name]
    return str(about.get("Home-page") or "")


def lock_lines(parts: list[Part]) -> list[str]:
    """The lock: one exact version a line."""
    return [f"{part.name}=={part.version}" for part in parts]


def differences(parts: list[Part], lock: str) -> list[str]:
    """What the lock says otherwise, a sentence each; nothing if the environment is what is locked."""
    locked = dict(re.findall(r"(?m)^([A-Za-z0-9._-]+)==(\S+)", lock))
    there = {part.name: part.version for part in parts}
    said = [
        f"{name} {there[name]} is installed, {locked[name]} is locked" for name in there if name in locked and there[name] != locked[name]
    ]
    said += [f"{name} is not in the lock" for name in there if name not in locked]
    said += [f"{name} is locked but not needed" for name in locked if name not in there]
    return said
