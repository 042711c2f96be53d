"""The promises of the looks: AA contrast everywhere, seat hues of one lightness, shipped fonts and icons that really load."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QFont, QFontInfo, QFontMetricsF
from PySide6.QtWidgets import QCheckBox, QPushButton, QRadioButton

from app.theme import Theme, apply_theme, icon, load_fonts, resource_path, tabular, ui_font
from app.theme.color import contrast, luminance, oklch

THEMES = [Theme.dark(), Theme.light()]


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_words_are_readable_on_every_surface(theme):
    for surface in (theme.window, theme.sidebar, theme.surface, theme.raised):
        for words in (theme.text, theme.text_dim, theme.danger, theme.accent):
            assert contrast(words, surface) >= 4.5, (words, surface)
    assert contrast(theme.on_accent, theme.accent) >= 4.5


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_seat_hues_are_twelve_equally_light_colours(theme):
    assert len(set(theme.seat_hues)) == 12
    lights = [luminance(hue) for hue in theme.seat_hues]
    assert max(lights) / min(lights) < 1.25
    for hue in theme.seat_hues:
        assert contrast(hue, theme.surface) >= 3  # non-text contrast
    assert theme.seat_color(13) == theme.seat_color(1)


def test_oklch_knows_the_ends_and_stays_in_gamut():
    assert oklch(1.0, 0.0, 0) == "#ffffff"
    assert oklch(0.0, 0.0, 0) == "#000000"
    assert luminance(oklch(0.6, 0.4, 195)) == pytest.approx(luminance(oklch(0.6, 0.05, 195)), rel=0.2)


def test_shipped_fonts_are_used(qapp):
    assert load_fonts() == ("Inter", "JetBrains Mono")
    assert QFontInfo(ui_font(14)).family() == "Inter"


def test_tabular_figures_are_equally_wide(qapp):
    load_fonts()
    metrics = QFontMetricsF(tabular(ui_font(40)))
    assert len({metrics.horizontalAdvance(digit * 10) for digit in "0123456789"}) == 1
    proportional = QFontMetricsF(QFont(ui_font(40)))
    assert len({proportional.horizontalAdvance(digit * 10) for digit in "0123456789"}) > 1


def test_every_icon_draws_something_in_the_colour_asked_for(qapp):
    for file in resource_path("icons").glob("*.svg"):
        image = icon(file.stem, "#ff0000").pixmap(48, 48).toImage()
        painted = [image.pixelColor(x, y) for x in range(48) for y in range(48) if image.pixelColor(x, y).alpha() > 200]
        assert painted, file.name
        if file.stem not in ("omnibus", "step-up", "step-down", "checked-dark", "checked-light"):  # these have colours of their own
            assert all(color.red() > 200 and color.green() < 60 for color in painted), file.name


@pytest.mark.parametrize("kind", ["", "primary", "danger"])
@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_a_button_that_cannot_be_pressed_looks_so(qapp, theme, kind):
    apply_theme(qapp, theme)
    button = QPushButton("Go")
    button.setProperty("kind", kind)
    button.resize(120, 34)
    enabled = button.grab().toImage()
    button.setEnabled(False)
    disabled = button.grab().toImage()
    assert enabled != disabled
    if kind == "primary":
        assert enabled.pixelColor(14, 17).name() == theme.accent
        assert disabled.pixelColor(14, 17).hslSaturationF() < 0.25, "it still has the accent's colour"
    button.deleteLater()
    qapp.setStyleSheet("")


@pytest.mark.parametrize("kind", [QCheckBox, QRadioButton])
@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_a_box_and_a_ring_can_be_seen_ticked_or_not(qapp, theme, kind):
    apply_theme(qapp, theme)
    box = kind()
    box.resize(40, 24)
    looks = []
    for ticked in (False, True):
        box.setChecked(ticked)
        image = box.grab().toImage()
        colors = [image.pixelColor(x, 12).name() for x in range(18)]
        assert max(contrast(color, theme.window) for color in colors) >= 3, ticked
        looks.append(colors)
    assert looks[0] != looks[1]
    assert contrast(looks[1][9], looks[1][2]) >= 3 if kind is QRadioButton else theme.accent in looks[1]


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_applying_a_theme_sets_palette_and_font(qapp, theme):
    apply_theme(qapp, theme)
    assert qapp.palette().window().color().name() == theme.window
    assert QFontInfo(qapp.font()).family() == "Inter"


def test_the_style_holds_in_a_path_of_any_kind(qapp, tmp_path, monkeypatch):
    """Installed in a folder with brackets, say: Qt gives up the whole style sheet for one address that it cannot read."""
    from PySide6.QtCore import qInstallMessageHandler

    from app.theme import style

    monkeypatch.setattr(style, "resource_path", lambda *parts: tmp_path.joinpath("Öffne mich (neu) 'x'", *parts))
    said = []
    before = qInstallMessageHandler(lambda kind, context, message: said.append(message))
    try:
        apply_theme(qapp, Theme.dark())
    finally:
        qInstallMessageHandler(before)
        qapp.setStyleSheet("")
    assert not [message for message in said if "parse" in message]
