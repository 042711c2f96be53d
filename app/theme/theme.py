"""The colours of the window, as one frozen value that is handed to every widget's constructor.

Four surfaces (window, sidebar, surface, raised), two texts, one accent for actions, and the seat hues, which belong to data alone.
Never a global: a widget that needs a colour is given a theme.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QGuiApplication

from app.theme.color import contrast, mix, oklch

READABLE = 4.5  # WCAG 2.2, AA, for words

# Neighbouring seats stand 150 degrees apart; twelve steps visit all twelve hues.
SEAT_HUES = tuple((255 + 150 * i) % 360 for i in range(12))


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours are `#rrggbb`, or `#aarrggbb` where they are laid over something (hairline, hover).

    Attributes:
        window, sidebar, surface, raised: the four surfaces, from back to front.
        hairline: one-pixel lines between surfaces. hover: laid over a surface under the pointer.
        text, text_dim: both reach contrast AA on every surface.
        accent, on_accent: actions (buttons, links, focus) and what is written on them; never data.
        danger, good: errors, and things that went well.
        seat_hues: one colour a seat, of equal lightness.
    """

    name: str
    window: str
    sidebar: str
    surface: str
    raised: str
    hairline: str
    hover: str
    text: str
    text_dim: str
    accent: str
    on_accent: str
    danger: str
    good: str
    seat_hues: tuple[str, ...]

    @property
    def is_dark(self) -> bool:
        return self.name == "dark"

    def seat_color(self, seat: int) -> QColor:
        """The colour of a 0-based seat, the same on its tab, its capsule and its blocks; hues come round again after twelve."""
        return QColor(self.seat_hues[seat % len(self.seat_hues)])

    def seat_ink(self, seat: int, ground: str) -> QColor:
        """The colour of words about a seat: its hue, with as much of the text's colour as makes it readable (AA) on this ground."""
        return QColor(_readable(self.seat_hues[seat % len(self.seat_hues)], self.text, ground))

    @staticmethod
    def dark() -> Theme:
        return Theme(
            name="dark",
            window="#0f1012",
            sidebar="#141518",
            surface="#1a1c20",
            raised="#22252a",
            hairline="#14ffffff",
            hover="#0fffffff",
            text="#e8e9eb",
            text_dim="#a4a8b0",
            accent="#817afe",
            on_accent="#0f1012",
            danger="#f0616d",
            good="#4cc38a",
            seat_hues=tuple(oklch(0.72, 0.12, hue) for hue in SEAT_HUES),
        )

    @staticmethod
    def light() -> Theme:
        return Theme(
            name="light",
            window="#f3f4f6",
            sidebar="#eceef1",
            surface="#ffffff",
            raised="#ffffff",
            hairline="#14000000",
            hover="#0d000000",
            text="#17191c",
            text_dim="#52575f",
            accent="#5b53d6",
            on_accent="#ffffff",
            danger="#c62a2f",
            good="#18794e",
            seat_hues=tuple(oklch(0.60, 0.12, hue) for hue in SEAT_HUES),
        )

    @staticmethod
    def named(name: str) -> Theme:
        """The theme called "dark" or "light"; "system" is what the desktop asks for, dark where it does not say."""
        if name == "light":
            return Theme.light()
        if name == "system" and QGuiApplication.styleHints().colorScheme() is Qt.ColorScheme.Light:
            return Theme.light()
        return Theme.dark()


@functools.cache
def _readable(color: str, text: str, ground: str) -> str:
    """`color`, mixed with `text` until it can be read on `ground`."""
    shares = (share / 20 for share in range(21))
    return next((mixed for share in shares if contrast(mixed := mix(text, color, share), ground) >= READABLE), text)
