"""A measurement's figures on the way out: lines for a person, one JSON object for a program."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", help="write the figures as one JSON object (- is standard output)")


def write_json(path: str | None, figures: dict[str, Any]) -> int:
    """Write the figures where they were asked for. Returns the exit status: 1, with a sentence, when they cannot be written."""
    if path is None:
        return 0
    text = json.dumps(figures, indent=1, ensure_ascii=False) + "\n"
    if path == "-":
        sys.stdout.write(text)
        return 0
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"omnibus: {path} could not be written: {error.strerror or error}.", file=sys.stderr)
        return 1
    return 0
