"""What a window needs to know and do about models, on one thread of its own: the list with its fits, the hub, downloads.

Owns that thread and the downloads under way. Every question is answered by a call of `hear` from that thread (or a download's), with one of
the frozen answers below; the window brings them over to its own. Never blocks its caller, never loads a model.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from engine.catalog.fit import Fit, Machine
from engine.catalog.hub import Hub, HubModel, Offer
from engine.catalog.progress import Progress
from engine.catalog.registry import Entry, Kind, Registry, hub_cache
from engine.catalog.transfer import Download
from engine.types import EngineError, ErrorInfo

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listed:
    """The models on this machine, and where downloads go."""

    entries: tuple[Entry, ...]
    folder: str
    servers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fitted:
    """How one model fits; or why that, and so the model itself, is not to be had."""

    source: str
    fit: Fit | None
    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True)
class Found:
    words: str
    models: tuple[HubModel, ...]


@dataclass(frozen=True, slots=True)
class Offered:
    repository: str
    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """A download has got on."""

    name: str
    progress: Progress


@dataclass(frozen=True, slots=True)
class Added:
    """A server is in the list, under this source."""

    source: str


@dataclass(frozen=True, slots=True)
class Said:
    """Something was done, or could not be."""

    words: str
    failed: bool = False


Answer = Added | Listed | Fitted | Found | Offered | Moved | Said


class ModelDesk:
    """Ask; the answers come to `hear`.

    Args:
        machine: how much room there is; asked once for each list.
        hub: made at the first question that needs the network.
    """

    def __init__(
        self, hear: Callable[[Answer], None], *, machine: Callable[[], Machine] | None = None, hub: Callable[[], Hub] = Hub
    ) -> None:
        self._hear = hear
        self._machine = machine or _this_machine
        self._make_hub = hub
        self._hub: Hub | None = None
        self._downloads: dict[str, Download] = {}
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._latest = 0  # a newer list makes the fits of an older one pointless
        self._thread: threading.Thread | None = None
        self._closed = False

    # ------------------------------------------------------------------------------------------------------- questions

    def refresh(self, held: int = 0) -> None:
        """List the models, then say of each how it fits. `held` bytes belong to the model that another one would take the place of."""
        self._latest += 1
        number = self._latest
        self._ask(lambda: self._list(number, held))

    def add(self, path: str) -> None:
        self._ask(lambda: self._add(Path(path)))

    def import_hub_cache(self) -> None:
        """Add what lies in Hugging Face's own cache."""
        self._ask(lambda: self._add(hub_cache()))

    def remove(self, name: str) -> None:
        self._ask(lambda: self._remove(name))

    def set_folder(self, folder: str) -> None:
        self._ask(lambda: self._set_folder(Path(folder)))

    def add_server(self, address: str, key: str, model: str = "", whole: bool = False, metrics: str = "") -> None:
        """Remember a server, and its key in the keyring. `metrics` is where its metrics lie, "" for beside its API."""
        self._ask(lambda: self._add_server(address, key, model, whole, metrics))

    def remove_server(self, address: str) -> None:
        self._ask(lambda: self._remove_server(address))

    def search(self, words: str) -> None:
        self._ask(lambda: self._hear(Found(words, tuple(self._shop().search(words)))))

    def offers(self, repository: str) -> None:
        self._ask(lambda: self._hear(Offered(repository, tuple(self._shop().offers(repository)))))

    def download(self, offer: Offer) -> None:
        """Begin, or go on with, a download. Its name is the offer's repository and quality."""
        self._ask(lambda: self._download(offer))

    def pause(self, name: str) -> None:
        if name in self._downloads:
            self._downloads[name].pause()

    def go_on(self, name: str) -> None:
        if name in self._downloads:
            self._downloads[name].start()

    def cancel(self, name: str) -> None:
        if name in self._downloads:
            self._downloads[name].cancel()

    @staticmethod
    def name_of(offer: Offer) -> str:
        return f"{offer.repository} · {offer.word}"

    def close(self, timeout: float = 2.0) -> bool:
        """Pause the downloads and end the thread; whether all ended in time. Nothing is heard any more."""
        self._closed = True
        for job in self._downloads.values():
            job.pause()
        self._jobs.put(None)
        ended = True
        if self._thread is not None:
            self._thread.join(timeout)
            ended = not self._thread.is_alive()
        for job in self._downloads.values():
            job.join(timeout)
        return ended

    # ---------------------------------------------------------------------------------------------------------- thread

    def _ask(self, job: Callable[[], None]) -> None:
        if self._closed:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, name="model-desk", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def _main(self) -> None:
        while (job := self._jobs.get()) is not None and not self._closed:
            try:
                job()
            except EngineError as error:
                self._tell(Said(f"{error.message} {error.hint}".strip(), failed=True))
            except Exception as error:
                log.exception("the model desk stumbled")
                self._tell(Said(f"That did not work: {error}", failed=True))

    def _tell(self, answer: Answer) -> None:
        if not self._closed:
            self._hear(answer)

    def _list(self, number: int, held: int) -> None:
        registry = Registry()
        entries = tuple(registry.entries())
        self._tell(Listed(entries, str(registry.folder), registry.servers))
        machine: Machine | None = None
        for entry in entries:
            if self._closed or number != self._latest:
                return
            if entry.ready:
                machine = machine or self._room(held)
                self._tell(self._fit(entry, machine))

    def _room(self, held: int) -> Machine:
        machine = self._machine()
        return replace(machine, free=machine.free + held)

    @staticmethod
    def _fit(entry: Entry, machine: Machine) -> Fitted:
        from engine.catalog import starter
        from engine.catalog.fit import fit
        from engine.model.loading import find_files

        try:
            path = starter.folder() if entry.kind is Kind.STARTER else find_files(entry.source)[0]
            return Fitted(entry.source, fit(path, machine))
        except EngineError as error:
            return Fitted(entry.source, None, error.info())

    def _add(self, path: Path) -> None:
        brought = Registry().add(path)
        words = f"{brought[0].name} is in the list." if len(brought) == 1 else f"{len(brought)} models are in the list."
        self._tell(Said(words))

    def _add_server(self, address: str, key: str, model: str, whole: bool, metrics: str) -> None:
        from engine.remote import keys
        from engine.remote.presets import Source, clean_metrics, clean_url

        url = clean_url(address)
        source = str(Source(url, model, whole, clean_metrics(metrics)))
        kept = keys.keep(url, key) if key else ""
        Registry().add_server(source)
        self._tell(Added(source))
        self._tell(Said(f"{url} is in the list. {kept}".strip()))

    def _remove_server(self, address: str) -> None:
        from engine.remote import keys

        Registry().remove_server(address)
        url = address.partition("#")[0]
        if not any(item.partition("#")[0] == url for item in Registry().servers):
            keys.keep(url, "")
        self._tell(Said(f"{url} is no longer in the list, and its key is forgotten."))

    def _remove(self, name: str) -> None:
        from engine.catalog.folders import megabytes

        registry = Registry()
        entry = registry.find(name)
        freed = registry.remove(name)
        gone = f"was deleted; {megabytes(freed)} became free" if entry.owned else "is no longer in the list; its files are where they were"
        self._tell(Said(f"{entry.name} {gone}."))

    def _set_folder(self, folder: Path) -> None:
        Registry().set_folder(folder)
        self._tell(Said(f"Downloads go to {folder}."))

    def _shop(self) -> Hub:
        if self._hub is None:
            self._hub = self._make_hub()
        return self._hub

    def _download(self, offer: Offer) -> None:
        name = self.name_of(offer)
        if name not in self._downloads:
            shop = self._shop()
            self._downloads[name] = Download(
                offer,
                Registry().folder,
                endpoint=shop.endpoint,
                token=shop.token,
                on_change=lambda progress: self._tell(Moved(name, progress)),
            )
        self._downloads[name].start()


def _this_machine() -> Machine:
    from engine.catalog.fit import this_machine

    return this_machine()
