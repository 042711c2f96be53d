"""What all measurements have in common at their edges: the `--json FILE` document, the human's stream, the machine's cores.

Every document is one JSON object with the program's version under "omnibus". A file that cannot be written is found out before any
work is done, not after minutes of it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from engine.version import __version__

STANDARD_OUTPUT = "-"


class NotWritable(Exception):
    """The document's file cannot be written; the message is a sentence for a person."""


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", help="write the figures as one JSON document (- is standard output)")


def check_writable(path: str | None) -> None:
    """Raise NotWritable when a document could not be written to `path`. Leaves what is there untouched, and nothing behind."""
    if path is None or path == STANDARD_OUTPUT:
        return
    there = os.path.lexists(path)
    if there and not os.path.isfile(path) and not os.path.isdir(path):
        return  # a pipe or a device: opening it would be seen at its other end
    try:
        with open(path, "ab"):
            pass
    except OSError as error:
        raise NotWritable(f"{path} cannot be written: {error.strerror or error}.") from error
    if not there:
        Path(path).unlink(missing_ok=True)


def write_document(path: str | None, figures: dict[str, Any]) -> None:
    """Write {"omnibus": version, **figures}. None writes nothing. Raises NotWritable (a full disk, say)."""
    if path is None:
        return
    text = json.dumps({"omnibus": __version__, **figures}, indent=1) + "\n"
    if path == STANDARD_OUTPUT:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise NotWritable(f"{path} could not be written: {error.strerror or error}.") from error


def human_stream(path: str | None) -> TextIO:
    """Where a person reads: standard error when the document goes to standard output."""
    return sys.stderr if path == STANDARD_OUTPUT else sys.stdout


def usable_cores() -> int:
    """Physical cores that this process may use: what torch's threads are worth starting on."""
    import psutil

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed))
