"""The scripted crowd: everyone comes, in order, at their time and this machine's pace; and nobody after the end."""

from __future__ import annotations

import pytest

from app.window.demo import DemoRun, chat_of
from engine import Message, rush_hour


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
