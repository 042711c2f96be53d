"""Fetches a model's files: in pieces side by side, resumable after anything, checked by hash, then put in place in one stroke.

Owns the hidden folder of what is still coming, beside the place where the model will lie, and one named thread while it works. A piece
counts as there only when its note says so; a file only when its hash is the hub's; a model only when its folder has its name. Must never
show a half model, nor write outside its folder. Times come from `wait`, so that tests need none.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import queue
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2

from engine.catalog import hub
from engine.catalog.folders import need_space, told
from engine.catalog.hub import HubFile, Offer
from engine.catalog.progress import Progress, State
from engine.types import ErrorInfo, ModelError, Sentence

log = logging.getLogger(__name__)

PIECE = 16 << 20  # bytes fetched by one request
WORKERS = 4
TRIES = 6  # in a row without a byte in between
TIMEOUT = httpx2.Timeout(20.0, read=60.0)
SPARE = 64 << 20  # bytes to leave free on the disk
NOTE = "omnibus.json"  # in a finished folder: where it came from


class _Stopped(Exception):
    """Paused or cancelled."""


class Download:
    """One model on its way.

    Safe to use from any thread. `on_change` is called from the download's threads whenever `progress` has changed, some ten times a second.

    Args:
        endpoint, token: of the hub.
        folder: where the model's own folder will be made.
        wait: sleeps for so many seconds or until the event is set; a test gives its own.
    """

    def __init__(
        self,
        offer: Offer,
        folder: Path,
        *,
        endpoint: str,
        token: str | None = None,
        on_change: Callable[[Progress], None] = lambda progress: None,
        wait: Callable[[threading.Event, float], object] = lambda event, seconds: event.wait(seconds),
        piece: int = PIECE,
    ) -> None:
        self.offer = offer
        self.target = folder / offer.name
        self._draft = folder / f".{offer.name}.{offer.kind}.part"
        self._endpoint = endpoint
        self._token = token
        self._on_change = on_change
        self._wait = wait
        self._piece = piece
        self._halt = threading.Event()
        self._forget = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._progress = Progress(State.WAITING, 0, offer.size)

    # -------------------------------------------------------------------------------------------------------- steering

    @property
    def progress(self) -> Progress:
        return self._progress

    def start(self) -> None:
        """Begin, or go on after a pause or a failure. Does nothing while it runs."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return
            self._halt.clear()
            self._forget = False
            self._thread = threading.Thread(target=self._main, name=f"download-{self.offer.name}", daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """Stop; what is there stays for `start`, today or another day."""
        self._halt.set()

    def cancel(self) -> None:
        """Stop and delete what is there."""
        self._forget = True
        self._halt.set()
        if self._thread is None or not self._thread.is_alive():
            self._clear()

    def join(self, timeout: float | None = None) -> Progress:
        """Wait until the thread has ended; returns where the download is then."""
        if self._thread is not None:
            self._thread.join(timeout)
        return self._progress

    # --------------------------------------------------------------------------------------------------------- thread

    def _main(self) -> None:
        self._tell(state=State.RUNNING, note="", error=None)
        try:
            path = self._fetch_all()
        except _Stopped:
            if self._forget:
                self._clear()
            else:
                self._tell(state=State.PAUSED, note="")
        except ModelError as error:
            self._tell(state=State.FAILED, note="", error=error.info())
        except Exception as error:
            log.exception("the download of %s failed", self.offer.repository)
            self._tell(
                state=State.FAILED, note="", error=ErrorInfo("download_failed", Sentence("The download failed: {0}", error), "Try again.")
            )
        else:
            self._tell(state=State.DONE, note="", path=path, done=self.offer.size)

    def _fetch_all(self) -> Path:
        for file in self.offer.files:
            _check_name(file.name)
        with told("write to", self._draft.parent):
            self._draft.mkdir(parents=True, exist_ok=True)
        parts = [_Part(self._draft, file, self._piece) for file in self.offer.files]
        self._tell(done=sum(part.done for part in parts))
        need_space(self._draft, self.offer.size - self._progress.done + SPARE, f"The model {self.offer.repository}")
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        with httpx2.Client(headers=headers, timeout=TIMEOUT, follow_redirects=True) as client:
            self._fetch_pieces(client, parts)
        self._tell(state=State.CHECKING)
        for part in parts:
            part.finish(self._halt)
        return self._put_in_place(parts)

    def _fetch_pieces(self, client: httpx2.Client, parts: list[_Part]) -> None:
        """All that is missing, a few pieces at a time, the largest files first. The first failure ends them all."""
        jobs: queue.SimpleQueue[tuple[_Part, int]] = queue.SimpleQueue()
        count = 0
        for part in sorted(parts, key=lambda part: -part.file.size):
            for number in part.missing():
                jobs.put((part, number))
                count += 1
        broken = threading.Event()

        def work() -> None:
            while not broken.is_set():
                try:
                    part, number = jobs.get_nowait()
                except queue.Empty:
                    return
                try:
                    self._fetch_piece(client, part, number, broken)
                except BaseException:
                    broken.set()
                    raise

        workers = min(WORKERS, count)
        if not workers:
            return
        with ThreadPoolExecutor(workers, f"download-{self.offer.name}") as pool:
            results = [pool.submit(work) for _ in range(workers)]
        errors = [error for result in results if (error := result.exception()) is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, _Stopped)):  # a real failure before those that it stopped
            raise error

    def _fetch_piece(self, client: httpx2.Client, part: _Part, number: int, broken: threading.Event) -> None:
        """One piece, tried again from where it broke off for as long as something comes."""
        start, end = part.span(number)
        place, tries = start, 0
        trouble: str
        while place < end or start == end == 0:
            before = place
            try:
                for data in self._stream(client, part, place, end):
                    if self._halt.is_set() or broken.is_set():
                        raise _Stopped
                    part.write(place, data)
                    place += len(data)
                    self._add(len(data))
                if place >= end:
                    break
                trouble, pause = Sentence("the connection was cut"), 0.0
            except httpx2.TransportError as error:
                trouble, pause = _words(error), 0.0
                if isinstance(error, httpx2.ConnectError) and tries + 1 >= TRIES:
                    raise hub.unreachable(self._endpoint, error) from error
            except _Later as later:
                trouble, pause = later.words, later.seconds
            tries = 0 if place > before else tries + 1
            if tries >= TRIES:
                sentence = Sentence("{0} could not be fetched: {1}.", part.file.name, trouble)
                raise ModelError("download_failed", sentence, "Try again later; what is there already is kept.")
            self._tell(note=Sentence("{0}; trying again", trouble))
            self._wait(self._halt, pause or min(30.0, 0.5 * 2**tries))
            if self._halt.is_set():
                raise _Stopped
        part.note(number)
        self._tell(note="")

    def _stream(self, client: httpx2.Client, part: _Part, place: int, end: int) -> Any:
        """The bytes from `place` to `end` of a file, as the server sends them."""
        file = part.file
        url = f"{self._endpoint}/{self.offer.repository}/resolve/{self.offer.revision}/{quote(file.name)}"
        with client.stream("GET", url, headers={"Range": f"bytes={place}-{end - 1}"} if end else {}) as answer:
            status = answer.status_code
            if status in (429, 500, 502, 503, 504):
                raise _Later(status, answer.headers.get("Retry-After", ""))
            if status not in (200, 206):
                raise hub.refused(
                    status, self._endpoint, f"{self.offer.repository}/{file.name}" if status == 404 else self.offer.repository
                )
            skip = 0
            if status == 200:
                skip = place  # a server that knows no ranges sends the file from its beginning
            left = end - place
            for data in answer.iter_raw():
                if skip:
                    cut = min(skip, len(data))
                    skip, data = skip - cut, data[cut:]
                if data:
                    yield data[:left]
                    left -= len(data[:left])
                if left <= 0:
                    return

    def _put_in_place(self, parts: list[_Part]) -> Path:
        """Give the model its name. A single file goes beside what its folder holds already."""
        about = {"repository": self.offer.repository, "revision": self.offer.revision, "licence": self.offer.licence}
        single = len(parts) == 1 and parts[0].file.name.endswith(".gguf")
        with told("write to", self.target.parent):
            if single:
                self.target.mkdir(exist_ok=True)
                place = self.target / Path(parts[0].file.name).name
                os.replace(parts[0].path, place)
                shutil.rmtree(self._draft, ignore_errors=True)
            else:
                for note in self._draft.glob("*.pieces"):
                    note.unlink()
                (self._draft / NOTE).write_text(json.dumps(about, indent=2), encoding="utf-8")
                if self.target.exists():
                    shutil.rmtree(self.target)
                os.replace(self._draft, self.target)
                place = self.target
        return place

    def _clear(self) -> None:
        shutil.rmtree(self._draft, ignore_errors=True)
        self._tell(state=State.CANCELLED, note="", done=0)

    # ------------------------------------------------------------------------------------------------------- progress

    def _add(self, count: int) -> None:
        with self._lock:
            before = self._progress
            self._progress = replace(before, done=before.done + count)
            tell = before.done // (1 << 20) != self._progress.done // (1 << 20)
        if tell:
            self._on_change(self._progress)

    def _tell(self, **changes: Any) -> None:
        with self._lock:
            before = self._progress
            self._progress = replace(before, **changes)
        if self._progress != before:
            self._on_change(self._progress)


