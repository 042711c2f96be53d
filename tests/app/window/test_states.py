"""A chat's state out of a snapshot: ring, place, share, speed, words."""

from __future__ import annotations

from dataclasses import replace

from app.chats.model import AnswerState, Chat, ChatMessage, Role
from app.window.states import IDLE, ChatState, Stage, model_words, riding, state_of
from engine import EngineState, Priority
from tests.app.fakes import FakeEngine, Script


def submit(engine: FakeEngine, chat_id: str, **script) -> None:
    engine.scripts.append(Script(**script))
    engine.submit([], None, chat_id=chat_id, title=chat_id, priority=Priority.FOREGROUND)


def test_stages_places_and_shares():
    engine = FakeEngine(seats=2)
    submit(engine, "a", prefill_ticks=0, pieces=("x",) * 9)
    submit(engine, "b", prefill_ticks=4)
    submit(engine, "c")
    submit(engine, "d")
    engine.tick(2)
    states = riding(engine.snapshot)
    assert (states["a"].stage, states["a"].seat, states["a"].tokens) == (Stage.DECODE, 0, 2)
    assert states["a"].words == "Seat 1  ·  12.5 tok/s  ·  2 tokens"
    assert (states["b"].stage, states["b"].seat, states["b"].share) == (Stage.PREFILL, 1, 0.5)
    assert states["b"].words == "Seat 2  ·  reading 10 tokens, 50%"
    assert (states["c"].stage, states["c"].place, states["d"].place) == (Stage.QUEUED, 1, 2)
    assert states["d"].words == "Queued, 2nd in line: no free seat  ·  starts in about 2.0 s"


def test_a_chat_far_behind_has_its_place_and_its_start_where_it_is_asked_for():
    engine = FakeEngine(seats=1, first=2)
    for number in range(9):
        submit(engine, f"c{number}", pieces=("x",) * 9)
    engine.tick()
    assert set(riding(engine.snapshot)) == {"c0", "c1", "c2"}
    states = riding(engine.snapshot, ("c0", "c2", "c7", "nobody's"))
    assert (states["c7"].place, states["c7"].words) == (7, "Queued, 7th in line: no free seat  ·  starts in about 2.0 s")
    assert states["c0"].seat == 0 and states["c2"].place == 2 and set(states) == {"c0", "c1", "c2", "c7"}
    elsewhere = replace(FakeEngine().snapshot, others=(engine.snapshot,))
    assert riding(elsewhere, ("c7",))["c7"] == states["c7"]


def test_a_loading_model_is_named_as_the_reason():
    engine = FakeEngine(state=EngineState.LOADING, progress=0.45)
    submit(engine, "a")
    engine.tick()
    assert riding(engine.snapshot)["a"].words == "Waits for the model: reading weights, 45%"
    assert model_words(engine.snapshot) == "Reading weights, 45%"


def test_a_chat_that_rides_and_waits_is_shown_riding():
    engine = FakeEngine(seats=1)
    submit(engine, "a", prefill_ticks=0, pieces=("x",) * 9)
    submit(engine, "a")
    engine.tick()
    assert riding(engine.snapshot)["a"].stage is Stage.DECODE


def test_what_is_not_under_way_is_idle_unread_or_failed():
    chat = Chat("c")
    assert state_of(chat, active=False, known={}) == IDLE
    assert state_of(chat, active=True, known={}) == ChatState(Stage.QUEUED, words="Queued")
    chat.tree.add(ChatMessage("m", Role.ASSISTANT, state=AnswerState.FAILED), None)
    chat.unread = True
    assert state_of(chat, active=False, known={}).stage is Stage.ERROR
    chat.messages[0].state = AnswerState.DONE
    assert state_of(chat, active=False, known={}).stage is Stage.UNREAD
