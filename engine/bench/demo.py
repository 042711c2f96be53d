"""`omnibus demo`: the engine at work under both policies, in a terminal, with nothing but a model.

Plays the design's six riders and a rush hour of twenty chats on the real engine, tour bus first, then city bus, without loading the
model again; shows seats, queue and blocks while it runs, then the pictures and the figures. Needs no screen.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import threading
from collections.abc import Callable
from typing import Any

from engine.bench import demo_view as view
from engine.bench.load import Load, riders, rush_hour
from engine.bench.output import NotWritable, add_json_option, check_writable, human_stream, write_document
from engine.bench.policy_run import PolicyRun, run_policy
from engine.engine import Engine
from engine.opened import Opener
from engine.types import EngineConfig, EngineState, Phase, Policy

KV_TOKENS = 6144  # roomy for the rush hour, and small enough that the bar of blocks shows something
ROUNDING_DTYPES = ("bfloat16", "float16", "16-bit")  # in which, without our own kernels, a row's last bits may depend on the rows beside it
POLICIES = (Policy.STATIC, Policy.IN_FLIGHT)

Both = dict[Policy, PolicyRun]


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("demo", help="run a scripted load under both policies and show it in the terminal")
    parser.add_argument("--riders", action="store_true", help="only the six riders on three seats")
    add_json_option(parser)
    parser.add_argument("--model", default="starter", help="a model folder or file (default: the starter model)")
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--dtype", help="default: the fastest in which answers are the same in any company: 16-bit on our own kernels, else float32"
    )
    parser.add_argument("--threads", type=int, help="torch threads (default: what the machine has to spare)")
    parser.add_argument("--pace", type=float, help="factor for the arrival times (default: fits the measured speed)")
    parser.add_argument("--plain", action="store_true", help="print lines now and then in place of a live view")


def run(args: argparse.Namespace) -> int:
    return demonstrate(args)


def demonstrate(args: argparse.Namespace, opener: Opener | None = None) -> int:
    """0 done; 1 the two policies' answers differ and no rounding explains it, or the document could not be written; 2 asked in a wrong way.

    Raises EngineError when there is no model or an answer fails.
    """
    if args.pace is not None and not 0 <= args.pace < math.inf:
        return _complain("--pace must be a number of 0 or more.", 2)
    try:
        check_writable(args.json)
    except NotWritable as error:
        return _complain(str(error), 2)
    config = EngineConfig(
        model=args.model,
        device=args.device,
        dtype=args.dtype or _exact(args, opener),
        kv_tokens=KV_TOKENS,
        threads=args.threads,
        draft_tokens=0,  # one step, one token for every seat: what is compared is who boards when
    )
    with view.Screen(human_stream(args.json), plain=args.plain) as screen, Engine(config, opener=opener) as engine:
        document = _play(engine, screen, args)
    try:
        write_document(args.json, document)
    except NotWritable as error:
        return _complain(str(error), 1)
    return 0 if document["same_text"] or document["model"]["dtype"] in ROUNDING_DTYPES else 1


def _exact(args: argparse.Namespace, opener: Opener | None) -> str:
    """The fastest dtype here in which a row's result does not depend on the rows beside it."""
    if opener is not None:
        return "float32"
    from engine.model.devices import choose_device
    from engine.model.libraries import LIBRARIES

    with LIBRARIES:
        from engine.model.native import library

        return "auto" if choose_device(args.device) == "cpu" and library.fault() is None else "float32"


def _play(engine: Engine, screen: view.Screen, args: argparse.Namespace) -> dict[str, Any]:
    wait_for_model(engine, screen.stage)
    screen.stage("warming up")
    run_policy(engine, riders(), Policy.IN_FLIGHT)  # a model's first passes are slow: whoever came first would be blamed for it
    model = engine.snapshot.model
    screen.say("", f"  {model.name} on {model.device}, {model.dtype}: one model, two ways of boarding", "")
    six = run_both(engine, riders(), screen)
    report(six, screen, model.dtype)
    document: dict[str, Any] = {
        "model": {"name": model.name, "device": model.device, "dtype": model.dtype, "lane": model.lane},
        "policies": as_json(six, trace=False),
        "same_text": same_text(six),
    }
    if args.riders:
        return document
    load = rush_hour()
    pace = args.pace if args.pace is not None else load.pace_for(decode_step_s(six))
    crowd = run_both(engine, load, screen, pace)
    report(crowd, screen, model.dtype)
    alike = same_text(six) and same_text(crowd)
    return {**document, "pace": pace, "policies": as_json(crowd, trace=True), "riders": document["policies"], "same_text": alike}


def wait_for_model(engine: Engine, tell: Callable[[str], None]) -> None:
    """Wait until the engine is ready, telling what it is busy with. Raises the EngineError that stopped it."""
    published = threading.Event()
    remove = engine.add_listener(published.set)
    try:
        while engine.snapshot.state in (EngineState.STARTING, EngineState.LOADING):
            model = engine.snapshot.model
            tell(f"loading {model.name}: {model.progress:4.0%}  {model.stage}")
            published.wait(0.2)
            published.clear()
    finally:
        remove()
    engine.wait_ready(0)


def run_both(engine: Engine, load: Load, screen: view.Screen, pace: float = 1.0) -> Both:
    """The load under each policy; the engine forgets what it cached in between."""
    screen.say(f"  {screen.ink.paint(view.load_line(load), view.BOLD)}", "")
    return {policy: run_policy(engine, load, policy, pace=pace, watch=screen.show) for policy in POLICIES}


def report(both: Both, screen: view.Screen, dtype: str) -> None:
    static, in_flight = both[Policy.STATIC], both[Policy.IN_FLIGHT]
    few = len(static.load.requests) <= 8
    lines = view.pictures((static, in_flight), screen.ink)
    if few:
        lines += ["", *view.boarding_table(static, in_flight)]
        lines += ["", *view.answers(in_flight, screen.ink)]
    lines += ["", *view.result_table(static, in_flight), ""]
    screen.say(*lines, f"  {_verdict(both, dtype)}", "")


def _verdict(both: Both, dtype: str) -> str:
    if same_text(both):
        return "Every answer is the same under both, to the last token."
    differing = [name for name, text in both[Policy.STATIC].text.items() if text != both[Policy.IN_FLIGHT].text[name]]
    why = f"{dtype} rounds, and how may depend on the company." if dtype in ROUNDING_DTYPES else "That is a fault worth reporting."
    return f"Not the same under both: {', '.join(differing)}. {why}"


def same_text(both: Both) -> bool:
    static, in_flight = both[Policy.STATIC], both[Policy.IN_FLIGHT]
    return static.text == in_flight.text and static.token_ids == in_flight.token_ids


def as_json(both: Both, trace: bool) -> dict[str, Any]:
    return {str(policy): both[policy].as_json(trace) for policy in POLICIES}


def decode_step_s(both: Both) -> float:
    """The median duration of the steps that only decoded, in seconds."""
    durations = [
        record.duration for run in both.values() for record in run.records if all(row.phase is Phase.DECODE for row in record.rows)
    ]
    return statistics.median(durations) if durations else 0.0


def _complain(message: str, status: int) -> int:
    print(f"omnibus demo: {message}", file=sys.stderr)
    return status
