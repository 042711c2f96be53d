"""The window, the server and the tokenizer of the other rooms' tests; files lie in memory."""

from __future__ import annotations

from tests.app.chats.conftest import tmp_path
from tests.app.conftest import make_window, no_leftovers
from tests.engine.server.conftest import client, engine, server, workshop

__all__ = ["client", "engine", "make_window", "no_leftovers", "server", "tmp_path", "workshop"]
