"""What can be computed of how it looks: words stand out from their ground, meaning never hangs on colour alone, and German fits, too."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtCore import QTranslator
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QAbstractButton, QApplication

from app.dashboard.capsule import BARE, BARE_ACTIVE, FULL, FULL_ACTIVE, HATCHED, body_color
from app.dashboard.ink import Ink, blend
from app.dashboard.segmented import Segmented
from app.dashboard.step_image import StepColors, StepScale, paint_steps, pixel
from app.dashboard.steps import DECODE, EMPTY, HELD, PREFILL, WASTED
from app.theme import Theme
from app.theme.color import contrast
from app.theme.resources import resource_path
from tests.app.dashboard.sim_engine import SimEngine

AA, AA_SHAPE = 4.5, 3.0  # WCAG 2.2: text; what is drawn and means something
# Linear RGB as people see it who lack one kind of cone (Machado, Oliveira and Fernandes, IEEE TVCG 15(6), 2009, severity 1).
SEEN = {
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
}


@pytest.fixture(params=["dark", "light"])
def ink(request: pytest.FixtureRequest) -> Ink:
    return Ink(Theme.named(request.param))


def seen_by(kind: str, color: QColor) -> str:
    """A colour as it looks to someone else."""
    shares = np.array([color.redF(), color.greenF(), color.blueF()])
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(SEEN[kind]) @ linear, 0, 1)
    encoded = np.where(seen <= 0.0031308, 12.92 * seen, 1.055 * seen ** (1 / 2.4) - 0.055)
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in encoded)


def test_words_stand_out_from_every_ground(ink):
    body, surface = body_color(ink), ink.surface
    hole, lost = blend(ink.text, surface, 0.045), blend(ink.danger, surface, 0.16)
    pairs = [(ink.text, surface), (ink.dim, surface), (ink.text, body), (ink.dim, body), (ink.dim, ink.window), (ink.text, ink.sidebar)]
    pairs += [(ink.dim, hole), (blend(ink.danger, ink.text, 0.55), lost), (ink.danger, surface), (ink.text, blend(ink.accent, body, 0.22))]
    for seat in range(12):
        hue = ink.seat(seat)
        pairs += [(ink.text, blend(hue, body, share)) for share in (FULL, FULL_ACTIVE, BARE, BARE_ACTIVE, HATCHED)]
        pairs += [(ink.on(hue), hue), (ink.on(hue), blend(hue, surface, 0.74))]
    for text, ground in pairs:
        assert contrast(text.name(), ground.name()) >= AA, (text.name(), ground.name())


@pytest.mark.parametrize("kind", SEEN)
def test_what_a_step_was_is_told_without_hue(ink, kind):
    """Each state has a texture of its own; an empty seat somebody waited for differs from a plain empty one by its rim, for everyone."""
    colors = StepColors(ink, 1)
    scale = StepScale(column=12, bar=20, row=24, gap=1)
    textures = {}
    for state in (EMPTY, WASTED, HELD, PREFILL, DECODE):
        column = np.full((1, 1), state, np.uint8)
        picture = paint_steps(column, np.ones((1, 1), np.int32), np.zeros((1, 1), np.uint8), colors, scale, pixel(ink.surface))
        middle = picture[2:22, :11]
        textures[state] = tuple(tuple(row != middle[10, 5]) for row in middle)
    assert len({textures[state] for state in (WASTED, HELD, PREFILL, DECODE)}) == 4 and textures[WASTED] != textures[EMPTY]
    rim = QColor(colors.rim & 0xFFFFFF)
    assert contrast(seen_by(kind, rim), seen_by(kind, ink.surface)) >= AA_SHAPE
    for seat in range(12):  # someone rides, or nobody does
        assert contrast(seen_by(kind, ink.seat(seat)), seen_by(kind, blend(ink.text, ink.surface, 0.045))) >= AA_SHAPE


@pytest.fixture
def german(dressed: QApplication):
    translator = QTranslator()
    assert translator.load("omnibus_de", str(resource_path("translations")))
    dressed.installTranslator(translator)
    yield
    dressed.removeTranslator(translator)


@pytest.mark.parametrize("width", [480, 640, 900, 1400])
def test_german_fits_at_every_width(make_page, tick, german, width):
    engine = SimEngine()
    engine.load(12)
    page = make_page(engine, width=width)
    tick(page, engine, 5)
    assert page.controls.demo.text() == "Vorführung starten" and "Stadtbus" in page.bus.summary()
    page._show_below("twin")
    QApplication.processEvents()
    content = page.scroller.widget()
    assert content.minimumSizeHint().width() <= width and content.width() <= width
    for widget in page.findChildren(QAbstractButton):
        if widget.isVisible() and len(widget.text()) > 1:
            assert widget.width() >= widget.minimumSizeHint().width(), widget.text()
            assert widget.mapTo(page, widget.rect().topRight()).x() < width, widget.text()


@pytest.mark.parametrize("name", ["dark", "light"])
def test_a_switch_that_cannot_be_used_looks_so(dressed: QApplication, qtbot, name: str) -> None:
    """As the policies while a recording is on show: no segment stands out as one to press."""
    switch = Segmented(Theme.named(name), "Policy", {"city": ("City bus", ""), "tour": ("Tour bus", "")})
    qtbot.addWidget(switch)
    switch.show()
    pictures = []
    for usable in (True, False):
        switch.setEnabled(usable)
        picture = switch.grab().toImage()
        button = switch.buttons["city"].geometry()
        pictures.append(picture.pixelColor(button.left() + 6, button.center().y()))
    assert pictures[0] != pictures[1]
    ground = switch.grab().toImage().pixelColor(switch.buttons["tour"].geometry().right() + 1, switch.height() // 2)
    assert pictures[1] == ground
