"""A window opens as wished where there is room, and inside the screen where there is none."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from PySide6.QtCore import QRect
from PySide6.QtWidgets import QWidget

from app.models.dialog import ModelsDialog
from app.models.form_dialog import FormDialog
from app.theme import Theme, resize_to_fit
from app.window.about import AboutBox


class Screen:
    def __init__(self, width: int, height: int) -> None:
        self.room = QRect(0, 0, width, height)

    def availableGeometry(self) -> QRect:
        return self.room


@pytest.mark.parametrize(("screen", "size"), [((1920, 1040), (1280, 840)), ((1366, 728), (1280, 688)), ((640, 360), (632, 420))])
def test_no_larger_than_the_screen_and_no_smaller_than_it_can_be(qapp, screen, size):
    window = QWidget()
    window.setMinimumSize(540, 420)
    window.screen = lambda: Screen(*screen)
    resize_to_fit(window, 1280, 840)
    assert (window.width(), window.height()) == size
    window.deleteLater()


@pytest.mark.parametrize("kind", [ModelsDialog, FormDialog, AboutBox])
def test_every_dialog_of_ours_fits(qapp, monkeypatch, kind):
    monkeypatch.setattr(kind, "screen", lambda self: Screen(960, 500))
    dialog = {
        ModelsDialog: lambda: ModelsDialog(Mock(), Theme.dark(), desk=Mock()),
        FormDialog: lambda: FormDialog(Theme.dark()),
        AboutBox: lambda: AboutBox(papers=[]),
    }[kind]()
    assert dialog.height() <= 460
    dialog.deleteLater()


def test_a_start_on_a_small_screen_shows_the_box_to_write_in(tmp_path):
    import os
    import subprocess
    import sys

    code = (
        "import sys; from app.window import start; from app.cli import main\n"
        "from app.window.main_window import MainWindow\n"
        "shown = MainWindow.show\n"
        "def show(self): shown(self); print('size', self.width(), self.height())\n"
        "MainWindow.show = show\n"
        f"sys.exit(main(['--data', {str(tmp_path)!r}, '--until', 'window']))"
    )
    told = os.environ | {"QT_QPA_PLATFORM": "offscreen"}  # whose screen has 800 by 800 points
    done = subprocess.run([sys.executable, "-c", code], env=told, capture_output=True, text=True, timeout=60)
    assert "size 792 760" in done.stdout, done.stdout + done.stderr
