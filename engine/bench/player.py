"""Plays a workload to any engine and notes when each token reached the client.

Owns arrivals, turns that follow answers, and the time limit. Knows nothing of the engine that answers: that one takes requests through
`Contestant.submit` and tells of tokens through `Told`, from whatever thread it likes. Times are seconds of time.monotonic.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.bench.workloads import Work

Messages = list[dict[str, str]]


class Contestant(Protocol):
    """An engine that takes part. Its constructor loads the model."""

    def submit(self, request_id: str, messages: Messages, tokens: int) -> None:
        """Returns at once. Greedy, exactly `tokens` tokens, end-of-text ignored."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _News:
    request_id: str
    at: float
    tokens: int = 0
    done: bool = False
    text: str = ""
    error: str = ""


class Told:
    """Where a contestant tells what happens; safe from any thread."""

    def __init__(self) -> None:
        self._news: queue.SimpleQueue[_News] = queue.SimpleQueue()

    def tokens(self, request_id: str, count: int = 1) -> None:
        """`count` new tokens of an answer are out."""
        self._news.put(_News(request_id, time.monotonic(), tokens=count))

    def done(self, request_id: str, text: str) -> None:
        self._news.put(_News(request_id, time.monotonic(), done=True, text=text))

    def failed(self, request_id: str, why: str) -> None:
        self._news.put(_News(request_id, time.monotonic(), done=True, error=why))

    def next(self, timeout: float) -> _News | None:
        try:
            return self._news.get(timeout=max(0.0, timeout))
        except queue.Empty:
            return None


@dataclass(slots=True)
class Outcome:
    """What became of one request.

    Attributes:
        sent: when it was submitted; None if it never was.
        times: when news of tokens came, one entry a piece of news.
        counts: tokens in each.
    """

    id: str
    wanted: int
    turn: int = 1
    sent: float | None = None
    times: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    text: str = ""
    error: str = ""
    ended: bool = False

    @property
    def tokens(self) -> int:
        return sum(self.counts)

    @property
    def whole(self) -> bool:
        return self.ended and not self.error and self.tokens == self.wanted

    @property
    def ttft(self) -> float | None:
        return self.times[0] - self.sent if self.times and self.sent is not None else None

    @property
    def gaps(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]


def play(
    work: Work, contestant: Contestant, told: Told, salt: str, progress: Callable[[int, int], None] = lambda ended, of: None
) -> list[Outcome]:
    """Run one workload once; returns the outcomes in the workload's order. Those not over in time say so.

    Args:
        salt: new for every run. It marks the first message, so that nothing is served from what an engine cached in an earlier run, and
            the ids that the contestant sees, so that late news of an earlier run is not taken for this one's.
        progress: called with (requests ended, requests).
    """
    return _Play(work, contestant, told, salt, progress).run()


class _Play:
    def __init__(self, work: Work, contestant: Contestant, told: Told, salt: str, progress: Callable[[int, int], None]) -> None:
        self.work, self.contestant, self.told, self.salt, self.progress = work, contestant, told, salt, progress
        self.requests: list[dict[str, Any]] = work["requests"]
        self.outcomes = {
            request["id"]: Outcome(request["id"], int(request["output_tokens"]), int(request.get("turn", 1))) for request in self.requests
        }
        self.talk: dict[str, Messages] = {}  # by request: its messages and those before
        timed = [request for request in self.requests if "after" not in request and "when" not in request]
        self.timed = sorted(timed, key=lambda request: float(request["at"]))
        self.held = [request for request in self.requests if "after" in request or "when" in request]
        self.ended = 0

    def run(self) -> list[Outcome]:
        start = time.monotonic()
        limit = start + float(self.work["time_limit_s"])
        while self.ended < len(self.outcomes):
            now = time.monotonic()
            while self.timed and start + float(self.timed[0]["at"]) <= now:
                self._start(self.timed.pop(0))
            due = start + float(self.timed[0]["at"]) if self.timed else limit
            news = self.told.next(min(due, limit) - time.monotonic())
            if news is not None:
                self._note(news)
            if time.monotonic() >= limit:
                break
        for outcome in self.outcomes.values():
            if not outcome.ended:
                outcome.error = "not finished in time" if outcome.sent is not None else "never started in time"
        return [self.outcomes[request["id"]] for request in self.requests]

    def _note(self, news: _News) -> None:
        run, _, name = news.request_id.partition("/")
        outcome = self.outcomes.get(name) if run == self.salt else None
        if outcome is None or outcome.ended:
            return
        if news.tokens:
            outcome.times.append(news.at)
            outcome.counts.append(news.tokens)
        if news.done:
            outcome.ended, outcome.text, outcome.error = True, news.text, news.error
            self.talk[outcome.id].append({"role": "assistant", "content": news.text})
            self.ended += 1
            self.progress(self.ended, len(self.outcomes))
        for request in [held for held in self.held if self._ready(held)]:
            self.held.remove(request)
            self._start(request)

    def _ready(self, request: dict[str, Any]) -> bool:
        if "after" in request:
            return self.outcomes[request["after"]].ended
        when = request["when"]
        return all(self.outcomes[name].ended or self.outcomes[name].tokens >= when["tokens"] for name in when["ids"])

    def _start(self, request: dict[str, Any]) -> None:
        messages = [dict(message) for message in request["messages"]]
        if "after" in request:
            messages = self.talk[request["after"]] + messages
        else:
            messages[0]["content"] = f"[{self.salt}] {messages[0]['content']}"
        self.talk[request["id"]] = messages
        self.outcomes[request["id"]].sent = time.monotonic()
        self.contestant.submit(f"{self.salt}/{request['id']}", list(messages), int(request["output_tokens"]))
