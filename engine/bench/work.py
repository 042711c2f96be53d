"""`omnibus bench work`: the same work on our engine and on each peer that is installed, one after another, and the ratios.

Each engine runs in a process of its own, warmed up, on prompts made from a seed; a repeat shares nothing with the one before. Figures are
medians of the repeats, taken at the client. Compare only within a class of precision and within one run: machines and their moods differ.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.bench.contest import ContestFailed, measure
from engine.bench.demo_view import Screen
from engine.bench.figures import Figures, median_of, table
from engine.bench.output import NotWritable, add_json_option, check_writable, human_stream, usable_cores, write_document
from engine.bench.peers import PEERS, Peer, Setting
from engine.bench.roofline import Roofline, roofline
from engine.bench.workloads import MAKERS, RATE, Count, Work, load_work, make_work
from engine.types import CLASS_DTYPES, MOST_THREADS, EngineError

US = "omnibus"
MOST_RATE = 100  # chats a second, all of a minute: their prompts are made and counted before anything is measured


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("work", help="the same work on our engine and on the peers that are installed")
    parser.add_argument("--work", default="W2", help=f"comma-separated, of {', '.join(MAKERS)} (default: W2)")
    parser.add_argument("--file", help="a workload of your own, as JSON, in place of --work")
    parser.add_argument("--class", dest="precision", default="16-bit", help="precision of weights and cache (default: 16-bit)")
    parser.add_argument("--only", help=f"comma-separated, of {', '.join(PEERS)} (default: all that are installed, and ours as it comes)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1, help="another seed is other work of the same kind")
    parser.add_argument("--rate", type=float, default=RATE, help=f"W3: chats a second (default: {RATE})")
    parser.add_argument("--model", default="starter", help="a model folder (default: the starter model)")
    parser.add_argument("--gguf", default="", help="the same model as a GGUF file of that precision, for llama-cpp-python")
    parser.add_argument("--url", default="", help="a server on this machine that runs the same model: http://127.0.0.1:8000/v1")
    parser.add_argument("--key", default="", help="its API key")
    parser.add_argument("--threads", type=int, help="threads an engine (default: all cores)")
    parser.add_argument("--log", help="append what the engines print to this file")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """0 when our engine, or whatever --only names, was measured; 1 when it was not; 2 when asked for in a wrong way.

    Raises EngineError when there is no model or no such workload.
    """
    try:
        check_writable(args.json)
        check_writable(args.log)
        names = choose(args)
    except (NotWritable, ValueError) as error:
        print(f"omnibus bench work: {error}", file=sys.stderr)
        return 2
    with Screen(human_stream(args.json)) as screen:
        folder = model_folder(args.model, screen.stage)
        works = [load_work(args.file)] if args.file else make_works(args, counter(folder))
        floor = find_floor(folder, args)
        if floor is not None:
            screen.say("", f" {floor.words}")
        results = [result for work in works for result in compete(work, names, args, folder, screen)]
    measured = [result for result in results if "error" not in result]
    failed = [result for result in results if "error" in result]
    document = {"machine": machine(), "seed": args.seed, "repeats": args.repeats, "results": measured, "failed": failed}
    document["roofline"] = asdict(floor) if floor else None
    try:
        write_document(args.json, document)
    except NotWritable as error:
        print(f"omnibus bench work: {error}", file=sys.stderr)
        return 1
    judged = [result for result in results if result["engine"] == US or args.only]
    return 1 if any("error" in result for result in judged) else 0


def choose(args: argparse.Namespace) -> list[str]:
    """Who takes part. Raises ValueError with a sentence for a name, class or number that cannot be."""
    if args.repeats < 1 or not args.rate > 0 or (args.threads is not None and args.threads < 1):
        raise ValueError("--repeats, --rate and --threads must be above 0.")
    if args.rate > MOST_RATE or (args.threads or 0) > MOST_THREADS:
        raise ValueError(f"--rate must be at most {MOST_RATE} and --threads at most {MOST_THREADS}.")
    if args.precision not in CLASS_DTYPES:
        raise ValueError(f"there is no class {args.precision}; choose among {', '.join(CLASS_DTYPES)}.")
    names = args.only.split(",") if args.only else list(PEERS)
    for name in names:
        if name not in PEERS:
            raise ValueError(f"there is no engine {name}; choose among {', '.join(PEERS)}.")
        if args.only and not PEERS[name].installed():
            raise ValueError(f"{name} is not installed here (the package {PEERS[name].needs} is missing).")
        if args.only and PEERS[name].gguf and not args.gguf:
            raise ValueError(f"{name} needs --gguf FILE.")
        if args.only and PEERS[name].url and not args.url:
            raise ValueError(f"{name} needs --url ADDRESS.")
        if args.only and PEERS[name].classes and args.precision not in PEERS[name].classes:
            raise ValueError(f"{name} cannot run in {args.precision}.")
    return [name for name in names if _takes_part(PEERS[name], args)]


def _takes_part(peer: Peer, args: argparse.Namespace) -> bool:
    asked = bool((args.gguf or not peer.gguf) and (args.url or not peer.url) and (args.only or not peer.named))
    return asked and peer.installed() and (not peer.classes or args.precision in peer.classes)


def make_works(args: argparse.Namespace, count: Count) -> list[Work]:
    return [make_work(name, count, args.seed, args.rate) for name in args.work.split(",")]


def compete(work: Work, names: list[str], args: argparse.Namespace, folder: Path, screen: Screen) -> list[Figures]:
    """One workload on every engine, one after another; what fails is told and does not stop the others."""
    tokens = sum(request["output_tokens"] for request in work["requests"])
    title = f"{work['name']}: {work.get('title', '')} ({len(work['requests'])} requests, {tokens:,} tokens to answer)"
    screen.say("", f" {title}")
    setting = Setting(
        model=str(folder),
        dtype=CLASS_DTYPES[args.precision],
        threads=args.threads or usable_cores(),
        seats=int(work["seats"]),
        max_len=int(work["max_len"]),
        kv_tokens=int(work["kv_tokens"]),
        gguf=args.gguf,
        url=args.url,
        key=args.key,
    )
    results: list[Figures] = []
    salt = time.strftime("%d%H%M%S")
    for name in names:
        result: Figures = {"engine": name, "class": args.precision, "work": work["name"]}
        try:
            runs = _measure(name, setting, work, args, f"{salt}{name[0]}", lambda words, name=name: screen.stage(f"{name} {words}"))  # type: ignore[misc]
            result |= {**median_of(runs), "runs": len(runs)}
            screen.say(f"   {name}: {result['whole'][0]} of {result['whole'][1]} whole, {result['tok_s']:.1f} tok/s")
        except ContestFailed as error:
            result["error"] = str(error)
            screen.say(f"   {name}: {error}")
        results.append(result)
    screen.say("", *table(results, US), *extras(results))
    return results


def _measure(name: str, setting: Setting, work: Work, args: argparse.Namespace, salt: str, tell: Callable[[str], None]) -> list[Figures]:
    if not args.log:
        return measure(name, setting, work, args.repeats, salt, tell)
    with open(args.log, "a", encoding="utf-8") as log:
        return measure(name, setting, work, args.repeats, salt, tell, log)


def extras(results: list[Figures]) -> list[str]:
    """The workload's own figures, a line an engine."""
    lines = []
    for result in results:
        for value in (part for part in result.values() if isinstance(part, dict)):
            words = ", ".join(f"{key} {_short(item)}" for key, item in value.items() if item not in (None, []))
            if words:
                lines.append(f" {result['engine']}: {words}")
    return lines


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


# ----------------------------------------------------------------------------------------------------------------- model


def model_folder(model: str, tell: Callable[[str], None]) -> Path:
    """The folder that every engine loads. Raises ModelError."""
    if model == "starter":
        from engine.catalog.starter import ensure_starter

        return ensure_starter(lambda share, stage: tell(f"{stage}: {share:.0%}"))
    if not (Path(model) / "tokenizer.json").is_file():
        raise EngineError("no_model", f"{model} is not a model folder with a tokenizer.json.", "Name a folder that transformers can load.")
    return Path(model)


def find_floor(folder: Path, args: argparse.Namespace) -> Roofline | None:
    """The machine's limit for this model, or None where its files do not tell."""
    try:
        return roofline(folder, args.precision, args.threads or usable_cores())
    except (OSError, ValueError, KeyError):
        return None


def counter(folder: Path) -> Count:
    """Tokens of a text with the model's own tokenizer."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def machine() -> dict[str, Any]:
    """What the figures hold for. No host name."""
    from importlib import metadata

    versions = {}
    for package in ("torch", "transformers", "llama-cpp-python"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **versions,
    }
