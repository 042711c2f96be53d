"""The build's helpers are importable here; tests of a whole bundle are collected only where packaging/build says that there is one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "packaging"))

collect_ignore = [] if os.environ.get("OMNIBUS_BUNDLE") else ["test_bundle.py"]
