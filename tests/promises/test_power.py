"""What you can rely on, part three: a power cut. Every moment around a sync is tried, each with several orders of what was on its way."""

from __future__ import annotations

import random
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from app.chats.book import ChatBook
from app.chats.schema import open_database
from app.chats.store import ChatStore
from tests.app.chats.power_vfs import Happened, PowerVFS, after_cut
from tests.app.chats.test_store import as_stored, contains, life, picture

ORDERS = 8
ROUNDS = 3  # of a store's life, each opened and closed


class Lived:
    """What a store did to its files, and what it had acknowledged by then: (length of `happened`, picture)."""

    def __init__(self, happened: list[Happened], acknowledged: list[tuple[int, list[Any]]]) -> None:
        self.happened, self.acknowledged = happened, acknowledged

    def moments(self) -> list[int]:
        """Just before each sync, when the most is on its way, and just after it."""
        places = [place for place, one in enumerate(self.happened) if one.what == "sync"]
        return sorted({moment for place in places for moment in (place, place + 1)})

    def promised(self, moment: int) -> list[Any]:
        return next((told for when, told in reversed(self.acknowledged) if when <= moment), [])


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    vfs = PowerVFS(f"power-{uuid.uuid4().hex}")
    path = tmp_path_factory.mktemp("power") / "chats.db"
    told: list[tuple[int, list[Any]]] = []

    class Acknowledged(list[Any]):
        def __setitem__(self, place: Any, value: Any) -> None:
            told.append((len(vfs.happened), value[0]))

    def often(*given: Any) -> apsw.Connection:
        connection = open_database(*given)
        connection.pragma("wal_autocheckpoint", 12)  # pages; so that cuts fall into checkpoints, too
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.chats.store.GROUP_S", 0.0)
        patch.setattr("app.chats.store.open_database", often)
        for number in range(ROUNDS):
            store = ChatStore(path, vfs=vfs.name_used)
            book = ChatBook(store)
            patch.setattr(book, "delete", lambda chat_id: None)  # so that what was promised only ever grows
            life(book, random.Random(number), Acknowledged())
            assert store.close(60)
            told.append((len(vfs.happened), picture(as_stored(book))))
    yield Lived(vfs.happened, told)
    vfs.unregister()


def found_after(lived: Lived, moment: int, rnd: random.Random, place: Path) -> list[Any]:
    """The chats that the next start finds. Raises when the file is not sound."""
    place.mkdir()
    for name, data in after_cut(lived.happened[:moment], rnd).items():
        (place / name).write_bytes(data)
    store = ChatStore(place / "chats.db")
    found = picture(ChatBook(store).listed())
    assert store.close(60) and store.repaired == "", "nothing had to be repaired"
    connection = apsw.Connection(str(place / "chats.db"))
    assert connection.pragma("integrity_check") == "ok"
    connection.close()
    shutil.rmtree(place)
    return found


@pytest.mark.parametrize("order", range(ORDERS))
def test_r02_a_power_cut_at_any_sync_loses_nothing_that_was_acknowledged(lived: Lived, order: int, tmp_path: Path) -> None:
    moments = lived.moments()
    assert len(moments) > 80 and len(lived.acknowledged) > 20
    for number, moment in enumerate(moments if order == 0 else moments[order % 3 :: 3]):
        rnd = random.Random(1000 * order + number)
        assert contains(found_after(lived, moment, rnd, tmp_path / str(number)), lived.promised(moment))


def test_r02_would_notice_a_store_that_does_not_sync(lived: Lived, tmp_path: Path) -> None:
    """The same life without the last third of its syncs: something acknowledged must be missing then."""
    moment = len(lived.happened)
    cut = moment * 2 // 3
    careless = [one for place, one in enumerate(lived.happened) if place < cut or one.what != "sync"]
    lost = 0
    for number in range(4):
        try:
            found = found_after(Lived(careless, []), len(careless), random.Random(number), tmp_path / str(number))
            lost += not contains(found, lived.promised(moment))
        except (AssertionError, apsw.Error, ValueError):  # chats that are missing, or a file that is not sound
            lost += 1
    assert lost
