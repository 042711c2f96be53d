"""Workloads for `omnibus bench work`, made from a seed: the same work for every engine, and other work for every seed.

Owns the seven kinds of work and their made-up prose. A workload is plain data (a dict, as in a JSON file):

    name, title, seats, max_len (most positions a chat), kv_tokens (positions in the cache), time_limit_s, report (extra figures)
    requests: id, output_tokens, messages, and one of
        at     seconds after the start
        after  the id of an earlier turn of the same chat: its messages and its answer come before
        when   {"ids", "tokens"}: starts once each of these has got so many tokens

Prompt lengths are token counts of the tokenizer at hand, which comes in as a callable.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.types import EngineError

Work = dict[str, Any]
Count = Callable[[str], int]

RATE = 1.2  # W3: chats a second
ROOMY = {"seats": 8, "max_len": 6144, "kv_tokens": 24576}
TEMPLATE_TOKENS = 6  # what a chat template puts around a message, about

PEOPLE = """the carpenter;a young pilot;my aunt;the beekeeper;two students;the shop owner;an old sailor;the doctor's son
our mayor;a tired courier
the choir leader;a visiting painter;the goalkeeper;her grandfather"""
DEEDS = "found;mended;lost;drew;traded;hung up;opened;hid;praised;washed;wrapped;sketched;tested;moved"
THINGS = """a tin box;the green door;nine candles;an empty frame;the tall clock;a sack of flour;the torn sail;a silver spoon;two letters
the long bench;a bundle of keys;the garden gate;a pot of ink;the third drawer"""
PLACES = """at the market;before dawn;in the attic;during the storm;by the well;after supper;on the last day;at the crossing
beneath the stairs
without telling anyone;near the old wall;for a whole week;in the rain;behind the bakery"""
WORDS = [part.replace("\n", ";").split(";") for part in (PEOPLE, DEEDS, THINGS, PLACES)]
ASKS = (
    "What would you do in their place?",
    "Retell this as a short letter.",
    "Which of these facts matter most, and why?",
    "Continue the story.",
    "Put the events in order.",
    "What can be concluded from this?",
)
SYSTEM = "You help people with their questions. Be clear and friendly."


class Writer:
    """Prose and requests from one seed."""

    def __init__(self, count: Count, seed: str) -> None:
        self.count = count
        self.random = random.Random(seed)

    def sentence(self) -> str:
        words = " ".join(self.random.choice(part) for part in WORDS)
        return words[0].upper() + words[1:] + "."

    def prose(self, tokens: int) -> str:
        """At most `tokens` tokens of sentences, and close to it."""
        sentences: list[str] = []
        length = 0
        while length < tokens:
            sentences.append(self.sentence())
            length += self.count(" " + sentences[-1])
        words = " ".join(sentences).split(" ")
        while len(words) > 1 and (over := self.count(" ".join(words)) - tokens) > 0:
            del words[-max(1, over // 2) :]
        return " ".join(words)

    def request(self, name: str, prompt_tokens: int, output_tokens: int, system: str = SYSTEM, **more: Any) -> dict[str, Any]:
        """A chat's first message of about `prompt_tokens`, its frame included."""
        ask = self.random.choice(ASKS)
        body = prompt_tokens - self.count(ask) - self.count(system) - 2 * TEMPLATE_TOKENS
        messages = [{"role": "system", "content": system}, {"role": "user", "content": f"{self.prose(max(1, body))}\n{ask}"}]
        when: dict[str, Any] = {} if more.keys() & {"after", "when"} else {"at": 0.0}
        return {"id": name, **when, "output_tokens": output_tokens, "messages": messages, **more}

    def heavy_tail(self, median: float, sigma: float, low: int, high: int) -> int:
        return int(min(high, max(low, self.random.lognormvariate(math.log(median), sigma))))


def make_work(name: str, count: Count, seed: int = 1, rate: float = RATE) -> Work:
    """One workload. `rate` is W3's, in chats a second. Raises EngineError("unknown_work")."""
    if name not in MAKERS:
        raise EngineError("unknown_work", f"There is no workload named {name}.", f"Choose among {', '.join(MAKERS)}.")
    work = MAKERS[name](Writer(count, f"{name}/{seed}"), rate)
    return {"name": name, **work}


