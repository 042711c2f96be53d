"""The window, the server and the tokenizer of the other rooms' tests."""

from __future__ import annotations

from tests.app.conftest import make_window, no_leftovers
from tests.engine.server.conftest import client, engine, server, workshop

__all__ = ["client", "engine", "make_window", "no_leftovers", "server", "workshop"]
