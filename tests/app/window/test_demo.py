"""The scripted crowd: everyone comes, in order, at their time and this machine's pace; and nobody after the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from app.window.demo import DemoRun, chat_of
from engine import Message, rush_hour
from tests.app.conftest import settle


@pytest.fixture
def came() -> list[tuple[str, str]]:
    return []


@pytest.mark.parametrize("step_s", [0.0, 0.06, 0.12])
def test_everyone_comes_at_their_time(qapp, no_leftovers, came, step_s):
    now = [50.0]
    run = DemoRun(lambda title, settings, text: came.append((title, text)), lambda: step_s, clock=lambda: now[0])
    run.start()
    load = rush_hour()
    pace = load.pace_for(step_s)
    for elapsed in (0.0, 1.0, 3.0, 1000.0):
        now[0] = 50.0 + elapsed
        run.advance()
        due = [request for request in sorted(load.requests, key=lambda item: item.at_s) if request.at_s * pace <= elapsed]
        assert [title for title, _ in came] == [request.title for request in due]
    assert not run.coming and all(text for _, text in came)


def test_stopped_nobody_comes(qapp, no_leftovers, came):
    now = [0.0]
    run = DemoRun(lambda title, settings, text: came.append((title, text)), lambda: 0.06, clock=lambda: now[0])
    run.start()
    before = len(came)
    assert run.coming
    run.stop()
    now[0] = 1000.0
    run.advance()
    assert len(came) == before and not run.coming


def test_a_request_as_a_chat():
    for request in rush_hour().requests:
        settings, text = chat_of(request)
        assert settings.max_tokens == request.tokens and text
        if not isinstance(request.prompt, str):
            assert all(isinstance(turn, Message) for turn in request.prompt)
            assert settings.system_prompt == "".join(turn.content for turn in request.prompt if turn.role == "system")


CROWD = len(rush_hour().requests)


def let_all_come(window) -> None:
    """A demo, whose crowd comes at once; nobody is answered yet."""
    began = window.demo._clock()
    window.demo._clock = lambda: began
    window.run_demo()
    window.demo._clock = lambda: began + 10_000
    window.demo.advance()


def run_through(window, engine) -> None:
    let_all_come(window)
    engine.run()
    settle()


def press(window, key: str) -> None:
    assert window.parts.demo_bar.isVisible()
    window.parts.demo_bar.choose(key)
    settle()


@pytest.fixture
def own(make_window) -> tuple:
    """A window with a chat of the person's own, in its tab."""
    window, engine = make_window()
    mine = window.new_chat()
    window.send(mine, "a question of mine")
    engine.run()
    settle()
    return window, engine, mine


def test_when_the_demo_is_over_its_chats_can_be_removed_and_brought_back(own):
    window, engine, mine = own
    let_all_come(window)
    assert window.parts.demo_bar.isHidden(), "it is still under way"
    engine.run()
    settle()
    assert len(window.book.listed()) == len(window.open_chats) == CROWD + 1
    press(window, "remove")
    assert [chat.id for chat in window.book.listed()] == [mine] and window.open_chats == (mine,)
    window.bar.choose("undo")
    settle()
    assert len(window.book.listed()) == len(window.open_chats) == CROWD + 1 and window.parts.demo_bar.isHidden()


def go_on(window, engine, chat_id: str) -> None:
    window.send(chat_id, "tell me more")
    engine.run()


def ask_again(window, engine, chat_id: str) -> None:
    window.retry(chat_id)
    engine.run()


def lengthen(window, engine, chat_id: str) -> None:
    window.book.append(window.book[chat_id].last, " and so on")


def set_up(window, engine, chat_id: str) -> None:
    window.book.set_settings(chat_id, replace(window.book[chat_id].settings, temperature=0.123))


OWN: dict[str, Callable] = {
    "gone on with": go_on,
    "asked again": ask_again,
    "made longer": lengthen,
    "renamed": lambda window, engine, chat_id: window.chats.rename(chat_id, "My title"),
    "pinned": lambda window, engine, chat_id: window.chats.pin([chat_id], True),
    "moved": lambda window, engine, chat_id: window.chats.move([chat_id], "Mine"),
    "with a draft": lambda window, engine, chat_id: window.book.set_draft(chat_id, "what about"),
    "set up otherwise": set_up,
}


WHILE_IT_RUNS = [what for what in OWN if what not in ("asked again", "made longer")]  # not before its answer is there


@pytest.mark.parametrize(("what", "while_it_runs"), [*((what, False) for what in OWN), *((what, True) for what in WHILE_IT_RUNS)])
def test_a_chat_of_the_demo_that_the_person_made_their_own_stays(own, what, while_it_runs):
    window, engine, mine = own
    let_all_come(window)
    chat_id = window.open_chats[7]
    if not while_it_runs:
        engine.run()
        settle()
    OWN[what](window, engine, chat_id)
    for _ in range(2):  # what is said while an answer is being written is asked after it
        engine.run()
        settle()
    press(window, "remove")
    assert {chat.id for chat in window.book.listed()} == {mine, chat_id}


def test_chats_that_are_kept_are_not_offered_again_and_those_of_two_runs_go_together(own):
    window, engine, mine = own
    run_through(window, engine)
    press(window, "keep")
    kept = {chat.id for chat in window.book.listed()}
    assert len(kept) == CROWD + 1
    window.after_change(mine)
    assert window.parts.demo_bar.isHidden()
    run_through(window, engine)
    let_all_come(window)
    assert window.parts.demo_bar.isHidden(), "the next crowd comes"
    engine.run()
    settle()
    assert len(window.book.listed()) == 3 * CROWD + 1
    press(window, "remove")
    assert {chat.id for chat in window.book.listed()} == kept


def test_stopped_or_deleted_chats_of_the_demo_do_not_keep_it_from_ending(own):
    window, engine, mine = own
    let_all_come(window)
    window.chats.delete([window.open_chats[5]])
    window.stop_all()
    settle()
    press(window, "remove")
    assert [chat.id for chat in window.book.listed()] == [mine]
