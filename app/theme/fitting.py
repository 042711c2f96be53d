"""How large a window opens: as wished, and no larger than the screen it opens on has room for.

A laptop of 1366 × 768, or a screen of 1080 lines at 150 %, is lower than the window's own size: whatever stands at its foot, such as the
box to write in, would lie below the screen.
"""

from __future__ import annotations

from PySide6.QtCore import QSize
from PySide6.QtWidgets import QWidget

FRAME = QSize(8, 40)  # borders and title bar; not known before a window is shown, so the most that desktops take


def resize_to_fit(window: QWidget, width: int, height: int) -> None:
    """Give a window that was not shown yet its size; never less than its least one."""
    room = window.screen().availableGeometry().size() - FRAME
    window.resize(QSize(width, height).boundedTo(room).expandedTo(window.minimumSize()))
