"""What a reader finds and copies in a PDF of ours: Qt says a tab for the glyph of a blank, and Arabic letters by their shapes.

Changes the tables from glyphs to characters in a file that Qt has written; what is drawn stays as it is.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

_LIST = re.compile(rb"\[[^\]]*\]")
_CHARACTER = re.compile(rb"<([0-9A-Fa-f]{4})>")
# Shapes of Arabic letters, and Latin ones that are joined: found by the letters that they stand for.
_SHAPES = ((0xFB00, 0xFB06), (0xFB50, 0xFDFF), (0xFE70, 0xFEFC))


def mend_words(path: Path) -> None:
    """Make the words of a PDF findable. A file that cannot be understood is left as it is."""
    from pypdf import PdfWriter
    from pypdf.errors import PyPdfError

    try:
        writer = PdfWriter(clone_from=str(path))
        seen: set[int] = set()
        for page in writer.pages:
            for font in (page.get("/Resources") or {}).get("/Font", {}).values():
                _mend_font(font.get_object(), seen)
        writer.write(str(path))
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError):
        log.warning("the words of a PDF could not be made findable", exc_info=True)


def _mend_font(font: Any, seen: set[int]) -> None:
    table = font.get("/ToUnicode")
    if table is None or id(table.get_object()) in seen:
        return
    stream = table.get_object()
    seen.add(id(stream))
    stream.set_data(_LIST.sub(lambda found: _CHARACTER.sub(_character, found.group()), stream.get_data()))


def _character(found: re.Match[bytes]) -> bytes:
    code = int(found.group(1), 16)
    if code == 0x0009:
        return b"<0020>"
    if any(first <= code <= last for first, last in _SHAPES):
        return b"<" + unicodedata.normalize("NFKC", chr(code)).encode("utf-16-be").hex().upper().encode() + b">"
    return found.group()
