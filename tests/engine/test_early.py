"""torch's libraries are there before torch is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

EARLY = """
import sys
from pathlib import Path
from engine import early
from engine.model import late
early.begin()
early.begin()
early.finish()
mapped = Path("/proc/self/maps").read_text()
print("libtorch_cpu.so" in mapped, "libtorch_python.so" in mapped, "torch" in sys.modules)
late.import_torch()
import torch
print(torch.ones(3).sum().item(), early._thread.is_alive())
early._thread = None
early.begin()
print(early._thread)
"""

NOWHERE = """
import importlib.util
from engine import early
importlib.util.find_spec = lambda name: None
early.begin()
early.finish()
print("quiet")
"""


def run(script: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is done early")
def test_the_libraries_are_there_before_torch_and_torch_works() -> None:
    assert run(EARLY) == ["True True False", "3.0 False", "None"]


def test_a_torch_that_is_not_found_is_left_to_its_import() -> None:
    assert run(NOWHERE) == ["quiet"]
