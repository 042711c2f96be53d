"""What goes over the wire: the request's body, the stream of events that comes back, and the words for what goes wrong.

Owns the reading of server-sent events and of OpenAI's errors, in the forms that vLLM, SGLang, llama.cpp, TensorRT-LLM and the hosted
services send them. Knows no threads and no retries. A key never appears in an error.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import AsyncIterator, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from engine.remote.reading import body_of_answer, event_texts
from engine.types import Chat, EngineError, Message, SamplingParams, Sentence, Tool

MOST_REFUSAL = 64 << 10  # bytes of an error that are read

MOST_WHOLE = 64 << 20  # bytes of one answer that is not streamed
_OVERFLOW = re.compile(
    r"context.{0,20}(length|window|size)|maximum.{0,20}(length|tokens)|too (long|many tokens)|exceed.{0,30}(context|max_)", re.I
)


class Later(Exception):
    """The server asks to come again. `seconds` is what it says, 0 if it says nothing; `words` is why."""

    def __init__(self, words: str, seconds: float = 0.0) -> None:
        super().__init__(words)
        self.words = words
        self.seconds = seconds


def body_of(model: str, prompt: Any, params: SamplingParams, continue_final: bool, whole: bool = False) -> dict[str, Any]:
    """A chat completion, streamed unless it is wanted `whole`. What OpenAI's own API has not is sent only where it is not the default."""
    chat = prompt if isinstance(prompt, Chat) else None
    messages: Sequence[Message] = chat.messages if chat else prompt
    body: dict[str, Any] = {
        "model": model,
        "messages": [_message(message) for message in messages],
        **({"stream": False} if whole else {"stream": True, "stream_options": {"include_usage": True}}),
        "temperature": params.temperature,
        "top_p": params.top_p,
    }
    plain = SamplingParams()
    for name in ("max_tokens", "seed", "frequency_penalty", "presence_penalty", "top_k", "min_p", "repetition_penalty"):
        value = getattr(params, name)
        if value is not None and value != getattr(plain, name):
            body[name] = value
    for name in ("min_tokens", "ignore_eos"):
        if getattr(params, name):
            body[name] = getattr(params, name)
    if params.stop:
        body["stop"] = list(params.stop)
    if params.stop_token_ids:
        body["stop_token_ids"] = list(params.stop_token_ids)
    if chat is not None and chat.tools:
        body["tools"] = [_tool(tool) for tool in chat.tools]
    if chat is not None and chat.options:
        body["chat_template_kwargs"] = dict(chat.options)
    if params.logit_bias:
        body["logit_bias"] = {str(token_id): bias for token_id, bias in params.logit_bias}
    if continue_final:
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    return body


def _tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": json.loads(tool.parameters)}
    return {"type": "function", "function": function}


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _message(message: Message) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        made["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}} for call in message.tool_calls
        ]
    if message.tool_call_id:
        made["tool_call_id"] = message.tool_call_id
    return made


