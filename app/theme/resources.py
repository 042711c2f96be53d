"""Where fonts and icons lie: beside the package in a checkout, inside the bundle when frozen."""

from __future__ import annotations

import sys
from pathlib import Path


def resource_path(*parts: str) -> Path:
    """Path of a shipped resource, e.g. `resource_path("icons", "send.svg")`. Does not check that it exists."""
    bundle = getattr(sys, "_MEIPASS", None)
    root = Path(bundle) if bundle else Path(__file__).resolve().parents[2]
    return root.joinpath("resources", *parts)
