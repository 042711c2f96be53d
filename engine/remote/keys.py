"""Keys of remote servers: in the system's keyring, or, where there is none, for this session only. Never in a file, log or error.

Owns the service name under which keys are kept. The environment variable OMNIBUS_REMOTE_KEY goes before what is kept.
"""

from __future__ import annotations

import logging
import os

SERVICE = "omnibus"
VARIABLE = "OMNIBUS_REMOTE_KEY"

log = logging.getLogger(__name__)
_session: dict[str, str] = {}


def find(url: str) -> str | None:
    """The key of a server, None if there is none."""
    given = os.environ.get(VARIABLE) or _session.get(url)
    if given:
        return given
    try:
        import keyring

        return keyring.get_password(SERVICE, url)
    except Exception as error:  # each keyring fails in its own way, and none of them may stop a chat
        log.info("no keyring: %s", type(error).__name__)
        return None


def keep(url: str, key: str) -> str:
    """Keep a key ("" forgets it). Returns where it is now, for a person: the keyring, or this session alone."""
    _session.pop(url, None)
    try:
        import keyring

        if key:
            keyring.set_password(SERVICE, url, key)
        elif keyring.get_password(SERVICE, url) is not None:
            keyring.delete_password(SERVICE, url)
        return "The key is in the system's keyring."
    except Exception as error:
        log.info("no keyring: %s", type(error).__name__)
        if key:
            _session[url] = key
        return "This system has no keyring that works; the key is kept until the program ends."
