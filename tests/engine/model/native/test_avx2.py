"""Our own kernels as CPUs without AVX512-BF16 run them: the tests of the others, and that nothing in them is beyond such a CPU.

The kernels are registered once a process, so they are tried in one of their own. On a CPU that has nothing newer this is done twice.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.model.native import build, library

(AVX2,) = (kind for kind in build.KINDS if kind.name == "avx2")

pytestmark = pytest.mark.skipif(library.fault() is not None, reason=str(library.fault()))

HERE = Path(__file__).parent
FILES = ("test_kernels.py", "test_draw.py", "test_tile_lane.py", "test_tile_slots.py", "test_whole.py")
SOME = "kernels or draw or llama or gpt_oss or gemma2"  # the models: plain; sinks and windows; a softcap


def test_all_that_is_promised_of_the_others() -> None:
    """Products of three classes, gates, norms, attention and draws against their references; a row that does not know its company; steps
    recorded and in chunks, in slots, in 8 bits."""
    asked = ["-q", "-x", "-p", "no:cacheprovider", "-k", f"({SOME}) and not memory_that_runs_out"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *asked, *(str(HERE / name) for name in FILES)],
        cwd=HERE.parents[3],
        env={**os.environ, "OMNIBUS_KERNELS": AVX2.name},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    last = done.stdout.strip().rpartition("\n")[2]
    assert done.returncode == 0 and re.match(r"\d+ passed", last) and "skipped" not in last, done.stdout[-3000:] + done.stderr[-1000:]


def test_no_instruction_is_beyond_such_a_cpu() -> None:
    """AVX-512 is known by its registers: 512 bits, the upper sixteen, masks."""
    objdump = shutil.which("objdump")
    assert objdump is not None, "objdump comes with the C compiler"
    code = subprocess.run([objdump, "-d", "--no-show-raw-insn", str(build.find(AVX2))], capture_output=True, text=True, check=True).stdout
    assert "vfmadd231ps" in code and "%ymm15" in code
    beyond = re.search(r".*(%zmm|%[xy]mm(1[6-9]|2\d|3[01])|%k[0-7]\b).*", code)
    assert beyond is None, beyond[0]
