"""The installers of the system that the build runs on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from omnibus_build import linux
from omnibus_build.bundle import Plan


def make(plan: Plan) -> list[Path]:
    """Everything that can be made here; what cannot, and why, is printed. Raises CalledProcessError."""
    if sys.platform == "win32":
        return inno_setup(plan)
    if sys.platform == "darwin":
        return disk_image(plan)
    return [linux.make_deb(plan), *linux.make_portable(plan)]


def inno_setup(plan: Plan) -> list[Path]:
    """The Windows installer, by Inno Setup's compiler; it signs with what SIGNTOOL says, if it says anything."""
    compiler = shutil.which("iscc") or shutil.which("ISCC", path=r"C:\Program Files (x86)\Inno Setup 6")
    if compiler is None:
        print("  Inno Setup 6 (iscc) is not installed: no installer")
        return []
    script = plan.root / "packaging" / "windows" / "omnibus.iss"
    defines = {
        "Version": plan.version,
        "Bundle": plan.bundle,
        "Output": plan.output,
        "Stem": plan.stem,
        "Icons": plan.icons,
        "Root": plan.root,
    }
    subprocess.run([compiler, "/Qp", *(f"/D{name}={value}" for name, value in defines.items()), str(script)], check=True)
    return [plan.output / f"{plan.stem}-setup.exe"]


def disk_image(plan: Plan) -> list[Path]:
    """The signed (where there is an identity) disk image for a Mac."""
    target = plan.output / f"{plan.stem}.dmg"
    script = plan.root / "packaging" / "macos" / "make_dmg.sh"
    subprocess.run(["/bin/bash", str(script), str(plan.output / "Omnibus.app"), str(target)], check=True)
    return [target]
