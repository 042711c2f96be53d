"""Words for models. Every string goes through Qt's translation; names of models, devices and files stay as they are."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication

from app.numbers import explained, number, said
from app.translations import begun, in_words, later
from engine import EngineState, ServerSource, Snapshot, TransferProgress, TransferState

translate = QCoreApplication.translate

BADGES = {"yes": later("Models", "Fits"), "tight": later("Models", "Tight"), "no": later("Models", "Does not fit")}


def badge(verdict: str) -> str:
    """How a model fits, in a word or three."""
    return translate("Models", BADGES[verdict])


def size(count: int) -> str:
    return number(count / 1e9, ".1f") + " GB" if count >= 1e9 else number(count / 1e6, ".0f") + " MB"


def short_name(source: str) -> str:
    """A model's name out of what the engine is told to load. A server's address is its host, and the model if it names one."""
    if source.startswith(("http://", "https://")):
        server = ServerSource.read(source)
        model = server.model
        host = server.address.partition("://")[2].partition("/")[0]
        return translate("Models", "{0} on {1}").format(model, host) if model else translate("Models", "Server {0}").format(host)
    name = source.replace("\\", "/").rstrip("/").rpartition("/")[2]
    name = name[:-5] if name.lower().endswith(".gguf") else name
    return translate("Models", "Starter model") if source == "starter" else name.replace("--", "/", 1)


def server_words(source: str) -> str:
    """The line under a server's name."""
    server = ServerSource.read(source)
    parts = [server.address + (f"#{server.model}" if server.model else "")]
    parts += [translate("Models", "answers come whole")] if server.whole else []
    parts += [translate("Models", "metrics at {0}").format(server.metrics)] if server.metrics else []
    return " · ".join(parts)


def present(snapshot: Snapshot) -> str:
    """The line about the loaded model."""
    model = snapshot.model
    match snapshot.state:
        case EngineState.LOADING | EngineState.STARTING:
            return f"{begun(in_words(model.stage or 'starting'))}, {number(model.progress, '.0%')}"
        case EngineState.EMPTY:
            return translate("Models", "Not loaded. The next message loads it.")
        case EngineState.FAILED:
            return said(snapshot.error.message) if snapshot.error else translate("Models", "It could not be loaded.")
        case EngineState.CLOSED:
            return translate("Models", "The engine is closed.")
    parts = [
        model.device,
        model.dtype,
        translate("Models", "{0} of weights").format(size(model.weight_bytes)) if model.weight_bytes else "",
    ]
    small = translate("Models", "{0} of 8-bit cache for {1} seats")
    cache = small if model.kv_dtype == "8-bit" else translate("Models", "{0} of cache for {1} seats")
    parts += [cache.format(size(model.kv_bytes), len(snapshot.seats)) if model.kv_bytes else ""]
    parts += [translate("Models", "context {0}").format(number(model.context, ",")) if model.context else ""]
    return "  ·  ".join(part for part in parts if part)


def transfer(progress: TransferProgress) -> str:
    """How a download is."""
    sizes = translate("Models", "{0} of {1}").format(size(progress.done), size(progress.total))
    match progress.state:
        case TransferState.CHECKING:
            return translate("Models", "Checking what arrived")
        case TransferState.PAUSED:
            return translate("Models", "Paused at {0}").format(sizes)
        case TransferState.DONE:
            return translate("Models", "{0}, complete and checked").format(size(progress.total))
        case TransferState.FAILED:
            return explained(progress.error) if progress.error else translate("Models", "It failed.")
        case TransferState.CANCELLED:
            return translate("Models", "Cancelled; nothing was kept")
    return f"{sizes}  ·  {said(progress.note)}" if progress.note else sizes
