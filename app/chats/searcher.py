"""Searching while somebody types: one named thread that answers the last question and drops those that were overtaken."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from app.chats.search import Hit

log = logging.getLogger(__name__)

Search = Callable[[str], list[Hit]]
Told = Callable[[str, list[Hit]], None]


class Searcher:
    """Asks `search` on its own thread and hands finds to `told(words, hits)`, from that thread. The thread starts with the first question;
    `close` ends it."""

    def __init__(self, search: Search, told: Told) -> None:
        self._search = search
        self._told = told
        self._wake = threading.Condition()
        self._words: str | None = None
        self._over = False
        self._thread: threading.Thread | None = None

    def ask(self, words: str) -> None:
        with self._wake:
            self._words = words
            if self._thread is None and not self._over:
                self._thread = threading.Thread(target=self._main, name="omnibus-search", daemon=True)
                self._thread.start()
            self._wake.notify()

    def close(self, timeout: float = 2.0) -> None:
        with self._wake:
            self._over = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(timeout)

    def _main(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._words is not None or self._over)
                if self._over:
                    return
                words, self._words = self._words or "", None
            try:
                hits = self._search(words)
            except Exception:
                log.exception("a search failed")
                hits = []
            with self._wake:
                overtaken = self._words is not None or self._over
            if not overtaken:
                self._told(words, hits)
