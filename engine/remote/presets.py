"""The servers that a person is likely to have: where they listen by default, and what sets them apart."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from engine.types import EngineError


@dataclass(frozen=True, slots=True)
class Preset:
    """`url` is where a fresh installation listens; `hint` is one line for the person who adds it."""

    name: str
    url: str
    hint: str


PRESETS = (
    Preset("vLLM", "http://127.0.0.1:8000/v1", "vllm serve MODEL --api-key KEY"),
    Preset("SGLang", "http://127.0.0.1:30000/v1", "python -m sglang.launch_server --model-path MODEL --enable-metrics"),
    Preset("llama.cpp", "http://127.0.0.1:8080/v1", "llama-server -m MODEL.gguf --metrics --api-key KEY"),
    Preset("TensorRT-LLM", "http://127.0.0.1:8000/v1", "trtllm-serve MODEL"),
    Preset("Ray Serve LLM", "http://127.0.0.1:8000/v1", "its metrics are on Ray's own port; your own requests are shown"),
    Preset("Ollama", "http://127.0.0.1:11434/v1", "it needs no key and tells no metrics"),
    Preset("LM Studio", "http://127.0.0.1:1234/v1", "switch its server on; it tells no metrics"),
    Preset("Omnibus", "http://127.0.0.1:8420/v1", "omnibus serve on another machine, through a tunnel"),
)


WHOLE = "whole"


def clean_url(text: str) -> str:
    """The address of an API, with its path, without a slash at the end. A bare host gets http:// and /v1.

    Raises:
        EngineError: "bad_url" for what is no address, or carries a name and password.
    """
    text = text.strip()
    parts = urlsplit(text if "://" in text else f"http://{text}")
    try:
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        sound = False
    if not sound or "@" in parts.netloc or any(sign.isspace() for sign in text):
        raise EngineError("bad_url", f"{text!r} is no address of a server.", "Give one like http://127.0.0.1:8000/v1.")
    path = parts.path.rstrip("/")
    for tail in ("/chat/completions", "/completions", "/models"):
        path = path.removesuffix(tail)
    return urlunsplit((parts.scheme, parts.netloc, path or "/v1", "", ""))


def split_source(source: str) -> tuple[str, str, bool]:
    """(address, model or "", whether answers are wanted whole) of a server as it is kept: ADDRESS[#MODEL[#whole]]."""
    address, _, rest = source.partition("#")
    model, _, how = rest.partition("#")
    return address, model, how == WHOLE


def join_source(address: str, model: str = "", whole: bool = False) -> str:
    return f"{address}#{model}#{WHOLE}" if whole else f"{address}#{model}" if model else address


def origin(url: str) -> str:
    """Scheme, host and port of an address."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
