"""The server's OpenAPI document: what each path takes and answers, for clients that generate code and for tools that test.

Written by hand beside the readers in asks.py, responses.py and tooling.py, whose bounds it repeats; a test compares the paths with the
routes that there are.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from engine.server.asks import MOST_BIASES, MOST_CHOICES, MOST_LOGPROBS, MOST_PROMPTS, MOST_STOPS, MOST_TOKENS
from engine.server.embedding import MOST_INPUTS
from engine.server.strange import HEADER, IDLE
from engine.version import __version__

Schema = dict[str, Any]

ERRORS = {
    400: "What was asked is not sound, or cannot be done; `param` names the field.",
    401: "The bearer token is missing or wrong.",
    403: "Web pages of this origin may not use this server.",
    404: "There is no such model, or this server cannot do that.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    421: "The server does not go by that host name.",
    429: "The queue is full; Retry-After says when to come back.",
    431: "The headers are too large.",
    500: "The engine failed while it was answering.",
    503: "There is no model that could answer now.",
}
AT_THE_DOOR = (401, 403, 421, 431)  # of any request


def _whole(least: int, most: int) -> Schema:
    return {"type": ["integer", "null"], "minimum": least, "maximum": most}


def _number(least: float, most: float) -> Schema:
    return {"type": ["number", "null"], "minimum": least, "maximum": most}


FLAG: Schema = {"type": ["boolean", "null"]}
TEXT: Schema = {"type": "string"}
IDS: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}}
OBJECT: Schema = {"type": "object"}

DRAWING: dict[str, Schema] = {
    "model": {"type": ["string", "null"], "maxLength": 512},
    "temperature": _number(0, 2),
    "top_p": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
    "top_k": _whole(-1, MOST_TOKENS),
    "min_p": _number(0, 1),
    "seed": _whole(-(2**63), 2**63 - 1),
    "presence_penalty": _number(-2, 2),
    "frequency_penalty": _number(-2, 2),
    "repetition_penalty": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 100},
    "stop": {
        "anyOf": [
            {"type": "null"},
            {"type": "string", "minLength": 1, "maxLength": 256},
            {"type": "array", "maxItems": MOST_STOPS, "items": {"type": "string", "minLength": 1, "maxLength": 256}},
        ]
    },
    "stop_token_ids": {**IDS, "maxItems": 256},
    "ignore_eos": FLAG,
    "min_tokens": _whole(0, MOST_TOKENS),
    "logit_bias": {"type": ["object", "null"], "maxProperties": MOST_BIASES, "additionalProperties": _number(-100, 100)},
    "stream": FLAG,
    "user": {"type": ["string", "null"], "maxLength": 512},
    "cache_salt": {"type": ["string", "null"], "maxLength": 256},
    "reproducible": FLAG,
}
SHARED: dict[str, Schema] = {
    **DRAWING,
    "n": _whole(1, MOST_CHOICES),
    "max_tokens": _whole(1, MOST_TOKENS),
    "prompt_logprobs": _whole(0, MOST_LOGPROBS),
    "return_token_ids": FLAG,
    "priority": _whole(-(2**31), 2**31 - 1),
    "stream_options": {"type": ["object", "null"], "properties": {"include_usage": FLAG, "continuous_usage_stats": FLAG}},
    "response_format": {"anyOf": [{"type": "null"}, {"$ref": "#/components/schemas/ResponseFormat"}]},
}
TOOLING: dict[str, Schema] = {
    "tools": {"type": ["array", "null"], "maxItems": 128, "items": OBJECT},
    "tool_choice": {"anyOf": [{"enum": ["none", "auto", "required", None]}, OBJECT]},
    "parallel_tool_calls": FLAG,
}
PART: Schema = {"type": "object", "properties": {"type": {"enum": ["text", "input_text"]}, "text": TEXT}, "required": ["type", "text"]}
CONTENT: Schema = {"anyOf": [TEXT, {"type": "array", "items": PART}, {"type": "null"}]}
MESSAGE: Schema = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": CONTENT,
        "tool_calls": {"type": ["array", "null"], "items": OBJECT},
        "tool_call_id": {"type": ["string", "null"]},
    },
}
MESSAGES: Schema = {"type": "array", "minItems": 1, "items": MESSAGE}
FORMAT: Schema = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"enum": ["text", "json_object", "json_schema"]}, "json_schema": OBJECT},
}
TEXTS: Schema = {"type": "array", "minItems": 1, "maxItems": MOST_PROMPTS, "items": {"type": "string", "minLength": 1}}
PROMPT: Schema = {"anyOf": [{"type": "string", "minLength": 1}, TEXTS, {**IDS, "minItems": 1}]}

CHAT: dict[str, Schema] = {
    **SHARED,
    **TOOLING,
    "messages": MESSAGES,
    "max_completion_tokens": _whole(1, MOST_TOKENS),
    "logprobs": FLAG,
    "top_logprobs": _whole(0, MOST_LOGPROBS),
    "continue_final_message": FLAG,
    "add_generation_prompt": FLAG,
    "chat_template_kwargs": {"type": ["object", "null"]},
}
COMPLETION: dict[str, Schema] = {**SHARED, "prompt": PROMPT, "logprobs": _whole(0, MOST_LOGPROBS), "echo": FLAG}
RESPONSE: dict[str, Schema] = {
    **DRAWING,
    **TOOLING,
    "input": {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "minItems": 1, "items": OBJECT}]},
    "instructions": {"type": ["string", "null"]},
    "max_output_tokens": _whole(1, MOST_TOKENS),
    "previous_response_id": {"type": ["string", "null"], "maxLength": 256},
    "store": FLAG,
    "text": {"type": ["object", "null"]},
    "reasoning": {"type": ["object", "null"]},
    "metadata": {"type": ["object", "null"]},
    "include": {"type": ["array", "null"], "items": TEXT},
    "top_logprobs": _whole(0, MOST_LOGPROBS),
}
EMBEDDINGS: dict[str, Schema] = {
    **{name: DRAWING[name] for name in ("model", "user", "cache_salt")},
    "input": {"anyOf": [{"type": "string", "minLength": 1}, {**TEXTS, "maxItems": MOST_INPUTS}, {**IDS, "minItems": 1}]},
    "encoding_format": {"enum": ["float", "base64", None]},
    "dimensions": _whole(1, MOST_TOKENS),
    "pooling": {"enum": ["mean", "last", None]},
}
VECTORS: Schema = {
    "type": "object",
    "required": ["object", "data", "model", "usage"],
    "properties": {"object": {"const": "list"}, "data": {"type": "array"}, "model": TEXT, "usage": OBJECT},
}
CHOICES: Schema = {
    "type": "object",
    "required": ["id", "object", "created", "model", "choices"],
    "properties": {"id": TEXT, "object": TEXT, "created": {"type": "integer"}, "model": TEXT, "choices": {"type": "array"}},
}
TOKENS: Schema = {
    "type": "object",
    "required": ["count", "max_model_len", "tokens"],
    "properties": {"count": {"type": "integer"}, "max_model_len": {"type": "integer"}, "tokens": IDS},
}


TOKENIZED: dict[str, Schema] = {"model": DRAWING["model"], "prompt": TEXT, "messages": MESSAGES, "tools": TOOLING["tools"]}
DETOKENIZED: dict[str, Schema] = {"model": DRAWING["model"], "tokens": {**IDS, "maxItems": 2**20}}
BODIES: dict[str, dict[str, Schema]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETION,
    "/v1/responses": RESPONSE,
    "/v1/embeddings": EMBEDDINGS,
    "/tokenize": TOKENIZED,
    "/detokenize": DETOKENIZED,
}


def known_at(path: str) -> Set[str]:
    """Fields of a request to `path` that are no strangers, whether they were looked at or not."""
    return BODIES.get(path, {}).keys() | IDLE


def document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    model = {"type": "object", "required": ["id", "object"], "properties": {"id": TEXT, "object": {"const": "model"}}}
    listed = {"type": "object", "required": ["object", "data"], "properties": {"object": {"const": "list"}, "data": {"type": "array"}}}
    answered = {"type": "object", "required": ["id", "object", "status", "output"]}
    text = {"type": "object", "required": ["prompt"], "properties": {"prompt": TEXT}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Omnibus", "version": __version__, "description": "Many chats over one model, on this machine."},
        "security": [{"token": []}],
        "paths": {
            "/health": {"get": {**_get("Whether a model is ready", OBJECT, 503), "security": []}},
            "/version": {"get": _get("The program's version", OBJECT)},
            "/metrics": {"get": _get("Prometheus' text format", None)},
            "/openapi.json": {"get": _get("This document", OBJECT)},
            "/v1/models": {"get": _get("The models served", listed, 503)},
            "/v1/models/{model}": {"get": {**_get("One model", model, 404, 503), "parameters": [_path_parameter("model")]}},
            "/v1/chat/completions": {"post": _post("Answer a chat", CHAT, ["messages"], CHOICES, stream=True)},
            "/v1/completions": {"post": _post("Go on from a text", COMPLETION, ["prompt"], CHOICES, stream=True)},
            "/v1/responses": {"post": _post("Answer with items", RESPONSE, ["input"], answered, stream=True)},
            "/v1/embeddings": {"post": _post("Vectors of texts", EMBEDDINGS, ["input"], VECTORS)},
            "/tokenize": {"post": _post("Token ids of a text or a chat", TOKENIZED, [], TOKENS)},
            "/detokenize": {"post": _post("The text of token ids", DETOKENIZED, ["tokens"], text)},
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _error(), "ResponseFormat": FORMAT},
        },
    }


def _get(summary: str, answer: Schema | None, *errors: int) -> dict[str, Any]:
    content = {"text/plain": {"schema": TEXT}} if answer is None else {"application/json": {"schema": answer}}
    return {"summary": summary, "responses": {"200": {"description": "As asked.", "content": content}, **_errors(*AT_THE_DOOR, *errors)}}


def _post(summary: str, fields: dict[str, Schema], required: list[str], answer: Schema, stream: bool = False) -> dict[str, Any]:
    body = {"type": "object", "properties": fields, "required": required}
    content: dict[str, Any] = {"application/json": {"schema": answer}}
    if stream:
        content["text/event-stream"] = {}  # one JSON object an event, and [DONE] after a chat's last
    ignored = {"description": "Names of fields that this server does not know and ignored; absent where there are none.", "schema": TEXT}
    answered = {"description": "As asked.", "content": content, "headers": {HEADER.decode(): ignored}}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": answered, **_errors(*ERRORS)},
    }


def _errors(*statuses: int) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {str(status): {"description": ERRORS[status], "content": content} for status in statuses}


def _error() -> Schema:
    nullable = {"type": ["string", "null"]}
    inner = {"message": TEXT, "type": TEXT, "param": nullable, "code": nullable}
    error = {"type": "object", "required": [*inner], "properties": inner}
    return {"type": "object", "required": ["error"], "properties": {"error": error}}


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": TEXT}
