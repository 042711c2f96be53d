"""The bearer token: made at first use, kept in a file that only its owner can read, compared in constant time.

Owns the file. Must never log a token nor put one into an error.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import stat
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from engine.catalog.paths import data_dir
from engine.types import EngineError

VARIABLE = "OMNIBUS_API_TOKEN"
BYTES = 32
SHORTEST_OUTSIDE = 22  # characters of a token for the network: 128 bits in base64


def token_file() -> Path:
    return data_dir() / "api-token"


def stored_token(path: Path | None = None) -> str:
    """The token of this person's server, made at the first call. Raises EngineError("no_token") when the file cannot be kept."""
    path = path or token_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        token = _read(path)
        if token is None:
            with contextlib.suppress(FileExistsError):  # somebody else was faster: theirs it is
                _create(path, secrets.token_urlsafe(BYTES))
            token = _read(path)
    except OSError as error:
        raise EngineError(
            "no_token", f"The server's token cannot be kept in {path}: {error.strerror}.", "Give one with --token."
        ) from error
    if not token or not is_token(token):
        raise EngineError("no_token", f"{path} holds no token.", "Delete the file; a new token is then made.")
    return token


def is_token(text: str) -> bool:
    """Whether it can stand in a header: visible ASCII, of bounded length."""
    return 1 <= len(text) <= 256 and all("!" <= letter <= "~" for letter in text)


def is_strong(text: str) -> bool:
    """Long enough for a port that others can reach, and no one letter over and over."""
    return is_token(text) and len(text) >= SHORTEST_OUTSIDE and len(set(text)) >= 8


class TokenCheck:
    """Holds a digest, not the token. Takes the same time for every wrong one."""

    def __init__(self, token: str) -> None:
        self._digest = sha256(token.encode()).digest()

    def accepts(self, authorization: Sequence[bytes]) -> bool:
        """`authorization`: the values of the request's Authorization headers, of which there must be one."""
        value = authorization[0] if len(authorization) == 1 else b""
        scheme, _, given = value.partition(b" ")
        same = hmac.compare_digest(sha256(given.strip()).digest(), self._digest)
        return same and scheme.lower() == b"bearer"


def _read(path: Path) -> str | None:
    """None when there is no file. A file that others could read is closed to them, and its token is not trusted any more."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return None
    with open(descriptor, encoding="utf-8", errors="replace") as file:
        mode = os.fstat(descriptor).st_mode
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            path.unlink()
            return None
        return file.read(4096).strip()


def _create(path: Path, token: str) -> None:
    """All or nothing: the name appears when the token is in the file."""
    scratch = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(scratch, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            os.replace(scratch, path)
            return
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch)
