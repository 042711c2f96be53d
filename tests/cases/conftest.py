"""Faults that users met in programs like ours: `@pytest.mark.case("TXT-01")` puts the fault's id into the id of its test."""

from __future__ import annotations

import pytest

from tests.app.conftest import make_window, no_leftovers
from tests.engine.server.conftest import client, engine, server, workshop
from tests.engine.text.conftest import codec, reference, starter_folder

__all__ = ["client", "codec", "engine", "make_window", "no_leftovers", "reference", "server", "starter_folder", "workshop"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("case")
    if mark is not None:
        metafunc.fixturenames.append("case_id")
        metafunc.parametrize("case_id", ["+".join(mark.args)])
