"""Colour arithmetic without Qt: OKLCH to sRGB (Ottosson, "A perceptual color space for image processing", 2020) and WCAG contrast.

Seats are told apart by hue alone, so their colours must be equally light; OKLCH is the space in which that can be asked for.
"""

from __future__ import annotations

import math


def _linear(lightness: float, chroma: float, hue: float) -> tuple[float, float, float]:
    """OKLCH (hue in degrees) to linear sRGB; channels outside 0..1 are out of gamut."""
    a = chroma * math.cos(math.radians(hue))
    b = chroma * math.sin(math.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )


def oklch(lightness: float, chroma: float, hue: float) -> str:
    """`#rrggbb` of an OKLCH colour; where sRGB cannot show it, chroma gives way, lightness and hue stay."""
    low, high = 0.0, chroma
    if all(-1e-6 <= channel <= 1 + 1e-6 for channel in _linear(lightness, chroma, hue)):
        low = chroma
    else:
        for _ in range(24):
            middle = (low + high) / 2
            if all(0 <= channel <= 1 for channel in _linear(lightness, middle, hue)):
                low = middle
            else:
                high = middle
    return "#" + "".join(f"{round(_encode(channel) * 255):02x}" for channel in _linear(lightness, low, hue))


def _encode(channel: float) -> float:
    channel = min(1.0, max(0.0, channel))
    return 12.92 * channel if channel <= 0.0031308 else 1.055 * channel ** (1 / 2.4) - 0.055


def channels(color: str) -> tuple[int, int, int]:
    """(r, g, b) in 0..255 of `#rrggbb` or Qt's `#aarrggbb`."""
    digits = color[-6:]
    return int(digits[0:2], 16), int(digits[2:4], 16), int(digits[4:6], 16)


def mix(over: str, under: str, share: float) -> str:
    """`over` laid on `under` with opacity `share`, as an opaque colour."""
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in zip(channels(over), channels(under), strict=True))


def luminance(color: str) -> float:
    """Relative luminance, 0..1 (WCAG 2.2)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in channels(color))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    """Contrast ratio, 1..21 (WCAG 2.2); body text asks for 4.5."""
    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)
