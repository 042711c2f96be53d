"""`omnibus models`: everything about models without a screen. Imports torch only for `fit` and `check`."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.catalog.folders import megabytes
from engine.catalog.registry import STARTER, Entry, Kind, Registry, hub_cache
from engine.text.forms import FORMS, form_named
from engine.types import KV_CLASSES, ModelError


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("models", help="list, check, find, fetch and remove models")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, run: Callable[[argparse.Namespace], int], words: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = actions.add_parser(name, help=words, description=words[0].upper() + words[1:] + ".")
        made.set_defaults(action_run=run)
        return made

    made = action("list", list_models, "show the models on this machine")
    made.add_argument("--json", action="store_true")
    made = action("fit", show_fit, "say whether a model fits this machine, from its files' headers")
    made.add_argument("path", metavar="PATH", help="a model folder, a GGUF file, or a name out of the list")
    made.add_argument("--seats", type=_count, metavar="N", help="chats answered at once (default: what this machine has room for)")
    made.add_argument("--context", type=_count, metavar="N", help="positions a chat (default: what this machine has room for)")
    made.add_argument("--device", default="auto")
    made.add_argument("--dtype", default="auto")
    made.add_argument("--kv-class", choices=KV_CLASSES, default="auto", help="what keys and values are kept in")
    made.add_argument("--json", action="store_true")
    made = action("check", check, "say whether a model would load, and if not why")
    made.add_argument("path", metavar="PATH")
    made = action("add", add, "add a model folder, a GGUF file or a folder of models; nothing is copied")
    made.add_argument("path", metavar="PATH", type=Path)
    made = action("import", import_cache, "add what lies in Hugging Face's cache; nothing is copied")
    made.add_argument("path", metavar="PATH", type=Path, nargs="?", help=f"another cache than {hub_cache()}")
    made = action("remove", remove, "delete a model that was fetched, or forget one that was added")
    made.add_argument("name", metavar="NAME")
    made = action("search", search, "look for models on the Hugging Face hub")
    made.add_argument("words", metavar="WORDS", nargs="+")
    made.add_argument("--json", action="store_true")
    made = action("download", download, "fetch a model from the hub; Ctrl-C pauses, the same command goes on")
    made.add_argument("repository", metavar="OWNER/NAME")
    made.add_argument("--quality", type=str.capitalize, choices=("Small", "Balanced", "Best"), help="default: Balanced, or what there is")
    made = action("form", form, "show, or with a key change, how chats are put to a model without a chat template")
    made.add_argument("path", metavar="PATH", help="a model folder, a GGUF file, or a name out of the list")
    made.add_argument(
        "key", metavar="FORM", nargs="?", choices=[*(each.key for each in FORMS), "auto"], help="chatml, llama, gemma, plain; auto"
    )
    made = action("folder", folder, "show, or with a path change, where fetched models go")
    made.add_argument("path", metavar="PATH", type=Path, nargs="?")


def run(args: argparse.Namespace) -> int:
    """0 when done. Raises EngineError for everything that a person can mend."""
    status: int = args.action_run(args)
    return status


def list_models(args: argparse.Namespace) -> int:
    entries = Registry().entries()
    if args.json:
        print(json.dumps([entry.as_json() for entry in entries], indent=2, ensure_ascii=False))
        return 0
    print(_table([(entry.name, _state(entry), str(entry.kind), _place(entry)) for entry in entries]))
    return 0


def show_fit(args: argparse.Namespace) -> int:
    from engine.catalog.fit import fit, this_machine

    found = fit(_files(args.path), this_machine(args.device, args.dtype, args.kv_class), args.seats, args.context)
    if args.json:
        print(json.dumps(found.as_json()))
        return 0
    sizes = [
        ("weights", f"{found.precision} on {found.device}", found.weights),
        ("cache", f"{found.seats} seats × {found.context:,}", found.kv),
    ]
    sizes += [("work", "the largest step, and the tokenizer", found.work), ("together", "", found.total)]
    print(found.sentence)
    print(_table([(name, megabytes(size), words) for name, words, size in sizes]))
    if found.suggested:
        print("Suggested for this machine: {} seats, {:,} positions each.".format(*found.suggested))
    return 0


def check(args: argparse.Namespace) -> int:
    """0 with a line about the model, or 1 with one line on standard error."""
    from engine.model.trial import check_model

    try:
        approval = check_model(args.path)
    except ModelError as error:
        print(f"{error.message} {error.hint}".strip().replace("\n", " "), file=sys.stderr)
        return 1
    print(" ".join((f"{approval.name} is a sound {approval.family} model.", *approval.notes)))
    return 0


def add(args: argparse.Namespace) -> int:
    for entry in Registry().add(args.path):
        print(f"{entry.name} ({megabytes(entry.size)}) is in the list.")
    return 0


def import_cache(args: argparse.Namespace) -> int:
    args.path = args.path or hub_cache()
    return add(args)


def remove(args: argparse.Namespace) -> int:
    registry = Registry()
    entry = registry.find(args.name)
    freed = registry.remove(args.name)
    words = "was deleted" if entry.owned else "is no longer in the list; its files were left alone"
    print(f"{entry.name} {words}. {megabytes(freed)} became free.")
    return 0


def search(args: argparse.Namespace) -> int:
    from engine.catalog.hub import Hub

    found = Hub().search(" ".join(args.words))
    if args.json:
        print(json.dumps([asdict(model) for model in found], indent=2, ensure_ascii=False))
    elif not found:
        print("The hub has no chat model of that name.")
    else:
        rows = [
            (m.repository, m.size or "?", "GGUF" if m.gguf else "safetensors", "gated" if m.gated else "open", m.licence) for m in found
        ]
        print(_table([*rows]))
    return 0


def download(args: argparse.Namespace) -> int:
    """0 when the model is there, 1 when it was paused."""
    from engine.catalog.hub import Hub
    from engine.catalog.progress import State
    from engine.catalog.transfer import Download

    shop = Hub()
    offers = shop.offers(args.repository)
    for offer in offers:
        print(f"{offer.word:<9} {offer.kind:<12} {megabytes(offer.size):>8}  {offer.licence}{', gated' if offer.gated else ''}")
    by_word = {offer.word: offer for offer in offers}
    if args.quality and args.quality not in by_word:
        raise ModelError("not_on_hub", f"{args.repository} is not there as {args.quality}.", f"Choose {' or '.join(by_word)}.")
    chosen = by_word[args.quality] if args.quality else by_word.get("Balanced", offers[-1])
    print(f"Fetching {chosen.word} ({chosen.kind}) to {Registry().folder}", flush=True)
    job = Download(chosen, Registry().folder, endpoint=shop.endpoint, token=shop.token)
    job.start()
    try:
        while (now := job.join(0.2)).state in (State.WAITING, State.RUNNING, State.CHECKING):
            if sys.stdout.isatty():
                share = now.done / max(1, now.total)
                print(f"\r\x1b[2K{share:4.0%} of {megabytes(now.total)} {now.note or now.state}", end="", flush=True)
    except KeyboardInterrupt:
        job.pause()
        job.join()
        print("\nPaused; the same command goes on from here.", file=sys.stderr)
        return 1
    if now.error is not None:
        raise ModelError(now.error.code, now.error.message, now.error.hint)
    if sys.stdout.isatty():
        print()
    print(now.path)
    return 0


def form(args: argparse.Namespace) -> int:
    entry = Registry().find(args.path)
    if args.key is not None:
        Registry().set_form(entry.source, "" if args.key == "auto" else args.key)
    chosen = form_named(Registry().form_of(entry.source))
    used = f"{chosen.title}, if it has no template of its own" if chosen else "its own template, else what its vocabulary knows"
    print(f"{entry.name}: {used}")
    for each in FORMS if args.key is None else ():
        print(f"\n{each.key}: {each.title}. {each.words}\n\n{textwrap.indent(each.preview(), '    ')}")
    return 0


def folder(args: argparse.Namespace) -> int:
    registry = Registry()
    if args.path is not None:
        registry.set_folder(args.path)
    print(registry.folder)
    return 0


# ------------------------------------------------------------------------------------------------------------- helpers


def _files(source: str) -> Path:
    from engine.catalog import starter
    from engine.model.loading import find_files

    if source != STARTER:
        return find_files(source)[0]
    if not starter.ready():
        raise ModelError("model_not_found", "The starter model is not there yet.", "Start Omnibus once, which fetches it.")
    return starter.folder()


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return value


def _state(entry: Entry) -> str:
    return megabytes(entry.size) if entry.ready else "not there"


def _place(entry: Entry) -> str:
    return "comes with Omnibus" if entry.kind is Kind.STARTER else entry.source


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
