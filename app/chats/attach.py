"""Files as text that goes along with a message: plain text, code, PDF. Free of Qt; reading may take seconds, so not on the window's thread.

A file is read once, when it is attached: what is asked later is what was seen then. Nothing in a file is run or fetched.
"""

from __future__ import annotations

import io
import logging
from pathlib import Path

from app.chats.model import Attachment
from engine import Sentence

MOST_TEXT = 2_000_000  # characters of one file
MOST_BYTES = 50_000_000  # of a PDF
LONG_PASTE = 2_500  # characters from which a paste becomes an attachment

_CODE = frozenset(
    {".c", ".cc", ".cpp", ".cs", ".css", ".go", ".h", ".hpp", ".html", ".java", ".js", ".jsx", ".json", ".kt", ".lua", ".php", ".pl"}
    | {".py", ".rb", ".rs", ".scala", ".sh", ".sql", ".swift", ".toml", ".ts", ".tsx", ".xml", ".yaml", ".yml", ".zig"}
)


class AttachError(Exception):
    """A file cannot go along. `args[0]` is a sentence for a person, with what to do."""


def read_attachment(path: Path) -> Attachment:
    """Read a file. Raises AttachError where it cannot be read, is no text, or holds too much of it."""
    name = path.name
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise AttachError(Sentence("{0} is a folder; attach the files in it.", name))
        is_pdf = path.suffix.lower() == ".pdf"
        if size > (MOST_BYTES if is_pdf else 4 * MOST_TEXT):
            raise AttachError(Sentence("{0} has {1:,.0f} MB, more than fits into a chat. Attach the part that matters.", name, size / 1e6))
        data = path.read_bytes()
        if is_pdf or data.startswith(b"%PDF-"):
            return Attachment(name, "pdf", _bounded(_pdf_text(data, name), name))
        text = _decode(data, name)
    except OSError as error:
        raise AttachError(Sentence("{0} cannot be read: {1}.", name, error.strerror or error)) from error
    return Attachment(name, "code" if path.suffix.lower() in _CODE else "text", _bounded(text, name))


def paste_attachment(text: str, number: int) -> Attachment:
    """A long paste, under a name of its own."""
    return Attachment(f"Pasted text {number}", "paste", text)


def _decode(data: bytes, name: str) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        encodings: tuple[str, ...] = ("utf-16",)
    elif b"\x00" in data:
        raise AttachError(Sentence("{0} is no text file; only text, code and PDF can be attached.", name))
    else:
        encodings = ("utf-8-sig", "cp1252", "latin-1")
    for encoding in encodings:
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise AttachError(Sentence("{0} is no text file; only text, code and PDF can be attached.", name))


def _bounded(text: str, name: str) -> str:
    if not text.strip():
        raise AttachError(Sentence("There is no text in {0}.", name))
    if len(text) > MOST_TEXT:
        raise AttachError(
            Sentence("{0} holds {1:,} characters, more than fits into a chat. Attach the part that matters.", name, len(text))
        )
    return text


def _pdf_text(data: bytes, name: str) -> str:
    from pypdf import PdfReader  # late: most chats have no PDF
    from pypdf.errors import PyPdfError

    logging.getLogger("pypdf").setLevel(logging.ERROR)  # its remarks on sloppy files are nothing to act on
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise AttachError(Sentence("{0} is locked with a password. Save a copy without one and attach that.", name))
        text = "\n\n".join(page.extract_text() for page in reader.pages)
    except AttachError:
        raise
    except (PyPdfError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, NotImplementedError) as error:
        raise AttachError(Sentence("{0} cannot be read as a PDF: it is damaged, or of a kind that is not known.", name)) from error
    if not text.strip():
        raise AttachError(Sentence("There is no text in {0}: its pages are pictures. Run a text recognition over it first.", name))
    return text
