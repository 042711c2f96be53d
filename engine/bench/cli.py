"""`omnibus bench NAME`: the measurements, each a module that is imported only when it is asked for."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from typing import Any, cast

# A module has add_parser(subparsers) and run(args) -> exit status.
BENCHES = {
    "accuracy": ("engine.bench.accuracy", "how near each precision class is to the exact answers"),
    "census": ("engine.bench.census", "which model families ride the paged cache, alone and in company"),
    "eviction": ("engine.bench.eviction", "plain LRU against the tail-optimised order, for returning chats"),
    "gpu": ("engine.bench.gpu", "the lane for NVIDIA GPUs: kernels and graphs checked, models against the limits and a peer"),
    "parity": ("engine.bench.parity", "are answers the model's own, whoever rides along?"),
    "scheduler": ("engine.bench.scheduler", "what planning and committing a step costs in Python"),
    "soak": ("engine.bench.soak", "a long run of arrivals, cancels and faults: does anything stay behind?"),
    "streaming": ("engine.bench.streaming", "what a streamed token costs between the step and the socket"),
    "work": ("engine.bench.work", "the same work on our engine and on the peers that are installed"),
}


Table = Mapping[str, tuple[str, str]]
NOTHING: Table = {}


def add_parser(subparsers: Any, more: Table = NOTHING) -> None:
    """`more`: measurements of those who use the engine."""
    benches = {**BENCHES, **more}
    names = "\n".join(f"  {name:<12}{summary}" for name, (_, summary) in benches.items())
    parser = subparsers.add_parser(
        "bench",
        help="measure the engine",
        description=f"Measure the engine.\n\n{names}\n\n`omnibus bench NAME --help` tells more of one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bench", metavar="NAME", choices=benches, help=f"one of {', '.join(benches)}")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="what that one takes")


def run(args: argparse.Namespace, more: Table = NOTHING) -> int:
    """Whatever the chosen measurement returns."""
    module = importlib.import_module({**BENCHES, **more}[args.bench][0])
    parser = argparse.ArgumentParser(prog="omnibus bench")
    module.add_parser(parser.add_subparsers(dest="bench", required=True))
    return cast(int, module.run(parser.parse_args([args.bench, *args.rest])))
