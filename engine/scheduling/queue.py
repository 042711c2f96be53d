"""The stop where requests wait: by priority class, then those that lost a seat, then the least-served chat, then arrival.

Owns the order of boarding and the fairness counters. Knows nothing of seats and blocks. Within a class the chat whose virtual
counter is smallest boards first; a chat's counter grows with what it is served in that class, and is lifted when the chat comes
back to the stop, so that nobody saves up credit (Sheng et al., Fairness in Serving Large Language Models, OSDI 2024). Within a
chat, arrival decides. A request that waited too long moves up one class.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Iterator

from engine.scheduling.request import RequestState
from engine.scheduling.standing import PROMPT_WEIGHT, Standing, standing_of
from engine.types import Priority

OUTPUT_WEIGHT = 2.0  # a decoded token costs more than a prefilled one; the paper's ratio

Key = tuple[float, int, str]  # (counter, arrival of the chat's first waiting request, chat)


class Fairness:
    """Virtual token counters, one a chat and class: what a chat is served in one class says nothing about its turn in another."""

    MOST_IDLE = 4096

    def __init__(self) -> None:
        self.served: list[dict[str, float]] = [{} for _ in Priority]
        self._alive: dict[str, int] = {}
        self._floor = [0.0 for _ in Priority]  # nobody who waits in this class stands, or will ever stand, below it

    def counter(self, level: int, chat_id: str) -> float:
        return self.served[level].get(chat_id, 0.0)

    def lift(self, level: int, chat_id: str, least: float) -> None:
        """A chat comes to a stop where the least-served one stands at `least`."""
        self._floor[level] = max(self._floor[level], least)
        self.served[level][chat_id] = max(self.counter(level, chat_id), self._floor[level])

    def now(self) -> tuple[dict[str, float], ...]:
        """All counters as they are, by class."""
        return tuple(served.copy() for served in self.served)

    def inherit(self, other: Fairness) -> None:
        self.served, self._floor = other.served, other._floor

    def arrive(self, chat_id: str) -> None:
        self._alive[chat_id] = self._alive.get(chat_id, 0) + 1

    def leave(self, chat_id: str) -> None:
        left = self._alive.get(chat_id, 0) - 1
        if left > 0:
            self._alive[chat_id] = left
            return
        self._alive.pop(chat_id, None)
        for level, served in enumerate(self.served):
            if len(served) > self.MOST_IDLE + 2 * len(self._alive):
                # A chat at or below the floor would be lifted to it anyway: forgetting it changes nothing.
                self.served[level] = {chat: at for chat, at in served.items() if chat in self._alive or at > self._floor[level]}


class _Level:
    """One priority class.

    `heap` holds one entry a chat that counts, the one in `entry`. A chat's key only grows while it is being served, so an outdated
    entry comes up too early, never too late, and is mended then.
    """

    def __init__(self) -> None:
        self.returned: list[tuple[int, RequestState]] = []  # lost their seat; by arrival
        self.chats: dict[str, deque[RequestState]] = {}
        self.heap: list[Key] = []
        self.entry: dict[str, Key] = {}
        self.since: dict[str, RequestState] = {}  # by the time they joined this class, oldest first
        self.last = ""  # the chat that left this stop last


class WaitingQueue:
    """All waiting requests, in boarding order."""

    def __init__(self, fairness: Fairness, aging_s: float) -> None:
        self.fairness = fairness
        self.aging_s = aging_s
        self.version = 0  # grows with every change of membership or order
        self._levels = [_Level() for _ in Priority]
        self._requests: dict[str, RequestState] = {}
        self._standings: dict[str, Standing] = {}
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
        del self._requests[request.id], self._standings[request.id]
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

    def note_limit(self, request: RequestState) -> None:
        """How long it may become was changed while it waits."""
        self._standings[request.id] = standing_of(request)

    def served(self, request: RequestState, tokens: float) -> None:
        """Charge a rider's chat in the class that it rides in; the chat's place among the waiting follows."""
        chat_id, served = request.chat_id, self.fairness.served[request.level]
        served[chat_id] = served.get(chat_id, 0.0) + tokens
        if chat_id in self._by_chat:
            self.version += 1

    def age(self, now: float) -> None:
        """Lift those that have waited `aging_s` in their class by one class."""
        for number in range(1, len(self._levels)):
            since = self._levels[number].since
            while since:
                oldest = next(iter(since.values()))
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
        for number, level in enumerate(self._levels):
            for _, request in list(level.returned):
                yield request
            passed: list[str] = []
            try:
                while (chat_id := self._pop_chat(number)) is not None:
                    passed.append(chat_id)
                    yield level.chats[chat_id][0]
            finally:  # runs also when the caller stops early
                for chat_id in passed:
                    self._announce(number, chat_id)

    @property
    def standings(self) -> tuple[Standing, ...]:
        """Of all, in no order; `boarding_order` knows it."""
        return tuple(self._standings.values())

    def standing(self, request: RequestState) -> Standing:
        return self._standings[request.id]

    def in_order(self, most: int) -> list[RequestState]:
        """The first `most` requests as they would board one after another if each fitted: every boarding charges its chat's prompt."""
        order: list[RequestState] = []
        for number, level in enumerate(self._levels):
            order += [request for _, request in level.returned]
            heap, mended = list(level.heap), dict[str, Key]()
            taken, charged = dict[str, int](), dict[str, float]()
            while heap and len(order) < most:
                key = heapq.heappop(heap)
                chat_id = key[2]
                line = level.chats.get(chat_id)
                if line is None or (mended.get(chat_id) or level.entry.get(chat_id)) is not key:
                    continue
                place = taken.get(chat_id, 0)
                true = (self.fairness.counter(number, chat_id) + charged.get(chat_id, 0.0), line[place].arrival, chat_id)
                if true == key:
                    order.append(line[place])
                    place = taken[chat_id] = place + 1
                    if place == len(line):
                        continue
                    charged[chat_id] = charged.get(chat_id, 0.0) + PROMPT_WEIGHT * line[place - 1].known
                    true = (self.fairness.counter(number, chat_id) + charged[chat_id], line[place].arrival, chat_id)
                mended[chat_id] = true
                heapq.heappush(heap, true)
            if len(order) >= most:
                break
        return order[:most]

    # ------------------------------------------------------------------------------------------------------- insides

    def _join(self, request: RequestState) -> None:
        self.version += 1
        level, chat_id = self._levels[request.level], request.chat_id
        level.since[request.id] = request
        self._standings[request.id] = standing_of(request)
        if request.preemptions:
            insort(level.returned, (request.arrival, request), key=lambda item: item[0])
            return
        line = level.chats.get(chat_id)
        if line is None:
            self.fairness.lift(request.level, chat_id, self._least(request.level))
            line = level.chats[chat_id] = deque()
        place = len(line)
        while place and line[place - 1].arrival > request.arrival:
            place -= 1
        line.insert(place, request)
        if place == 0:
            self._announce(request.level, chat_id)

    def _part(self, request: RequestState) -> None:
        self.version += 1
        level = self._levels[request.level]
        del level.since[request.id]
        if request.preemptions:
            level.returned.remove((request.arrival, request))
            return
        line = level.chats[request.chat_id]
        line.remove(request)
        if line:
            self._announce(request.level, request.chat_id)
        else:
            del level.chats[request.chat_id]
            level.last = request.chat_id

    def _least(self, number: int) -> float:
        """The counter of the least-served chat at this stop; when nobody is there, of the one that left last."""
        chat_id = self._pop_chat(number)
        if chat_id is None:
            return self.fairness.counter(number, self._levels[number].last)
        self._announce(number, chat_id)
        return self.fairness.counter(number, chat_id)

    def _key(self, number: int, chat_id: str) -> Key:
        return self.fairness.counter(number, chat_id), self._levels[number].chats[chat_id][0].arrival, chat_id

    def _announce(self, number: int, chat_id: str) -> None:
        """See to it that the heap has an entry that comes up no later than this chat's turn."""
        level = self._levels[number]
        if chat_id not in level.chats:
            return
        key, entry = self._key(number, chat_id), level.entry.get(chat_id)
        if entry is not None and entry <= key:
            return
        level.entry[chat_id] = key
        heapq.heappush(level.heap, key)
        if len(level.heap) > 64 + 2 * len(level.chats):  # entries of chats that went away while others stood before them
            level.entry = {chat: self._key(number, chat) for chat in level.entry if chat in level.chats}
            level.heap = list(level.entry.values())
            heapq.heapify(level.heap)

    def _pop_chat(self, number: int) -> str | None:
        """Take the chat that boards next out of the heap."""
        level = self._levels[number]
        while level.heap:
            entry = heapq.heappop(level.heap)
            chat_id = entry[2]
            if level.entry.get(chat_id) is not entry:
                continue
            del level.entry[chat_id]
            if chat_id not in level.chats:
                continue
            key = self._key(number, chat_id)
            if key == entry:
                return chat_id
            level.entry[chat_id] = key
            heapq.heappush(level.heap, key)
        return None
