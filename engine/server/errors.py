"""What a client is told when something is wrong: OpenAI's error object, with a status that clients act on rightly.

Owns the translation of the engine's errors. Must never let text through that was made by a library or holds a path: such text goes to
the log.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from engine.types import EngineError, ErrorInfo, RequestRefused, SamplingParams

# Codes of RequestRefused whose status is not 400.
STATUS = {"queue_full": 429, "engine_stopped": 503}
# Codes that clients know from OpenAI under another name.
OPENAI_CODES = {
    "prompt_too_long": "context_length_exceeded",
    "pool_too_small": "context_length_exceeded",
    "queue_full": "rate_limit_exceeded",
}
# Ends with an error whose sentences are our own, and that the request or a change of model brought about.
OWN_ENDS = {"model_changed": 503, "nan_logits": 500, "engine_stopped": 503}
OWN_ENDS |= dict.fromkeys(("prompt_too_long", "pool_too_small", "empty_prompt", "bad_token", "bad_role", "bad_grammar", "no_grammar"), 400)
_PARAMETERS = frozenset(item.name for item in fields(SamplingParams))


class ApiError(Exception):
    """An answer other than 200.

    Attributes:
        status: the HTTP status.
        message: for a person.
        param: the field of the request that is wrong, if it is one.
        code: for a program.
        headers: further headers of the response.
    """

    def __init__(self, status: int, message: str, code: str, *, param: str | None = None, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers or {}

    @property
    def kind(self) -> str:
        """OpenAI's `type`."""
        if self.status == 401:
            return "authentication_error"
        if self.status == 403:
            return "permission_error"
        if self.status == 429:
            return "rate_limit_error"
        return "server_error" if self.status >= 500 else "invalid_request_error"

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def bad_request(message: str, param: str | None = None, code: str = "invalid_value") -> ApiError:
    return ApiError(400, message, code, param=param)


def from_refusal(error: RequestRefused, retry_after: int = 1) -> ApiError:
    """The engine would not take the request."""
    status = STATUS.get(error.code, 400)
    name = error.message.partition(" ")[0]
    param = name if name in _PARAMETERS or name == "prompt" else None
    headers = {"Retry-After": str(retry_after)} if status in (429, 503) else {}
    message = "The engine is not running." if error.code == "engine_stopped" else _sentence(error.message, error.hint)
    return ApiError(status, message, OPENAI_CODES.get(error.code, error.code), param=param, headers=headers)


def from_end(info: ErrorInfo | None) -> ApiError:
    """The request was taken, and ended with an error."""
    if info is not None and info.code in OWN_ENDS:
        return ApiError(OWN_ENDS[info.code], _sentence(info.message, info.hint), OPENAI_CODES.get(info.code, info.code))
    code = info.code if info is not None else "engine_failed"
    return ApiError(500, "The engine failed while it was answering; its log has the details.", code)


def from_engine(error: EngineError) -> ApiError:
    return from_refusal(error) if isinstance(error, RequestRefused) else from_end(error.info())


def cancelled() -> ApiError:
    return ApiError(503, "The request was cancelled at the engine's side.", "cancelled", headers={"Retry-After": "1"})


def _sentence(message: str, hint: str) -> str:
    return f"{message} {hint}".strip()
