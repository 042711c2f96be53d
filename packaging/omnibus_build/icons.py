"""The program's icon in the forms that systems want, drawn from the one SVG by Qt itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SIZES = (16, 32, 48, 64, 128, 256, 512)

# In a process of its own: the build itself needs no application object, and Qt wants one for its image plugins.
DRAW = """
import sys
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QImage, QPainter
from PySide6.QtSvg import QSvgRenderer
app = QGuiApplication(["draw", "-platform", "offscreen"])
source, folder, *sizes = sys.argv[1:]
renderer = QSvgRenderer(source)
assert renderer.isValid(), source
for size in map(int, sizes):
    image = QImage(size, size, QImage.Format.Format_ARGB32)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    renderer.render(painter)
    painter.end()
    assert image.save(f"{folder}/{size}.png")
    if size == 256:
        assert image.save(f"{folder}/omnibus.ico"), "no ICO plugin"
    if size == 512:
        image.save(f"{folder}/omnibus.icns")  # only where Qt has the plugin; macOS has it
"""


def draw(source: Path, folder: Path) -> None:
    """PNG files by size, omnibus.ico, and omnibus.icns where Qt can write it. Raises CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-c", DRAW, str(source), str(folder), *map(str, SIZES)], check=True)
