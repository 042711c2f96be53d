"""The stop where requests wait: by priority class, then those that lost a seat, then the least-served chat, then arrival.

Owns the order of boarding and the fairness counters. Knows nothing of seats and blocks. Within a class the chat whose virtual
counter is smallest boards first; a chat's counter grows with what it is served and is lifted when the chat comes back from
idle, so that nobody saves up credit (Sheng et al., Fairness in Serving Large Language Models, OSDI 2024). Within a chat, arrival
decides. A request that waited too long moves up one class.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Iterator

from engine.scheduling.request import RequestState
from engine.types import Priority

PROMPT_WEIGHT = 1.0
OUTPUT_WEIGHT = 2.0  # a decoded token costs more than a prefilled one; the paper's ratio


class Fairness:
    """A virtual token counter a chat."""

    MOST_IDLE = 4096

    def __init__(self) -> None:
        self._served: dict[str, float] = {}
        self._alive: dict[str, int] = {}
        self._floor = 0.0  # the counter of the chat that boarded last: what a returning chat is lifted to

    def counter(self, chat_id: str) -> float:
        return self._served.get(chat_id, 0.0)

    def arrive(self, chat_id: str) -> None:
        if not self._alive.get(chat_id):
            self._served[chat_id] = max(self.counter(chat_id), self._floor)
        self._alive[chat_id] = self._alive.get(chat_id, 0) + 1

    def leave(self, chat_id: str) -> None:
        left = self._alive.get(chat_id, 0) - 1
        if left > 0:
            self._alive[chat_id] = left
            return
        self._alive.pop(chat_id, None)
        if len(self._served) > self.MOST_IDLE + len(self._alive):
            # A chat at or below the floor would be lifted to it anyway: forgetting it changes nothing.
            self._served = {chat: served for chat, served in self._served.items() if chat in self._alive or served > self._floor}

    def board(self, chat_id: str) -> None:
        self._floor = max(self._floor, self.counter(chat_id))

    def charge(self, chat_id: str, tokens: float) -> None:
        self._served[chat_id] = self.counter(chat_id) + tokens


class _Level:
    """One priority class."""

    def __init__(self) -> None:
        self.returned: list[tuple[int, RequestState]] = []  # lost their seat; by arrival
        self.chats: dict[str, deque[RequestState]] = {}
        self.heap: list[tuple[float, int, str]] = []  # (counter, arrival of the head, chat); may hold stale entries
        self.since: dict[str, RequestState] = {}  # by the time they joined this class, oldest first


class WaitingQueue:
    """All waiting requests, in boarding order."""

    def __init__(self, fairness: Fairness, aging_s: float) -> None:
        self.fairness = fairness
        self.aging_s = aging_s
        self.version = 0  # grows with every change of membership or order
        self._levels = [_Level() for _ in Priority]
        self._requests: dict[str, RequestState] = {}
        self._by_chat: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, request: RequestState) -> bool:
        return request.id in self._requests

    def __iter__(self) -> Iterator[RequestState]:
        return iter(self._requests.values())

    # ---------------------------------------------------------------------------------------------------- membership

    def add(self, request: RequestState, now: float) -> None:
        """A newcomer goes behind its chat's earlier requests; one that lost its seat goes to the head of its class."""
        request.waiting_since = now
        request.level = int(request.priority)
        self._requests[request.id] = request
        self._by_chat[request.chat_id] = self._by_chat.get(request.chat_id, 0) + 1
        self._join(request)

    def remove(self, request: RequestState) -> None:
        del self._requests[request.id]
        left = self._by_chat[request.chat_id] - 1
        if left:
            self._by_chat[request.chat_id] = left
        else:
            del self._by_chat[request.chat_id]
        self._part(request)

    def reclass(self, request: RequestState, priority: Priority, now: float) -> None:
        """Move a waiting request to another class; what aging gave it is kept when it helps."""
        aged = max(0, int(request.priority) - request.level)
        self._part(request)
        request.priority = priority
        request.level = max(0, int(priority) - aged)
        request.waiting_since = now
        self._join(request)

    def served(self, chat_id: str, tokens: float) -> None:
        """Charge a chat; its place among the waiting follows."""
        self.fairness.charge(chat_id, tokens)
        if chat_id in self._by_chat:
            self.version += 1
            for level in self._levels:
                if chat_id in level.chats:
                    self._announce(level, chat_id)

    def age(self, now: float) -> None:
        """Lift those that have waited `aging_s` in their class by one class."""
        for number in range(1, len(self._levels)):
            level = self._levels[number]
            while level.since:
                oldest = next(iter(level.since.values()))
                if now - oldest.waiting_since < self.aging_s:
                    break
                self._part(oldest)
                oldest.level = number - 1
                oldest.waiting_since = now
                self._join(oldest)

    # --------------------------------------------------------------------------------------------------------- order

    def candidates(self) -> Iterator[RequestState]:
        """Waiting requests in boarding order: a chat's next one follows only once its earlier one has been removed.

        The one just yielded may be removed while iterating; nothing else may change.
        """
        for level in self._levels:
            for _, request in list(level.returned):
                yield request
            seen: dict[str, RequestState] = {}
            try:
                while (chat_id := self._pop_chat(level)) is not None:
                    head = level.chats[chat_id][0]
                    if head.id in seen:  # announced twice
                        continue
                    seen[head.id] = head
                    yield head
            finally:  # runs also when the caller stops early
                for head in seen.values():
                    if head in self:  # the removed ones announced their chat's next request themselves
                        self._announce(level, head.chat_id)

    def in_order(self, most: int) -> list[RequestState]:
        """The first `most` requests as they would board if each fitted and nothing more were served. O(n log most)."""

        def key(request: RequestState) -> tuple[int, bool, float, int]:
            returned = request.preemptions > 0
            return request.level, not returned, 0.0 if returned else self.fairness.counter(request.chat_id), request.arrival

        return heapq.nsmallest(most, self._requests.values(), key=key)

    # ------------------------------------------------------------------------------------------------------- insides

    def _join(self, request: RequestState) -> None:
        self.version += 1
        level = self._levels[request.level]
        level.since[request.id] = request
        if request.preemptions:
            insort(level.returned, (request.arrival, request), key=lambda item: item[0])
            return
        line = level.chats.setdefault(request.chat_id, deque())
        place = len(line)
        while place and line[place - 1].arrival > request.arrival:
            place -= 1
        line.insert(place, request)
        if place == 0:
            self._announce(level, request.chat_id)

    def _part(self, request: RequestState) -> None:
        self.version += 1
        level = self._levels[request.level]
        del level.since[request.id]
        if request.preemptions:
            level.returned.remove((request.arrival, request))
            return
        line = level.chats[request.chat_id]
        was_head = line[0] is request
        line.remove(request)
        if not line:
            del level.chats[request.chat_id]
        elif was_head:
            self._announce(level, request.chat_id)

    def _announce(self, level: _Level, chat_id: str) -> None:
        heapq.heappush(level.heap, (self.fairness.counter(chat_id), level.chats[chat_id][0].arrival, chat_id))

    def _pop_chat(self, level: _Level) -> str | None:
        """The chat that boards next; entries overtaken by a change are dropped on the way."""
        while level.heap:
            counter, arrival, chat_id = heapq.heappop(level.heap)
            line = level.chats.get(chat_id)
            if line and line[0].arrival == arrival and self.fairness.counter(chat_id) == counter:
                return chat_id
        return None
