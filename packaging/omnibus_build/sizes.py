"""How large the bundle is, and what in it: the table of packaging/README.md."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

# (what a person calls it, beginnings of places inside `internal/`); the first that fits counts
KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("torch", ("torch", "libtorch")),
    ("NVIDIA's libraries", ("nvidia",)),
    ("starter model", ("starter",)),
    ("Qt and PySide6", ("PySide6", "shiboken6", "libQt6", "libicu", "libxcb", "libxkb", "libwayland")),
    ("transformers", ("transformers",)),
    ("numpy", ("numpy", "numpy.libs")),
    ("tokenizers, hub, safetensors, grammars", ("tokenizers", "hf_xet", "safetensors", "llguidance", "huggingface_hub", "gguf")),
    ("Python", ("python3", "libpython", "base_library", "lib-dynload", "_", "libcrypto", "libssl", "libsqlite")),
    ("licences and SBOM", ("papers",)),
    ("our own fonts, icons, texts, sources", ("resources", "engine", "app")),
)


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def table(bundle: Path) -> list[tuple[str, int]]:
    """(what, bytes), largest first; the program with its compiled Python modules is one of them."""
    found: Counter[str] = Counter()
    inside = bundle / "internal"
    for path in bundle.rglob("*"):
        if not path.is_file() or path.is_symlink():
            continue
        if path.parent == bundle:
            found["the program, with all Python modules compiled"] += path.stat().st_size
            continue
        place = path.relative_to(inside).as_posix() if inside in path.parents else path.relative_to(bundle).as_posix()
        kind = next((name for name, starts in KINDS if place.startswith(starts)), "everything else")
        found[kind] += path.stat().st_size
    return found.most_common()


def words(size: int) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"


def lines(bundle: Path) -> list[str]:
    """The table as Markdown."""
    rows = [f"| {what} | {words(size)} |" for what, size in table(bundle)]
    return ["| what | size |", "|---|---|", *rows, f"| **all** | **{words(bytes_of(bundle))}** |"]
