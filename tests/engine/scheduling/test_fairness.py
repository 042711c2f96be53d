"""P12: backlogged chats of one class are served alike, whatever they ask for; who was away saves nothing up and owes nothing.

The bound is the paper's (Sheng et al., OSDI 2024): a chat is ahead by at most one prompt and what its riders may still say.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from engine.scheduling.queue import OUTPUT_WEIGHT, PROMPT_WEIGHT
from engine.sim import Sim
from engine.types import DecisionKind, EngineConfig, Priority, SamplingParams

LONGEST_PROMPT, LONGEST_ANSWER = 40, 30
NO_SHRINKING = (Phase.explicit, Phase.generate)  # the numbers are small already, and every try is hundreds of steps


@dataclass(frozen=True, slots=True)
class Habit:
    """What one chat asks for, always alike."""

    prompt: int
    answer: int
    at_once: int = 5  # how many of its requests wait before a step: more than there are seats, so that it is always backlogged
    priority: Priority = Priority.FOREGROUND


class Street:
    """Chats that always have someone waiting, on a bus with room enough: only turns decide.

    Attributes:
        served: weighted tokens a chat, from the records alone.
    """

    def __init__(self, seats: int, blocks: int = 600) -> None:
        self.seats = seats
        config = EngineConfig(seats=seats, token_budget=256, chunk=64, aging_s=1e9, adapt_chunk=False)
        self.sim = Sim(config, blocks=blocks, block_size=4)
        self.served: Counter[str] = Counter()
        self._count = 0
        self._waiting: Counter[str] = Counter()
        self._prompts: dict[str, int] = {}

    @property
    def bound(self) -> float:
        return PROMPT_WEIGHT * LONGEST_PROMPT + self.seats * OUTPUT_WEIGHT * LONGEST_ANSWER

    def run(self, habits: dict[str, Habit], steps: int) -> None:
        for _ in range(steps):
            for chat, habit in habits.items():
                while self._waiting[chat] < habit.at_once:
                    self._submit(chat, habit)
            before = {request.id: request.output_len for request in self.sim.core.requests.values()}
            record = self.sim.core.step()
            assert record is not None
            for decision in record.decisions:
                if decision.kind is DecisionKind.ADMIT:
                    self._waiting[decision.chat_id] -= 1
                    self.served[decision.chat_id] += PROMPT_WEIGHT * self._prompts[decision.request_id]
            for row in record.rows:
                told = len(self.sim.tokens(row.request_id)) - before.get(row.request_id, 0)
                self.served[row.chat_id] += OUTPUT_WEIGHT * told

    def _submit(self, chat: str, habit: Habit) -> None:
        self._count += 1
        name = f"{chat}{self._count}"
        prompt = [1000 + self._count] * habit.prompt  # nobody begins alike, so nothing is saved by the prefix cache
        params = SamplingParams(max_tokens=habit.answer, ignore_eos=True)
        self._prompts[name] = habit.prompt
        self._waiting[chat] += 1
        self.sim.core.submit(name, prompt, params, chat_id=chat, title="", priority=habit.priority, seed=self._count)


habits = st.builds(Habit, st.integers(1, LONGEST_PROMPT), st.integers(1, LONGEST_ANSWER), st.integers(5, 7))


@settings(max_examples=30, deadline=None, derandomize=True, phases=NO_SHRINKING)
@given(seats=st.integers(1, 4), one=habits, other=habits)
def test_p12_two_backlogged_chats_are_served_alike(seats: int, one: Habit, other: Habit) -> None:
    street = Street(seats)
    for _ in range(12):
        street.run({"one": one, "other": other}, 25)
        assert abs(street.served["one"] - street.served["other"]) <= street.bound


@settings(max_examples=20, deadline=None, derandomize=True, phases=NO_SHRINKING)
@given(seats=st.integers(1, 4), stays=habits, returns=habits, away=st.integers(50, 300))
def test_p12_who_was_away_saves_nothing_up_and_owes_nothing(seats: int, stays: Habit, returns: Habit, away: int) -> None:
    street = Street(seats)
    street.run({"stays": stays, "returns": returns}, 40)
    street.run({"stays": stays}, away)
    before = dict(street.served)
    for _ in range(8):
        street.run({"stays": stays, "returns": returns}, 25)
        gained = {chat: street.served[chat] - before[chat] for chat in before}
        assert abs(gained["stays"] - gained["returns"]) <= 2 * street.bound


def test_p12_a_new_chat_joins_level_with_the_least_served_of_its_own_class() -> None:
    """What the foreground was served must not be held against a newcomer in the background."""
    street = Street(seats=2)
    front, back = Habit(4, 8), Habit(4, 8, 5, Priority.BACKGROUND)
    street.run({"front": front}, 400)
    for _ in range(3):  # the foreground pauses now and then, so that "old" is served a little
        street.run({"old": back}, 6)
        street.run({"front": front, "old": back}, 30)
    before = street.served["old"]
    street.run({"old": back, "new": back}, 200)
    assert street.served["new"] > 0
    assert abs(street.served["old"] - before - street.served["new"]) <= 2 * street.bound


def test_p12_many_requests_of_one_chat_do_not_starve_another() -> None:
    """Thirty tabs' worth of work in one chat, then a single question in another: it boards at the next free seat."""
    street = Street(seats=1)
    flood = Habit(10, 5, at_once=30)
    street.run({"flood": flood}, 20)
    street._submit("single", Habit(3, 2, 1))
    step = 0
    while not street.served["single"] and step < 20:
        street.run({"flood": flood}, 1)
        step += 1
    assert step <= 6  # at most the rest of the answer under way


def test_counters_of_chats_long_gone_are_forgotten_without_giving_credit() -> None:
    street = Street(seats=2, blocks=100)
    fairness = street.sim.core.scheduler.fairness
    fairness.MOST_IDLE = 50
    for number in range(400):
        street.run({f"chat{number}": Habit(3, 2, 1)}, 1)
        assert sum(map(len, fairness.served)) < 50 + 2 * 10
    before = street.served["chat0"]
    street.run({"chat0": Habit(3, 2), "chat999": Habit(3, 2)}, 60)
    assert abs(street.served["chat0"] - before - street.served["chat999"]) <= 2 * street.bound
