"""Who keeps the chats of a soak: what `soak_real.py` tells of each, and a keeper that forgets them all.

The engine knows nothing of chats on disk; `app/bench/soak.py` brings a keeper that does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from engine.types import ErrorInfo, FinishedEvent


class Keeper(Protocol):
    """Keeps chats on disk. Thread-safe. `close` names what is not there as it was said; then come its `figures`."""

    def begin(self) -> str: ...
    def ask(self, chat: str, words: str) -> Any: ...
    def append(self, answer: Any, text: str) -> None: ...
    def finish(self, chat: str, answer: Any, end: FinishedEvent | ErrorInfo) -> None: ...
    def leave(self, chat: str, draft: str) -> None: ...
    def close(self) -> list[str]: ...
    def figures(self) -> dict[str, Any]: ...


class NoKeeper:
    """Chats that are forgotten."""

    def __init__(self, folder: Path) -> None:
        pass

    def begin(self) -> str:
        return ""

    def ask(self, chat: str, words: str) -> None:
        pass

    def append(self, answer: Any, text: str) -> None:
        pass

    def finish(self, chat: str, answer: Any, end: FinishedEvent | ErrorInfo) -> None:
        pass

    def leave(self, chat: str, draft: str) -> None:
        pass

    def close(self) -> list[str]:
        return []

    def figures(self) -> dict[str, Any]:
        return {}