def load_work(path: str) -> Work:
    """A workload from a JSON file. Raises EngineError("bad_work") when it is none."""
    try:
        work = json.loads(Path(path).read_text(encoding="utf-8"))
        check_work(work)
    except OSError as error:
        raise EngineError("bad_work", f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise EngineError(
            "bad_work", f"{path} is not a workload: {error}.", "It must be as engine/bench/workloads.py describes."
        ) from error
    return dict(work)


def check_work(work: Mapping[str, Any]) -> None:
    """Raise KeyError, TypeError or ValueError when a workload could not be played."""
    ids = [request["id"] for request in work["requests"]]
    if not ids or len(set(ids)) != len(ids):
        raise ValueError("its requests need ids, each its own")
    if min(int(work["seats"]), int(work["max_len"]), int(work["kv_tokens"])) < 1 or float(work["time_limit_s"]) <= 0:
        raise ValueError("seats, max_len, kv_tokens and time_limit_s must be above 0")
    started: set[str] = set()
    for request in work["requests"]:
        if int(request["output_tokens"]) < 1 or not all(message["role"] and "content" in message for message in request["messages"]):
            raise ValueError(f"request {request['id']} asks for nothing")
        before = {request["after"]} if "after" in request else set(request["when"]["ids"]) if "when" in request else set()
        if not before <= started:
            raise ValueError(f"request {request['id']} waits for one that does not come before it")
        if not before:
            float(request["at"])
        started.add(request["id"])


# ------------------------------------------------------------------------------------------------------------- the seven


def _three(writer: Writer, rate: float) -> Work:
    riders = [writer.request(name, 48, tokens) for name, tokens in (("A", 8), ("B", 2), ("C", 6))]
    return {"title": "three riders on three seats", **_small(), "requests": riders}


def _six(writer: Writer, rate: float) -> Work:
    stops = (("A", 8), ("B", 2), ("C", 6), ("D", 8), ("E", 2), ("F", 6))
    riders = [writer.request(name, 48, tokens) for name, tokens in stops]
    return {"title": "six riders, three seats: three wait", **_small(), "requests": riders}


def _small() -> Work:
    return {"seats": 3, "max_len": 2048, "kv_tokens": 6144, "time_limit_s": 60, "report": ["finish"]}


def _crowd(writer: Writer, rate: float) -> Work:
    lengths = [writer.heavy_tail(64, 1.0, 8, 512) for _ in range(14)] + [8, 512]
    writer.random.shuffle(lengths)
    requests = [writer.request(f"r{number}", writer.random.randint(30, 300), tokens) for number, tokens in enumerate(lengths)]
    return {"title": "sixteen chats at once, heavy-tailed answers, eight seats", **ROOMY, "time_limit_s": 240, "requests": requests}


def _arrivals(writer: Writer, rate: float) -> Work:
    requests: list[dict[str, Any]] = []
    at = writer.random.expovariate(rate)
    while at < 60:
        name, prompt = f"p{len(requests)}", writer.random.randint(30, 300)
        requests.append(writer.request(name, prompt, writer.heavy_tail(56, 0.8, 8, 256), at=round(at, 4)))
        at += writer.random.expovariate(rate)
    return {
        "title": f"chats arrive for a minute, {rate} a second at random",
        **ROOMY,
        "time_limit_s": 120,
        "goal": {"ttft_s": 1.0, "itl_p95_s": 0.1},
        "report": ["goodput"],
        "requests": requests,
    }


def _long_prompt(writer: Writer, rate: float) -> Work:
    chats = [writer.request(f"d{number}", 60, 384) for number in range(7)]
    long = writer.request("L", 4096, 16, when={"ids": [chat["id"] for chat in chats], "tokens": 24})
    return {
        "title": "a long prompt arrives while seven chats are being answered",
        **ROOMY,
        "time_limit_s": 240,
        "long": "L",
        "report": ["stall"],
        "requests": [*chats, long],
    }


def _turns(writer: Writer, rate: float) -> Work:
    system = writer.prose(1024)
    requests = []
    for chat in range(8):
        for turn in range(1, 7):
            ask, body = writer.random.choice(ASKS), writer.prose(writer.random.randint(18, 48))
            messages = [{"role": "user", "content": f"{body}\n{ask}"}]
            start: dict[str, Any] = {"at": 0.0} if turn == 1 else {"after": f"c{chat}t{turn - 1}"}
            if turn == 1:
                messages.insert(0, {"role": "system", "content": system})
            requests.append({"id": f"c{chat}t{turn}", **start, "turn": turn, "output_tokens": 48, "messages": messages})
    return {
        "title": "eight chats of six turns under one long system prompt",
        **ROOMY,
        "time_limit_s": 280,
        "report": ["turns"],
        "requests": requests,
    }


def _alone(writer: Writer, rate: float) -> Work:
    requests = [writer.request("solo", 64, 256)]
    return {"title": "one chat alone", **ROOMY, "time_limit_s": 60, "report": ["decode"], "requests": requests}


def _tight(writer: Writer, rate: float) -> Work:
    sizes = [(writer.random.randint(120, 280), writer.random.randint(120, 280)) for _ in range(12)]
    requests = [writer.request(f"k{number}", prompt, tokens) for number, (prompt, tokens) in enumerate(sizes)]
    return {
        "title": "twelve chats at once, cache for about three",
        "seats": 12,
        "max_len": 1024,
        "kv_tokens": 1280,
        "time_limit_s": 240,
        "report": ["lost"],
        "requests": requests,
    }


MAKERS: dict[str, Callable[[Writer, float], Work]] = {
    "W1": _three,
    "W1q": _six,
    "W2": _crowd,
    "W3": _arrivals,
    "W4": _long_prompt,
    "W5": _turns,
    "W6": _alone,
    "W7": _tight,
}
