"""Words for what went wrong with a file: what it really is, and what a library said about it."""

from __future__ import annotations

from engine.types import Sentence


def what_it_is_instead(start: bytes) -> str:
    """A clause to put behind "is not a … file", from the file's first bytes; empty if they tell nothing."""
    head = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<body")):
        return Sentence("; it is a web page, so the download probably needs a login or the link is wrong")
    if head.startswith(b"version https://git-lfs"):
        return Sentence("; it is only a Git LFS pointer, the file itself was not fetched")
    if head.startswith((b'{"error', b'{"message', b"invalid username", b"access to model", b"entry not found", b"not found")):
        return Sentence("; it is a server's error message")
    if start[:4] in (b"GGML", b"lmgg", b"ggjt", b"tjgg", b"ggmf", b"fmgg", b"ggla", b"algg"):
        return Sentence("; it is of the older GGML format")
    if start[:4] == b"GGUF":
        return Sentence("; it is a GGUF file under another name")
    if start[:4] == b"PK\x03\x04":
        return Sentence("; it is a ZIP archive, perhaps a PyTorch file, which Omnibus does not open since it can run code")
    if start[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04"):
        return Sentence("; it is a Python pickle, which Omnibus does not open since it can run code")
    if head.startswith(b"{"):
        return Sentence("; it is JSON text")
    return ""


def first_line(error: BaseException) -> str:
    """What an exception says, cut to one sentence with a full stop."""
    lines = str(error).strip().splitlines()
    return (lines[0][:200] if lines else type(error).__name__).rstrip(".:; ") + "."
