"""The words round the timeline: what each pattern means, how much of the seats' time was empty, and a step told in a line."""

from __future__ import annotations

from itertools import accumulate

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QFont, QPainter, QPen

from app.dashboard import wording
from app.dashboard.ink import Ink, blend, text_width
from app.dashboard.letters import write
from app.dashboard.step_image import RIM
from app.dashboard.steps import Waste
from app.dashboard.wording import translate
from app.numbers import said
from engine import StepRecord

BOLD = QFont.Weight.Medium


def verdict(waste: Waste) -> str:
    """How much stayed empty, in one line; nothing before there was a step."""
    if not waste.seat_steps:
        return ""
    share, lost = wording.share(waste.empty, waste.seat_steps), wording.share(waste.wasted, waste.seat_steps)
    if waste.wasted:
        return translate("Dashboard", "{0} empty, {1} while somebody waited").format(share, lost)
    return translate("Dashboard", "{0} of the seat-steps empty").format(share)


def step_words(record: StepRecord) -> str:
    """What a step did, and what it decided."""
    taken = len(record.rows) + len(record.held)
    positions = sum(row.tokens for row in record.rows)
    words = translate("Dashboard", "Step {0}: {1} rode, {2} seats empty, {3} waiting; {4} positions in {5}").format(
        wording.count(record.step),
        len(record.rows),
        max(0, record.seats_total - taken),
        wording.count(record.waiting),
        wording.count(positions),
        wording.seconds(record.duration),
    )
    return " · ".join([words, *(f"{wording.decision(d.kind)} {d.title} {said(d.detail)}".strip() for d in record.decisions)])


def entries() -> tuple[str, ...]:
    return (
        translate("Dashboard", "reading the prompt"),
        translate("Dashboard", "answering"),
        translate("Dashboard", "empty"),
        translate("Dashboard", "empty while somebody waits"),
    )


def fitting_entries(left: int, room: float, first: int = 0) -> int:
    """How many entries, from `first`, end before `room` pixels when they begin at `left`."""
    edges = list(accumulate((34 + text_width(words, 12) for words in entries()[first:]), initial=left))[1:]
    return sum(edge <= room for edge in edges)


def draw_entries(painter: QPainter, ink: Ink, left: int, shown: int, first: int = 0) -> None:
    """`shown` entries from `first`, as swatch and word."""
    grey, x = blend(ink.text, ink.surface, 0.55), float(left)
    colors = (
        blend(grey, ink.surface, 0.5),
        grey,
        blend(ink.text, ink.surface, 0.06),
        blend(ink.danger, ink.surface, 0.16),
    )
    for index, words in list(enumerate(entries()))[first : first + shown]:
        box = QRectF(x, 6, 12, 12)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colors[index])
        painter.drawRoundedRect(box, 3, 3)
        if index == 3:
            painter.setPen(QPen(blend(ink.danger, ink.surface, RIM), 1))
            painter.drawLine(QPointF(x + 1, 6.5), QPointF(x + 11, 6.5))
            painter.drawLine(QPointF(x + 1, 17.5), QPointF(x + 11, 17.5))
        if index == 0:
            painter.setBrush(QBrush(grey, Qt.BrushStyle.BDiagPattern))
            painter.drawRoundedRect(box, 3, 3)
        painter.setPen(ink.dim)
        write(painter, QRectF(x + 18, 2, 300, 20), words, 12)
        x += 34 + text_width(words, 12)
