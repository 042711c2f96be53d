"""Chats as PDF: the HTML export, laid out by Qt on A4 pages. Needs no screen, and fetches nothing.

The one place outside the window that imports Qt; whoever calls it without an application gets one that draws off screen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PySide6.QtCore import QMarginsF, QUrl
from PySide6.QtGui import QGuiApplication, QPageSize, QPdfWriter, QTextDocument

from app.chats.exchange.html import body, make_parser
from app.chats.model import Chat
from app.theme.fonts import MONO_FAMILY, UI_FAMILY, load_fonts

# The part of CSS that QTextDocument knows.
_STYLE = f"""
body {{ font-family: '{UI_FAMILY}'; font-size: 10pt; color: #17191c; }}
h1 {{ font-size: 16pt; margin-top: 0; }} time, .note, b {{ color: #52575f; font-size: 8.5pt; }}
pre, code {{ font-family: '{MONO_FAMILY}'; font-size: 8.5pt; }} pre {{ background-color: #f3f4f6; white-space: pre-wrap; }}
.typed {{ white-space: pre-wrap; background-color: #eef0fb; }}
td, th {{ border: 1px solid #cccccc; padding: 3px; }} a {{ color: #3b47c4; }}
"""
RESOLUTION = 300
MARGIN_MM = 18.0


class _Document(QTextDocument):
    """A document that loads nothing, whatever its text asks for."""

    def loadResource(self, kind: int, name: QUrl | str) -> Any:
        return None


def write_pdf(chats: Iterable[Chat], target: Path) -> None:
    """Write these chats to one PDF, each from a new page. Raises OSError where it cannot be written."""
    application = QGuiApplication.instance() or _make_application()
    load_fonts()
    parser = make_parser()
    articles = [body(chat, parser) for chat in chats]
    document = _Document()
    document.setDefaultStyleSheet(_STYLE)
    breaks = [
        article if not number else f'<div style="page-break-before: always">{article}</div>' for number, article in enumerate(articles)
    ]
    document.setHtml("<body>" + "\n".join(breaks) + "</body>")
    writer = QPdfWriter(str(target))
    writer.setCreator("Omnibus")
    writer.setResolution(RESOLUTION)
    writer.setPageSize(QPageSize(QPageSize.PageSizeId.A4))
    writer.setPageMargins(QMarginsF(MARGIN_MM, MARGIN_MM, MARGIN_MM, MARGIN_MM))
    document.print_(writer)
    del writer  # it writes its end when it goes
    if not target.is_file() or not target.stat().st_size:
        raise OSError(f"{target} could not be written")
    assert application is not None


def _make_application() -> QGuiApplication:
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    return QGuiApplication(sys.argv[:1])
