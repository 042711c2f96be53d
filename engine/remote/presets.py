"""The servers that a person is likely to have: where they listen by default, and what sets them apart."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from engine.types import EngineError, Sentence


@dataclass(frozen=True, slots=True)
class Preset:
    """`url` is where a fresh installation listens; `hint` is one line for the person who adds it; `metrics` is what an address of its
    metrics looks like where they lie apart from its API."""

    name: str
    url: str
    hint: str
    metrics: str = ""


PRESETS = (
    Preset("vLLM", "http://127.0.0.1:8000/v1", "vllm serve MODEL --api-key KEY"),
    Preset("SGLang", "http://127.0.0.1:30000/v1", "python -m sglang.launch_server --model-path MODEL --enable-metrics"),
    Preset("llama.cpp", "http://127.0.0.1:8080/v1", "llama-server -m MODEL.gguf --metrics --api-key KEY"),
    Preset("TensorRT-LLM", "http://127.0.0.1:8000/v1", "trtllm-serve MODEL, with return_perf_metrics: true in its --config"),
    Preset("Ray Serve LLM", "http://127.0.0.1:8000/v1", "its metrics are where ray start --metrics-export-port says", "HOST:8080/metrics"),
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
        raise EngineError("bad_url", Sentence("{0!r} is no address of a server.", text), "Give one like http://127.0.0.1:8000/v1.")
    path = parts.path.rstrip("/")
    for tail in ("/chat/completions", "/completions", "/models"):
        path = path.removesuffix(tail)
    return urlunsplit((parts.scheme, parts.netloc, path or "/v1", "", ""))


def clean_metrics(text: str) -> str:
    """The address of a page of metrics; "" is the server's own. What has no path gets /metrics.

    Raises:
        EngineError: "bad_url" as `clean_url`.
    """
    text = text.strip()
    if not text:
        return ""
    try:
        clean_url(text)
    except EngineError as error:
        raise EngineError("bad_url", error.message, "Give the page with the metrics, like http://127.0.0.1:8080/metrics.") from None
    parts = urlsplit(text if "://" in text else f"http://{text}")
    return urlunsplit((parts.scheme, parts.netloc, parts.path if parts.path.strip("/") else "/metrics", parts.query, ""))


@dataclass(frozen=True, slots=True)
class Source:
    """A server as it is kept, as one text: ADDRESS[#MODEL[#whole[#METRICS]]], what is empty at the end left out.

    Attributes:
        model: "" for the first that it offers.
        whole: answers are not streamed.
        metrics: the address of its metrics, "" where they lie beside its API.
    """

    address: str
    model: str = ""
    whole: bool = False
    metrics: str = ""

    @classmethod
    def read(cls, text: str) -> Source:
        address, model, how, metrics = (text.split("#", 3) + [""] * 3)[:4]
        return cls(address, model, how == WHOLE, metrics)

    def __str__(self) -> str:
        return "#".join((self.address, self.model, WHOLE if self.whole else "", self.metrics)).rstrip("#")


def origin(url: str) -> str:
    """Scheme, host and port of an address."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
