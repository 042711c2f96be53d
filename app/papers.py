"""What this program is made of, and under which terms: read from the papers inside a bundle, or in a checkout from what is installed.

Free of Qt. Owns nothing; a paper that cannot be read is left out, never an error.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from engine.version import __version__

# A checkout's, beside what is installed: (name, licence, home)
SHIPPED = (
    ("Inter", "OFL-1.1", "https://rsms.me/inter"),
    ("JetBrains Mono", "OFL-1.1", "https://www.jetbrains.com/lp/mono"),
    ("SmolLM2-135M-Instruct", "Apache-2.0", "https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct"),
)
PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "PySide6-Essentials",
    "qasync",
    "markdown-it-py",
    "Pygments",
    "apsw",
)


@dataclass(frozen=True, slots=True)
class Paper:
    """One part of the program. `texts`: files with its terms, as far as they came along."""

    name: str
    version: str
    licence: str
    home: str
    texts: tuple[Path, ...] = ()

    def text(self) -> str:
        """Its terms, whole."""
        found = []
        for path in self.texts:
            try:
                found.append(path.read_text(encoding="utf-8", errors="replace").strip())
            except OSError:
                continue
        return "\n\n\n".join(found) or f"{self.name} is under {self.licence}. {self.home}".strip()


def papers_folder() -> Path | None:
    """Where a bundle has its papers; None in a checkout."""
    inside = getattr(sys, "_MEIPASS", None)
    return Path(inside) / "papers" if inside else None


def parts(folder: Path | None = None) -> list[Paper]:
    """Omnibus first, then everything else by name."""
    folder = folder or papers_folder()
    found = _from_bundle(folder) if folder is not None else []
    if not found:
        found = _from_checkout()
    return found[:1] + sorted(found[1:], key=lambda paper: paper.name.casefold())


def _from_bundle(folder: Path) -> list[Paper]:
    try:
        listed = json.loads((folder / "licences.json").read_text(encoding="utf-8"))
        return [
            Paper(entry["name"], entry["version"], entry["licence"], entry["home"], tuple(folder / name for name in entry["texts"]))
            for entry in listed
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _from_checkout() -> list[Paper]:
    root = Path(__file__).resolve().parents[1]
    ours = Paper("Omnibus", __version__, "Apache-2.0", "", (root / "LICENSE", root / "NOTICE"))
    fonts = root / "resources" / "fonts"
    shipped = [Paper(name, "", licence, home, tuple(fonts.glob(f"{name.replace(' ', '')}-LICENSE*"))) for name, licence, home in SHIPPED]
    return [ours, *shipped, *(paper for name in PACKAGES if (paper := _installed(name)) is not None)]


def _installed(name: str) -> Paper | None:
    try:
        there = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    about: Any = there.metadata  # an email.message.Message, whose type the standard library does not tell
    licence = about.get("License-Expression") or about.get("License") or "see its home page"
    texts = [
        Path(str(there.locate_file(file))) for file in there.files or [] if file.name.upper().startswith(("LICENSE", "COPYING", "NOTICE"))
    ]
    return Paper(name, there.version, str(licence).splitlines()[0], about.get("Home-page") or "", tuple(texts[:3]))
