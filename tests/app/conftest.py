"""Fixtures for tests that need Qt: offscreen platform before any Qt import."""

from __future__ import annotations

import os

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