async def events(pieces: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects in a stream's bytes, to its [DONE] or its end. Comments and other fields are passed over.

    Raises:
        EngineError: "remote_nonsense" for what is no event, or the error that the server sent within its stream.
    """
    async for text in event_texts(pieces):
        if text.strip() == "[DONE]":
            return
        yield _event(text)


async def whole(answer: httpx2.Response) -> dict[str, Any]:
    """The JSON object of an answer that was not streamed. Raises EngineError as `events` does."""
    raw = bytearray()
    async for piece in answer.aiter_bytes():
        raw += piece
        if len(raw) > MOST_WHOLE:
            raise nonsense(f"an answer of more than {MOST_WHOLE:,} bytes")
    return _event(raw.decode("utf-8", "replace"))


def _event(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise nonsense(text[:80]) from error
    if not isinstance(content, dict):
        raise nonsense(text[:80])
    if content.get("error"):
        raise fault(_code(content), content)
    return content


def _code(content: dict[str, Any]) -> int:
    error = content["error"]
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) else 500


def words_of(content: Any) -> str:
    """What a server's error says, in its own words, cut to a sentence's length."""
    error = content.get("error", content) if isinstance(content, dict) else content
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error.get("msg") or ""
    return " ".join(str(error).split())[:300]


def _kinds(content: Any) -> str:
    """What a server's error calls itself: its code and type, in words."""
    error = content.get("error") if isinstance(content, dict) else None
    return f"{error.get('code')} {error.get('type')}".replace("_", " ") if isinstance(error, dict) else ""


def fault(status: int, content: Any, model: str = "", wait: float = 0.0) -> EngineError:
    """A server's refusal as one of our errors. Raises Later for what may be tried again, with the `wait` in seconds that it asks for."""
    words = words_of(content)
    said = f": {words.rstrip('.')}" if words else ""
    if status in (408, 429, 502, 503, 504):
        raise Later(f"the server is busy (status {status}){said}", wait)
    if status == 401:
        return EngineError("remote_key", Sentence("The server does not accept the key{0}.", said), "Give the key that its owner gave you.")
    if status == 403:
        return EngineError("remote_forbidden", Sentence("The server does not allow this with the present key{0}.", said), "Ask its owner.")
    if status == 404:
        what = f"the model {model!r}" if model else "what was asked for"
        return EngineError(
            "remote_model", Sentence("The server does not know {0}{1}.", what, said), "Check the address and the model's name."
        )
    if status in (400, 413, 422) and (_OVERFLOW.search(words) or _OVERFLOW.search(_kinds(content))):
        return EngineError(
            "prompt_too_long", Sentence("The chat is too long for the server's context{0}.", said), "Shorten it, or start a new chat."
        )
    if 300 <= status < 400:
        sentence = Sentence("The server sends its callers elsewhere (status {0}), where no chat and no key is sent.", status)
        return EngineError("remote_moved", sentence, "Give the address that it really has.")
    if status in (400, 422):
        return EngineError("remote_refused", Sentence("The server refused the request{0}.", said), "Change the chat's parameters.")
    return EngineError(
        "remote_failed", Sentence("The server failed with status {0}{1}.", status, said), "Try again; its log has the details."
    )


async def refusal(answer: httpx2.Response, model: str = "") -> EngineError:
    """The error in a response whose status is not 200. Raises Later as `fault`."""
    raw = await body_of_answer(answer, MOST_REFUSAL)
    try:
        content: Any = json.loads(raw)
    except (ValueError, RecursionError):
        text = raw.decode("utf-8", "replace")
        content = "" if text.lstrip().startswith("<") else text
    return fault(answer.status_code, content, model, seconds_of(answer.headers.get("Retry-After", ""), answer.headers.get("Date", "")))


def seconds_of(retry_after: str, date: str) -> float:
    """How long to wait by a Retry-After header: seconds, or a time, which is counted from the server's own `date`. 0 is not told."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - parsedate_to_datetime(date)).total_seconds())
    except (TypeError, ValueError):
        return 0.0


def lost(error: Exception, host: str) -> EngineError:
    """What a broken connection means to a person."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError) or "certificate" in str(cause).lower() or "ssl" in type(cause).__name__.lower():
            reason = " ".join(str(cause).split())[:160].rstrip(".")
            sentence = Sentence("The connection to {0} cannot be trusted: {1}.", host, reason)
            return EngineError("remote_tls", sentence, "Check the address (http or https), the date, and the server's certificate.")
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx2.TimeoutException):
        return EngineError("remote_silent", Sentence("{0} does not answer.", host), "See whether the server still runs.")
    if isinstance(error, httpx2.ConnectError):
        return EngineError(
            "remote_unreachable", Sentence("{0} cannot be reached.", host), "Start the server, or check the address and the network."
        )
    return EngineError("remote_cut", Sentence("The connection to {0} broke off.", host), "Send the message again.")


def nonsense(what: str) -> EngineError:
    sentence = Sentence("The server answered with something that is no chat completion: {0!r}.", what)
    return EngineError("remote_nonsense", sentence, "Check that the address ends where its OpenAI-compatible API begins, often in /v1.")
