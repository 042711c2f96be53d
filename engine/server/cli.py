"""`omnibus serve`: the engine behind an OpenAI-compatible API, without a window."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from engine.engine import Engine
from engine.server.access import VARIABLE, stored_token, token_file
from engine.types import CLASS_DTYPES, KV_CLASSES, EngineConfig

PORT = 8420
LOOK_S = 0.25

EPILOG = f"""The server listens on this machine only, and asks for a bearer token, which is made at the first start and kept in
{{file}}. The variable {VARIABLE} or --token gives another. Every path but /health needs it."""


def add_parser(subparsers: Any) -> None:
    epilog = EPILOG.format(file=token_file())
    parser = subparsers.add_parser("serve", help="serve an OpenAI-compatible API", epilog=epilog)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)")
    parser.add_argument("--port", type=int, default=PORT, help=f"port to listen on; 0 takes a free one (default: {PORT})")
    access = parser.add_mutually_exclusive_group()
    access.add_argument("--token", help="the bearer token that clients must send")
    access.add_argument("--no-token", action="store_true", help="let every program on this machine in")
    parser.add_argument("--model", default="starter", help="a model folder or file (default: the starter model)")
    parser.add_argument("--model-name", action="append", default=[], metavar="NAME", help="what clients call it; may be repeated")
    parser.add_argument("--device", default="auto")
    precision = parser.add_mutually_exclusive_group()
    precision.add_argument("--dtype", default="auto")
    precision.add_argument("--class", dest="precision", choices=CLASS_DTYPES, help="precision of weights and cache")
    kept = "what keys and values are kept in: 8-bit takes half of 16 bits (default: auto)"
    parser.add_argument("--kv-class", choices=KV_CLASSES, default="auto", help=kept)
    parser.add_argument("--seats", type=int, default=8, help="most requests in one batch (default: 8)")
    parser.add_argument("--kv-tokens", type=int, help="positions of the KV pool (default: what memory allows)")
    aside = "positions of idle chats to set aside in memory when the pool is full, and to bring back where that is quicker than reading"
    parser.add_argument("--tier-tokens", type=int, default=0, metavar="N", help=f"{aside} (default: 0, none)")
    parser.add_argument("--tier-folder", metavar="FOLDER", help="set them aside in a file in this folder, and not in memory")
    draft = "guess at most so many tokens ahead from the text itself (up to 16; 0 is off); answers stay the same (default: where it pays)"
    parser.add_argument("--draft-tokens", type=int, default=None, help=draft)
    same = "the same prompt and seed give the same answer in any company; without our own CPU kernels, answers then come one at a time"
    parser.add_argument("--reproducible", action="store_true", help=same)
    parser.add_argument("--context", type=int, help="most positions of a request (default: the model's)")
    parser.add_argument("--threads", type=int, help="torch threads (default: what the machine has to spare)")
    parser.add_argument("--max-queue", type=int, default=256, help="requests that may wait; more get 429 (default: 256)")
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME", help="a further Host name that clients may use")
    parser.add_argument("--allow-origin", action="append", default=[], metavar="URL", help="a web origin whose pages may use the API")


def run(args: argparse.Namespace) -> int:
    """Until SIGINT or SIGTERM. Raises EngineError for an unsafe address, a taken port, or a model that cannot be loaded."""
    from engine.server.serving import ApiServer  # uvicorn and starlette: only for this

    config = EngineConfig(
        model=args.model,
        device=args.device,
        dtype=CLASS_DTYPES[args.precision] if args.precision else args.dtype,
        seats=args.seats,
        draft_tokens=args.draft_tokens,
        reproducible=args.reproducible,
        kv_class=args.kv_class,
        kv_tokens=args.kv_tokens,
        tier_tokens=args.tier_tokens,
        tier_folder=args.tier_folder,
        context=args.context,
        threads=args.threads,
    )
    engine = Engine(config)
    token, whence = choose_token(args.token, args.no_token)
    server = ApiServer(
        engine,
        token,
        host=args.host,
        port=args.port,
        most_waiting=args.max_queue,
        names=args.model_name,
        hosts=args.allow_host,
        origins=args.allow_origin,
    )
    stop = threading.Event()

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, ask_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.start()
        engine.start()
        if wait_for_model(engine, stop):
            name = args.model_name[0] if args.model_name else engine.snapshot.model.name
            print(f"Omnibus serves {name} at {server.url} {whence}", flush=True)
        while not stop.wait(LOOK_S):
            pass
    finally:
        server.stop()
        engine.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


def choose_token(given: str | None, none: bool) -> tuple[str | None, str]:
    """(token, what the ready line says of it): --no-token, --token, the environment, or the stored one."""
    if none:
        return None, "without a token"
    token = given if given is not None else os.environ.get(VARIABLE)
    if token is not None:
        return token, "with the given token"
    if sys.stdout.isatty():
        return stored_token(), f"with the token {stored_token()}"
    return stored_token(), f"with the token in {token_file()}"  # a log file is no place for it


def wait_for_model(engine: Engine, stop: threading.Event) -> bool:
    """Whether the model is ready; False when the person stopped it first. Raises the EngineError that stopped the loading."""
    while not stop.is_set():
        try:
            engine.wait_ready(LOOK_S)
        except TimeoutError:
            continue
        return True
    return False
