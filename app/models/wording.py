"""Words for models. Qt-free."""

from __future__ import annotations

from engine import EngineState, ServerSource, Snapshot, TransferProgress, TransferState

BADGES = {"yes": "Fits", "tight": "Tight", "no": "Does not fit"}


def size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def short_name(source: str) -> str:
    """A model's name out of what the engine is told to load. A server's address is its host, and the model if it names one."""
    if source.startswith(("http://", "https://")):
        server = ServerSource.read(source)
        model = server.model
        host = server.address.partition("://")[2].partition("/")[0]
        return f"{model} on {host}" if model else f"Server {host}"
    name = source.replace("\\", "/").rstrip("/").rpartition("/")[2]
    name = name[:-5] if name.lower().endswith(".gguf") else name
    return "Starter model" if source == "starter" else name.replace("--", "/", 1)


def server_words(source: str) -> str:
    """The line under a server's name."""
    server = ServerSource.read(source)
    parts = [server.address + (f"#{server.model}" if server.model else "")]
    parts += ["answers come whole"] if server.whole else []
    parts += [f"metrics at {server.metrics}"] if server.metrics else []
    return " · ".join(parts)


def present(snapshot: Snapshot) -> str:
    """The line about the loaded model."""
    model = snapshot.model
    match snapshot.state:
        case EngineState.LOADING | EngineState.STARTING:
            return f"{(model.stage or 'starting').capitalize()}, {model.progress:.0%}"
        case EngineState.EMPTY:
            return "Not loaded. The next message loads it."
        case EngineState.FAILED:
            return snapshot.error.message if snapshot.error else "It could not be loaded."
        case EngineState.CLOSED:
            return "The engine is closed."
    parts = [model.device, model.dtype, f"{size(model.weight_bytes)} of weights" if model.weight_bytes else ""]
    kept = f"{model.kv_dtype} cache" if model.kv_dtype == "8-bit" else "cache"
    parts += [f"{size(model.kv_bytes)} of {kept} for {len(snapshot.seats)} seats" if model.kv_bytes else ""]
    parts += [f"context {model.context:,}" if model.context else ""]
    return "  ·  ".join(part for part in parts if part)


def transfer(progress: TransferProgress) -> str:
    """How a download is."""
    sizes = f"{size(progress.done)} of {size(progress.total)}"
    match progress.state:
        case TransferState.CHECKING:
            return "Checking what arrived"
        case TransferState.PAUSED:
            return f"Paused at {sizes}"
        case TransferState.DONE:
            return f"{size(progress.total)}, complete and checked"
        case TransferState.FAILED:
            return f"{progress.error.message} {progress.error.hint}".strip() if progress.error else "It failed."
        case TransferState.CANCELLED:
            return "Cancelled; nothing was kept"
    return f"{sizes}  ·  {progress.note}" if progress.note else sizes
