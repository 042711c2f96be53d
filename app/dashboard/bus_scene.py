"""All of the bus that stays as it is while people come and go: its body, its sign, its wheels, and the stop's sign. Drawn once, stamped."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFont, QPainter, QPen

from app.dashboard import capsule, wording
from app.dashboard.bus_layout import BODY_PADDING, NOSE, NOSE_FROM, SIGN_HEIGHT, BusLayout
from app.dashboard.ink import Ink, blend, elided, text_width
from app.dashboard.letters import write
from app.dashboard.wording import translate
from engine import Policy

BOLD = QFont.Weight.DemiBold


def draw_scene(painter: QPainter, ink: Ink, layout: BusLayout, policy: Policy) -> None:
    """The bus from the side, driving to the right."""
    body = layout.body
    ground, line = capsule.body_color(ink), blend(ink.text, capsule.body_color(ink), 0.12)
    painter.setPen(QPen(line, 1))
    painter.setBrush(ground)
    painter.drawRoundedRect(body.adjusted(0.5, 0.5, -0.5, -0.5), 24, 24)
    if body.width() >= NOSE_FROM:
        glass = QRectF(body.right() - NOSE + 8, body.top() + 16, NOSE - 18, body.height() * 0.42)
        painter.setBrush(blend(ink.text, ground, 0.05))
        painter.drawRoundedRect(glass, 8, 8)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(blend(ink.text, ground, 0.4))
        painter.drawRoundedRect(QRectF(body.right() - 12, body.bottom() - 52, 6, 16), 3, 3)
    painter.setPen(Qt.PenStyle.NoPen)
    for x in (body.left() + 82, body.right() - 92):
        middle = QPointF(x, body.bottom() - 0.5)
        for radius, color in ((15, ink.surface), (11.5, blend(ink.text, ink.surface, 0.30)), (5, ink.surface)):
            painter.setBrush(color)
            painter.drawEllipse(middle, radius, radius)
    left = body.left() + BODY_PADDING + 4
    width = body.width() - 2 * BODY_PADDING - NOSE
    box = QRectF(left, body.top() + 8, width, SIGN_HEIGHT)
    name, rule = wording.policy(policy), wording.policy_rule(policy)
    painter.setPen(ink.text)
    write(painter, box, name, 13, BOLD)
    write(painter, layout.stop, translate("Dashboard", "Waiting"), 13, BOLD)
    taken = text_width(name, 13, BOLD) + 10
    painter.setPen(ink.dim)
    write(painter, box.adjusted(taken, 0, 0, 0), elided(rule, int(width - taken), 12), 12)
