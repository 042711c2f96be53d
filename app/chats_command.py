"""`omnibus chats`: list, search, import and export the chats of a folder, without a screen.

Reading works beside an open window; importing asks for the folder's lock, because only one program may change its chats. Imports Qt for
PDF alone, when it is asked for.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import apsw
import platformdirs

from app import spoken
from app.chats.book import ChatBook
from app.chats.exchange import html, importing, markdown, own
from app.chats.exchange.reading import KINDS, UnreadableFile
from app.chats.lock import FolderInUse, FolderLock
from app.chats.model import Chat
from app.chats.reader import ChatReader
from app.chats.schema import FILE, StoreError
from app.chats.store import ChatStore

FORMATS = ("md", "json", "html", "pdf")
MOST_NAME = 180  # bytes of a title in a file's name, which has 255 in all
_CONTROL = {code: " " for code in (*range(32), *range(127, 160))}  # what comes from a model must not steer the terminal


def default_folder() -> Path:
    """Where the window keeps chats."""
    return Path(platformdirs.user_data_dir("omnibus"))


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("chats", help="list, search, import and export chats", description="The chats of a folder.")
    parser.add_argument("--data", type=Path, default=default_folder(), metavar="DIR", help="the folder in which chats are kept")
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--data", type=Path, default=argparse.SUPPRESS, metavar="DIR", help="the folder in which chats are kept")
    commands.add_parser("list", parents=[common], help="every chat, newest first: id, when, messages, title")
    search = commands.add_parser("search", parents=[common], help="find words in titles and messages")
    search.add_argument("words", nargs="+", metavar="WORDS", help='all of them must occur; "two words" in quotes stay together')
    search.add_argument("--limit", type=int, default=50, help="how many finds at most (default: 50)")
    take = commands.add_parser("import", parents=[common], help="take chats over from a file, a zip or a folder")
    take.add_argument("file", type=Path, metavar="FILE", help=f"an export of {KINDS}")
    give = commands.add_parser("export", parents=[common], help="write chats to a file")
    give.add_argument("chats", nargs="*", metavar="CHAT", help="an id, its beginning, or a title (default: every chat)")
    give.add_argument("--format", choices=FORMATS, default="md", help="md (default), json, html or pdf")
    give.add_argument(
        "--output", "-o", metavar="FILE", help="default: the standard output; a folder, or a name that ends in /, gets one file a chat"
    )


def run(args: argparse.Namespace) -> int:
    actions: dict[str, Callable[[argparse.Namespace], int]] = {"list": _list, "search": _search, "import": _import, "export": _export}
    try:
        return actions[args.action](args)
    except (StoreError, UnreadableFile, FileNotFoundError) as error:
        return _complain(str(error))
    except FolderInUse as error:
        return _complain(f"{error} Import through its menu, or close it first.")
    except apsw.Error as error:
        return _complain(f"The chats in {args.data} cannot be read ({error}).", "Open the window on them once: it repairs what it can.")
    except OSError as error:
        if isinstance(error, BrokenPipeError) or spoken.loss(error):  # of our own words, not of the chats
            raise
        return _complain(f"{error.filename or args.data}: {error.strerror or error}.")


# --------------------------------------------------------------------------------------------------------------------- actions


def _list(args: argparse.Namespace) -> int:
    with _reader(args.data) as reader:
        counts = reader.counts()
        for chat in reader.chats():
            print(f"{chat.id}  {markdown.moment(chat.updated)}  {counts.get(chat.id, 0):>5}  {_plain(chat.display_title)}")
    return 0


def _search(args: argparse.Namespace) -> int:
    with _reader(args.data) as reader:
        hits = reader.search(" ".join(args.words), max(1, args.limit))
    if not hits:
        return _complain("Nothing was found.")
    for hit in hits:
        where = f"{hit.chat_id}  {markdown.moment(hit.created)}  {_plain(hit.title)}"
        print(f"{where}: {_plain(hit.snippet)}" if hit.message_id else where)
    return 0


def _import(args: argparse.Namespace) -> int:
    chats, report = importing.read_chats(args.file)
    with FolderLock(args.data):
        store = ChatStore(args.data / FILE)
        try:
            importing.add_chats(ChatBook(store), chats, report)
        finally:
            report.unsaved = not store.close(60.0)
    print(report.words())
    for where, why in report.skipped:
        print(f"  {_plain(where)}: {_plain(why)}")
    return 0 if (report.added or report.known) and not report.unsaved else 1


def _export(args: argparse.Namespace) -> int:
    with _reader(args.data) as reader:
        ids = _chosen(reader.chats(), args.chats)
        chats = [chat for chat_id in ids if (chat := reader.chat(chat_id)) is not None]
    target = Path(args.output) if args.output else None
    if target is not None and (target.is_dir() or args.output.endswith(("/", os.sep))):
        target.mkdir(parents=True, exist_ok=True)
        for chat in chats:
            write_file([chat], args.format, target / file_name(chat, args.format))
        print(f"{len(chats)} files written to {target}.", file=sys.stderr)
    elif target is not None:
        write_file(chats, args.format, target)
    elif args.format == "pdf":
        if sys.stdout.isatty():
            return _complain("A PDF is no text for a terminal.", "Name a file with --output, or redirect the output to one.")
        with tempfile.TemporaryDirectory() as folder:
            write_file(chats, "pdf", Path(folder) / "chats.pdf")
            sys.stdout.buffer.write((Path(folder) / "chats.pdf").read_bytes())
    else:
        sys.stdout.buffer.write(text_of(chats, args.format).encode("utf-8", "replace"))
        sys.stdout.flush()
    return 0


# ---------------------------------------------------------------------------------------------------------------------- writing


def text_of(chats: Iterable[Chat], form: str) -> str:
    """A document of these chats in a text format."""
    return {"md": markdown.dump, "json": own.dump, "html": html.dump}[form](chats)


def write_file(chats: Iterable[Chat], form: str, target: Path) -> None:
    """Write a document; an older file of that name is replaced once the new one is whole. Raises OSError, or ValueError for a PDF where
    Qt's libraries are missing."""
    part = target.with_name(target.name + ".part")
    try:
        if form == "pdf":
            from app.pdf import write_pdf

            write_pdf(chats, part)
        else:
            part.write_text(text_of(chats, form), encoding="utf-8", errors="replace", newline="\n")
        part.replace(target)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def file_name(chat: Chat, form: str) -> str:
    """A name that every system takes, and that no two chats share."""
    words = re.sub(r"[^\w\- ]+", "", chat.display_title).strip()[:60]
    words = words.encode("utf-8", "ignore")[:MOST_NAME].decode("utf-8", "ignore").strip() or "chat"
    return f"{words} {chat.id[:8]}.{form}"


# ---------------------------------------------------------------------------------------------------------------------- private


def _reader(folder: Path) -> ChatReader:
    """The folder's chats, brought to the present version first where nobody else has them open."""
    path = folder / FILE
    try:
        return ChatReader(path)
    except StoreError:
        with FolderLock(folder):
            store = ChatStore(path)
            store.load()
            store.close()
        return ChatReader(path)


def _chosen(chats: list[Chat], names: Sequence[str]) -> list[str]:
    """Ids of the chats that are meant. Raises UnreadableFile for a name that means none."""
    if not names:
        return [chat.id for chat in chats]
    chosen: list[str] = []
    for name in names:
        found = [chat.id for chat in chats if chat.id.startswith(name) or chat.display_title.casefold() == name.casefold()]
        if not found:
            raise UnreadableFile(f"There is no chat “{name}”: `omnibus chats list` shows them all.")
        chosen += [chat_id for chat_id in found if chat_id not in chosen]
    return chosen


def _plain(text: str) -> str:
    return text.translate(_CONTROL)


def _complain(message: str, hint: str = "") -> int:
    print(f"omnibus: {message}", file=sys.stderr)
    if hint:
        print(hint, file=sys.stderr)
    return 1
