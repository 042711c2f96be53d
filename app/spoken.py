"""What commands say: standard output and standard error, which may not be there, end early, or lead to a disk that is full.

Knows nothing of commands. Python leaves a stream that was closed before the start as None, and complains at exit of one that it could not
write to; after `let_go` it does not.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys

NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC))  # a write says no more of its file


def provide() -> None:
    """Have both streams there, also where the program was started without (`>&-`, a program without a terminal on Windows)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # it stays as long as the program


def loss(error: OSError | None = None) -> str | None:
    """Why what was said cannot be written, in the system's words; None when all of it is out. Raises BrokenPipeError when nobody reads.

    error: it may have been raised by a write to standard output, which is then tried once more: what failed may be forgotten there.
    """
    try:
        if error is not None and error.filename is None and error.errno in NO_ROOM:
            sys.stdout.write("\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        return error.strerror or str(error)
    return None


def let_go() -> None:
    """Write nothing more, and have Python not try again."""
    with contextlib.suppress(OSError, ValueError):  # a stream of a test's own has no number
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
