"""The strip of tabs when there are more than fit."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QRect
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QToolButton

from app.theme import Theme
from app.window.tabstrip import HEIGHT, TabStrip
from tests.app.conftest import settle


@pytest.fixture
def strip(qapp: QApplication) -> TabStrip:
    made = TabStrip(Theme.dark())
    made.set_room(540)  # a sixth tab begins before the arrows and goes on behind them
    made.resize(540, HEIGHT)
    made.show()
    yield made
    made.hide()
    made.deleteLater()
    settle()


def picture(strip: TabStrip, titles: str, area: QRect) -> QImage:
    for index in range(strip.count()):
        strip.set_title(strip.chat_at(index), titles)
    settle()
    return strip.grab(area).toImage()


def test_no_tab_is_painted_behind_the_arrows(strip: TabStrip) -> None:
    strip.add("0", "0")
    settle()
    assert strip.seen == strip.rect()
    for number in range(1, 9):
        strip.add(str(number), "")
    settle()
    arrows = [button.geometry() for button in strip.findChildren(QToolButton) if button.isVisible()]
    assert len(arrows) == 2 and not any(strip.seen.intersects(arrow) for arrow in arrows)
    behind = arrows[0].united(arrows[1])
    assert any(strip.tabRect(index).intersects(behind) for index in range(strip.count())), "else there is nothing to hide"
    last = QRect(strip.seen.right() - 3, 0, 4, HEIGHT)
    empty = [picture(strip, " ", area) for area in (behind, last)]
    assert [picture(strip, "MMMMMMMMMMMMMMMMMMMM", area) for area in (behind, last)] == empty
    assert picture(strip, "WWWWWWWWWWWWWWWWWWWW", strip.seen) != picture(strip, " ", strip.seen)
