"""Faults of a tokenizer's library, told as what they are: of one text, or of one model.

The libraries behind a tokenizer (Hugging Face's tokenizers, llguidance) are written in Rust. Where one meets a fault of its own it panics,
and that comes to Python as an exception which is no `Exception` (pyo3's PanicException): it passes every `except Exception` on its way and
ends the thread, with everybody on it. Every call that a text, a token or a model's file reaches goes through here. What is meant to end a
thread, Ctrl+C among it, passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engine.types import EngineError, RequestRefused, Sentence


class Panic(Exception):
    """A panic, as an error like others, in the library's words."""


@contextmanager
def panics_caught() -> Iterator[None]:
    """Raises Panic where a library panics; also as a decorator."""
    try:
        yield
    except Exception:
        raise
    except BaseException as fault:
        # Each library has a class of its own of that name, and none can be imported.
        if type(fault).__name__ != "PanicException":
            raise
        raise Panic(_first_line(fault)) from fault


@contextmanager
def faults_told() -> Iterator[None]:
    """Raises RequestRefused("tokenizer_failed") for whatever the library raises over a text or tokens; also as a decorator."""
    try:
        with panics_caught():
            yield
    except (EngineError, MemoryError):
        raise
    except Exception as fault:  # the tokenizers library raises bare Exception
        sentence = Sentence("The model's tokenizer failed on this text: {0}", _first_line(fault))
        raise RequestRefused("tokenizer_failed", sentence, "Change the text, or choose another model.") from fault


def _first_line(fault: BaseException) -> str:
    """A panic may go on with the whole text that it was about."""
    lines = str(fault).strip().splitlines()
    return lines[0][:200] if lines else type(fault).__name__
