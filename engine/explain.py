"""What a person is told when a model or a text fails in the middle of an answer, and what can still be said of it.

Owns the sentences; the core decides when they are needed. The log gets the traceback, the person a sentence and a hint.
"""

from __future__ import annotations

import logging

from engine.scheduling.request import RequestState
from engine.types import EngineError, ErrorInfo, Sentence

log = logging.getLogger(__name__)


def rest_of_text(request: RequestState) -> str:
    """What the stream still holds back, now that the answer is over."""
    stream = request.stream
    if stream is None or stream.stopped:
        return ""
    try:
        return stream.flush()
    except Exception:
        log.exception("the end of the text of request %s could not be made", request.id)
        return ""


def explain_text(request: RequestState, error: Exception) -> ErrorInfo:
    log.exception("the text of request %s could not be made", request.id)
    return ErrorInfo("text_failed", Sentence("The answer's text could not be made: {0}", error), "Try again; the log has the details.")


def explain(error: Exception, alone: bool = True) -> ErrorInfo:
    """What the model raised: for one request, or (not `alone`) for all of a step, so that none of them is to blame."""
    if isinstance(error, EngineError):
        return error.info()
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return ErrorInfo(
            "out_of_memory", "There was not enough memory for this step.", "Close other programs, or use fewer seats or a shorter chat."
        )
    return ErrorInfo(
        "forward_failed",
        Sentence("The model failed on this request: {0}", error) if alone else Sentence("The model could not run a step: {0}", error),
        "Try again; if it happens again, report it with the log.",
    )
