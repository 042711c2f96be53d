"""Files as text: what is read, and the sentence for what is not."""

from __future__ import annotations

import pytest

from app.chats.attach import MOST_TEXT, AttachError, read_attachment
from app.chats.model import Attachment


def make_pdf(words: str) -> bytes:
    """A PDF of one page with these words; its cross-reference table is counted out."""
    content = f"BT /F1 12 Tf 72 720 Td ({words}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    return out + b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table)


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.py", b"x = 1\n", Attachment("a.py", "code", "x = 1\n")),
        ("b.txt", "Stra\u00dfe".encode(), Attachment("b.txt", "text", "Stra\u00dfe")),
        ("c.txt", b"\xef\xbb\xbfbom", Attachment("c.txt", "text", "bom")),
        ("d.txt", "Stra\u00dfe".encode("cp1252"), Attachment("d.txt", "text", "Stra\u00dfe")),
        ("e.csv", "a;\u65e5".encode("utf-16"), Attachment("e.csv", "text", "a;\u65e5")),
        ("f.pdf", make_pdf("A bus is a batch"), Attachment("f.pdf", "pdf", "A bus is a batch")),
        ("misnamed", make_pdf("Still a PDF"), Attachment("misnamed", "pdf", "Still a PDF")),
    ],
)
def test_text_code_and_pdf_are_read(tmp_path, name, data, expected):
    (tmp_path / name).write_bytes(data)
    assert read_attachment(tmp_path / name) == expected


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.bin", b"\x7fELF\x00\x00", "no text file"),
        ("b.txt", b"  \n", "no text in b.txt"),
        ("c.pdf", b"%PDF-1.4 and then nonsense", "damaged"),
        ("d.pdf", make_pdf(""), "pictures"),
        ("e.txt", b"x" * (MOST_TEXT + 1), "more than fits"),
    ],
)
def test_what_cannot_go_along_is_told_in_a_sentence(tmp_path, name, data, words):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(AttachError, match=words):
        read_attachment(tmp_path / name)


def test_a_file_that_is_gone_and_a_folder(tmp_path):
    with pytest.raises(AttachError, match="cannot be read"):
        read_attachment(tmp_path / "gone.txt")
    with pytest.raises(AttachError, match="is a folder"):
        read_attachment(tmp_path)
