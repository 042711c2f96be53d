"""The document formats of a transcript, made once from a theme: paragraphs, headings, code, quotes, tables, footers.

Sizes in device-independent pixels. What rich text cannot draw (round corners, bars) is marked on a frame with `KIND`; the view paints it.
"""

from __future__ import annotations

from enum import IntEnum

from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QBrush,
    QColor,
    QFont,
    QTextBlockFormat,
    QTextCharFormat,
    QTextFormat,
    QTextFrameFormat,
    QTextLength,
    QTextTableFormat,
)

from app.theme import Theme, mono_font, ui_font
from app.theme.color import mix

BODY_PIXELS = 15
CODE_PIXELS = 13
SMALL_PIXELS = 12
LINE_HEIGHT = 126  # per cent of Inter's own, which is 19 pixels at 15 as Qt rounds it: makes 1.6
INDENT = 26  # one level of a list or quote

KIND = QTextFormat.Property.UserProperty + 1


class Kind(IntEnum):
    """What the view paints behind a frame."""

    PLAIN = 0
    BUBBLE = 1
    CODE = 2
    QUOTE = 3
    ERROR = 4
    RULE = 5
    CODE_LINES = 6  # some lines inside CODE


class Formats:
    """All formats for one theme, at a zoom (1.0: as designed). Each call returns a fresh copy, which the caller may change."""

    def __init__(self, theme: Theme, zoom: float = 1.0) -> None:
        self.theme = theme
        self.zoom = zoom
        self.code_background = QColor(mix("#000000", theme.surface, 0.22) if theme.is_dark else "#f6f7f9")
        self.inline_code_background = QColor(mix(theme.text, theme.window, 0.09))
        self.line = QColor(mix(theme.text, theme.window, 0.14))
        self.code_colors = _code_colors(theme)

    # -------------------------------------------------------------------------------------------------- characters

    def ui(self, pixels: int, weight: QFont.Weight = QFont.Weight.Normal) -> QFont:
        """The sans face, zoomed."""
        return ui_font(round(pixels * self.zoom), weight)

    def body(self) -> QTextCharFormat:
        return self._char(self.ui(BODY_PIXELS), self.theme.text)

    def heading(self, level: int) -> QTextCharFormat:
        pixels = {1: 21, 2: 18, 3: 16}.get(level, BODY_PIXELS)
        return self._char(self.ui(pixels, QFont.Weight.DemiBold), self.theme.text)

    def small(self, color: str | None = None) -> QTextCharFormat:
        return self._char(self.ui(SMALL_PIXELS), color or self.theme.text_dim)

    def figures(self) -> QTextCharFormat:
        """Small text whose figures are all equally wide."""
        font = self.ui(SMALL_PIXELS)
        font.setFeature(QFont.Tag("tnum"), 1)
        return self._char(font, self.theme.text_dim)

    def code(self, style: str = "") -> QTextCharFormat:
        return self._char(mono_font(round(CODE_PIXELS * self.zoom)), self.code_colors.get(style, self.theme.text))

    def inline_code(self, base: QTextCharFormat) -> QTextCharFormat:
        font = mono_font(round(base.font().pixelSize() * 0.9))
        font.setWeight(base.font().weight())
        char = self._char(font, self.theme.text)
        char.setBackground(self.inline_code_background)
        return char

    def link(self, base: QTextCharFormat, href: str, underline: bool = True) -> QTextCharFormat:
        char = QTextCharFormat(base)
        char.setAnchor(True)
        char.setAnchorHref(href)
        char.setForeground(QColor(self.theme.accent))
        char.setFontUnderline(underline)
        return char

    def action(self, href: str) -> QTextCharFormat:
        """A footer's button: an anchor that Tab reaches."""
        char = self.link(self.small(), href, underline=False)
        char.setForeground(QColor(self.theme.text_dim))
        char.setFontWeight(QFont.Weight.Medium)
        return char

    # ------------------------------------------------------------------------------------------------------ blocks

    def paragraph(self, indent: int = 0, tight: bool = False) -> QTextBlockFormat:
        block = QTextBlockFormat()
        block.setLineHeight(LINE_HEIGHT, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        block.setBottomMargin(3 if tight else 10)
        block.setLeftMargin(indent * INDENT)
        return block

    def heading_block(self, level: int, first: bool) -> QTextBlockFormat:
        block = QTextBlockFormat()
        block.setLineHeight(118, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        block.setTopMargin(0 if first else {1: 16, 2: 14}.get(level, 10))
        block.setBottomMargin(8)
        block.setHeadingLevel(level)
        return block

    def display(self, indent: int = 0) -> QTextBlockFormat:
        """A formula on a line of its own."""
        block = QTextBlockFormat()
        block.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        block.setTopMargin(4)
        block.setBottomMargin(14)
        block.setLeftMargin(indent * INDENT)
        return block

    def code_block(self) -> QTextBlockFormat:
        block = QTextBlockFormat()
        block.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        block.setLineHeight(125, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        return block

    def thin(self, height: float = 1.0) -> QTextBlockFormat:
        """The block Qt insists on between frames, made as good as nothing, or a gap of `height` pixels."""
        block = QTextBlockFormat()
        block.setLineHeight(height, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
        return block

    def thin_char(self) -> QTextCharFormat:
        char = QTextCharFormat()
        font = QFont(ui_font(1))
        char.setFont(font)
        return char

    # ------------------------------------------------------------------------------------------------------ frames

    def frame(self, kind: Kind, padding: float = 0, left: float = 0, top: float = 0, bottom: float = 0) -> QTextFrameFormat:
        frame = QTextFrameFormat()
        frame.setProperty(KIND, int(kind))
        frame.setBorder(0)
        frame.setPadding(padding)
        frame.setLeftMargin(left)
        frame.setTopMargin(top)
        frame.setBottomMargin(bottom)
        return frame

    def table(self, columns: int, left: float) -> QTextTableFormat:
        table = QTextTableFormat()
        table.setBorder(1)
        table.setBorderBrush(QBrush(self.line))
        table.setBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
        table.setBorderCollapse(True)
        table.setCellPadding(7)
        table.setCellSpacing(0)
        table.setLeftMargin(left)
        table.setTopMargin(4)
        table.setBottomMargin(10)
        table.setHeaderRowCount(1)
        table.setColumnWidthConstraints([QTextLength(QTextLength.Type.VariableLength, 0)] * columns)
        return table

    def cell(self, align: str) -> QTextBlockFormat:
        block = QTextBlockFormat()
        block.setLineHeight(118, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        sides = {"right": Qt.AlignmentFlag.AlignRight, "center": Qt.AlignmentFlag.AlignHCenter}
        block.setAlignment(sides.get(align, Qt.AlignmentFlag.AlignLeft))
        return block

    # ------------------------------------------------------------------------------------------------------ private

    @staticmethod
    def _char(font: QFont, color: str) -> QTextCharFormat:
        char = QTextCharFormat()
        char.setFont(font)
        char.setForeground(QColor(color))
        return char


def _code_colors(theme: Theme) -> dict[str, str]:
    """Code styles by name; AA on the code background of the theme."""
    if theme.is_dark:
        return {
            "comment": "#8b919c",
            "keyword": "#b7a2ff",
            "string": "#8fcf9f",
            "number": "#f0b37a",
            "function": "#7fb8f5",
            "builtin": "#6fcfd0",
            "deleted": "#f0858f",
        }
    return {
        "comment": "#636a74",
        "keyword": "#6a3fc4",
        "string": "#1f7340",
        "number": "#9a4f0f",
        "function": "#1f5fae",
        "builtin": "#0f6d78",
        "deleted": "#b3263a",
    }
