"""Fields of requests that nobody here knows: ignored, as OpenAI's clients expect, and named to the client and in the log.

A misspelt field would else be without effect and without a word. Owns what of a stranger's names may stand in a header and a log.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from urllib.parse import quote

log = logging.getLogger(__name__)

HEADER = b"x-omnibus-ignored"
MOST_NAMES, LONGEST_NAME = 16, 64
MOST_NOTED = 256  # sets of names that the log has told of

# OpenAI's own fields that mean something to its services and nothing to an answer: to leave them alone is to honour them.
IDLE = frozenset(
    ("metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options")
)


class Strange:
    """Tells of each set of names once in the log, however many requests come with them. Safe from several threads."""

    def __init__(self) -> None:
        self._noted: set[str] = set()
        self._lock = threading.Lock()

    def note(self, names: Sequence[str]) -> str:
        """The names for a header: ASCII without spaces and commas, at most `MOST_NAMES` of them."""
        told = ", ".join(quote(name[:LONGEST_NAME], safe="[]", errors="replace") or "(empty)" for name in names[:MOST_NAMES])
        with self._lock:
            fresh = told not in self._noted and len(self._noted) < MOST_NOTED
            if fresh:
                self._noted.add(told)
        if fresh:
            log.warning("a client sends fields that this server does not know and ignores: %s", told)
        return told
