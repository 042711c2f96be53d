"""The timeline as a file: PNG as it is on screen, SVG redrawn with lines, JSON with every step and the decisions that made it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from PySide6.QtCore import QBuffer, QIODevice, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QFont, QPainter, QPen
from PySide6.QtSvg import QSvgGenerator

from app.dashboard.ink import Ink, blend, elided, font
from app.dashboard.step_image import RIM
from app.dashboard.steps import DECODE, EMPTY, HELD, PREFILL, WASTED
from app.dashboard.timeline import Timeline
from app.dashboard.wording import translate

UNIT, ROW, BAR, LEFT, TOP = 10, 26, 20, 34, 34


def export_timeline(timeline: Timeline, path: Path) -> None:
    """Write the steps on show. Raises ValueError for an ending other than .png, .svg, .json, OSError when it cannot be written."""
    writers = {".png": _write_png, ".svg": _write_svg, ".json": _write_json}
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise ValueError(translate("Dashboard", "the name must end in .png, .svg or .json"))
    writer(timeline, path)


def steps_json(timeline: Timeline) -> str:
    """The steps on show as one JSON document: `{"seat_steps": n, "idle_seat_steps": n, "idle_while_waiting": n, "steps": [record, …]}`."""
    start, stop = timeline.span
    records = [record for column in range(start, stop) if (record := timeline.grid.record(column)) is not None]
    waste = timeline.grid.waste(start, stop)
    document = {
        "kind": "omnibus-timeline",
        "seat_steps": waste.seat_steps,
        "idle_seat_steps": waste.empty,
        "idle_while_waiting": waste.wasted,
        "steps": [asdict(record) for record in records],
    }
    return json.dumps(document, ensure_ascii=False, indent=1)


def _write_json(timeline: Timeline, path: Path) -> None:
    path.write_text(steps_json(timeline), encoding="utf-8")


def _write_png(timeline: Timeline, path: Path) -> None:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    timeline.grab().save(buffer, "PNG")  # type: ignore[call-overload]
    path.write_bytes(buffer.data().data())


def _write_svg(timeline: Timeline, path: Path) -> None:
    start, stop = timeline.span
    runs = timeline.grid.runs(start, stop)
    seats = 1 + max((run.seat for run in runs), default=0)
    size = QSize(LEFT + max(1, stop - start) * UNIT + 16, TOP + seats * ROW + 12)
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    generator = QSvgGenerator()
    generator.setOutputDevice(buffer)
    generator.setSize(size)
    generator.setViewBox(QRect(0, 0, size.width(), size.height()))
    generator.setTitle(timeline.summary())
    painter = QPainter(generator)
    _draw(painter, timeline, size, seats, start, stop)
    painter.end()
    path.write_bytes(buffer.data().data())


def _draw(painter: QPainter, timeline: Timeline, size: QSize, seats: int, start: int, stop: int) -> None:
    ink, grid = timeline.ink, timeline.grid
    painter.fillRect(0, 0, size.width(), size.height(), ink.surface)
    painter.setPen(ink.dim)
    painter.setFont(font(12))
    painter.drawText(QRectF(LEFT, 4, size.width() - LEFT, 24), Qt.AlignmentFlag.AlignVCenter, timeline.summary())
    for seat in range(seats):
        painter.setPen(ink.text)
        painter.drawText(
            QRectF(0, TOP + seat * ROW, LEFT - 8, ROW), Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, str(seat + 1)
        )
    for run in grid.runs(start, stop):
        box = QRectF(LEFT + run.start * UNIT, TOP + run.seat * ROW + (ROW - BAR) / 2, (run.stop - run.start) * UNIT - 1, BAR)
        brush = _brush(ink, run.seat, run.state)
        if brush is None:
            continue
        painter.setPen(Qt.PenStyle.NoPen)
        if run.state == PREFILL:
            painter.setBrush(blend(ink.seat(run.seat), ink.surface, 0.34))
            painter.drawRoundedRect(box, 3, 3)
        painter.setBrush(brush)
        if run.state == WASTED:
            painter.setPen(QPen(blend(ink.danger, ink.surface, RIM), 1))
        painter.drawRoundedRect(box, 3, 3)
        if run.state == DECODE and box.width() > 30:
            painter.setPen(ink.on(ink.seat(run.seat)))
            painter.setFont(font(11, QFont.Weight.DemiBold))
            painter.drawText(
                box.adjusted(6, 0, -4, 0),
                Qt.AlignmentFlag.AlignVCenter,
                elided(grid.title(run.request), int(box.width() - 10), 11, QFont.Weight.DemiBold),
            )


def _brush(ink: Ink, seat: int, state: int) -> QBrush | None:
    if state == EMPTY:
        return QBrush(blend(ink.text, ink.surface, 0.05))
    if state == WASTED:
        return QBrush(blend(ink.danger, ink.surface, 0.16))
    hue = ink.seat(seat)
    if state == HELD:
        return QBrush(blend(hue, ink.surface, 0.35))
    if state == PREFILL:
        return QBrush(hue, Qt.BrushStyle.BDiagPattern)
    return QBrush(hue) if state == DECODE else None