class _Later(Exception):
    """The server asks to come again."""

    def __init__(self, status: int, after: str) -> None:
        super().__init__(status)
        self.words = "the hub asks to wait" if status == 429 else f"the hub has trouble (status {status})"
        self.seconds = min(300.0, float(after)) if after.strip().isdigit() else 0.0


class _Part:
    """One file on its way: its bytes so far, and the note of which pieces are whole."""

    def __init__(self, folder: Path, file: HubFile, piece: int) -> None:
        self.file = file
        self.path = folder / Path(file.name).name
        self._notes = folder / f"{self.path.name}.pieces"
        self._piece = piece
        self._lock = threading.Lock()
        self._have = self._noted()
        if not self.path.exists():
            self._have = set()
            with told("write to", folder), self.path.open("wb") as made:
                made.truncate(file.size)  # room is taken as it is written; a sparse file can be filled in any order

    @property
    def count(self) -> int:
        return max(1, -(-self.file.size // self._piece))

    @property
    def done(self) -> int:
        return sum(end - start for start, end in map(self.span, self._have))

    def span(self, number: int) -> tuple[int, int]:
        """A piece's first byte, and the one behind its last."""
        return number * self._piece, min(self.file.size, (number + 1) * self._piece)

    def missing(self) -> list[int]:
        return [number for number in range(self.count) if number not in self._have]

    def write(self, place: int, data: bytes) -> None:
        with told("write to", self.path), self.path.open("r+b") as file:
            file.seek(place)
            file.write(data)

    def note(self, number: int) -> None:
        """A piece is whole. Its bytes are with the system before the note is."""
        with self._lock, told("write to", self._notes):
            self._have.add(number)
            content = {"size": self.file.size, "id": self.file.sha256 or self.file.blob, "piece": self._piece, "have": sorted(self._have)}
            draft = self._notes.with_suffix(".new")
            draft.write_text(json.dumps(content), encoding="utf-8")
            draft.replace(self._notes)

    def finish(self, halt: threading.Event) -> None:
        """Compare the whole file with the hub's hash. Raises ModelError("wrong_hash") and lets go of the file."""
        wanted = self.file.sha256 or self.file.blob
        if not wanted:
            return
        digest = hashlib.sha256() if self.file.sha256 else hashlib.sha1(f"blob {self.file.size}\0".encode(), usedforsecurity=False)
        with told("read", self.path), self.path.open("rb") as file:
            while data := file.read(4 << 20):
                if halt.is_set():
                    raise _Stopped
                digest.update(data)
        if digest.hexdigest() != wanted:
            for path in (self.path, self._notes):
                with suppress(OSError):
                    path.unlink()
            sentence = Sentence(
                "{0} arrived other than it left: its hash is {1}…, not {2}….", self.file.name, digest.hexdigest()[:16], wanted[:16]
            )
            raise ModelError("wrong_hash", sentence, "Try again; the file is fetched anew.")

    def _noted(self) -> set[int]:
        try:
            content = json.loads(self._notes.read_text(encoding="utf-8"))
            same = (content["size"], content["id"], content["piece"]) == (self.file.size, self.file.sha256 or self.file.blob, self._piece)
            return {number for number in content["have"] if 0 <= number < self.count} if same else set()
        except (OSError, ValueError, KeyError, TypeError):
            return set()


def _check_name(name: str) -> None:
    """Refuse what would land outside the folder, or is hidden in it. Folders within a repository are left away: one file a name."""
    last = Path(name).name
    if not last or last.startswith(".") or any(sign in last for sign in '\\:\0*?"<>|') or ".." in Path(name).parts:
        raise ModelError(
            "bad_file_name", Sentence("The hub names the file {0!r}, which could lie outside its folder.", name), "Do not use this model."
        )


def _words(error: httpx2.TransportError) -> str:
    if isinstance(error, httpx2.TimeoutException):
        return Sentence("the hub does not answer")
    if isinstance(error, httpx2.ConnectError):
        return Sentence("the hub cannot be reached")
    return Sentence("the connection was cut")
