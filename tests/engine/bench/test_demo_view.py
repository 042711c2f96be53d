"""What the demo draws: widths, holes, colours, and that a stream which is no terminal stays clean."""

from __future__ import annotations

import io
import re
import shutil
from dataclasses import replace

import pytest

from engine import Engine, Phase, Policy, Priority, QueueView, SeatView
from engine.bench import demo_view as view
from engine.bench.load import riders
from engine.bench.policy_run import PolicyRun, Progress, run_policy
from tests.engine.bench.made_up import make_crowd, wait_for

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def seen(line: str) -> str:
    return CONTROL.sub("", line)


def make_frames(engine: Engine, policy: Policy, width: int, height: int, colours: bool = False) -> list[list[str]]:
    frames: list[list[str]] = []
    ink = view.Ink(colours)

    def watch(progress: Progress) -> None:
        frames.append(view.frame(progress, ink, width, height))

    load = make_crowd(seats=8)
    engine.pause()
    run_policy(engine, load, policy, pace=0.0, watch=watch)
    return frames


@pytest.fixture
def six(engine: Engine) -> tuple[PolicyRun, PolicyRun]:
    return run_policy(engine, riders(), Policy.STATIC), run_policy(engine, riders(), Policy.IN_FLIGHT)


@pytest.mark.parametrize("width", [120, 79, 60, 5])
@pytest.mark.parametrize("colours", [False, True])
def test_a_frame_fits_its_terminal(engine: Engine, width: int, colours: bool) -> None:
    for lines in make_frames(engine, Policy.IN_FLIGHT, width, 23, colours):
        assert len(lines) <= 23
        assert max(len(seen(line)) for line in lines) <= width


def make_seat(number: int, phase: Phase, prompt: int, computed: int, output: int, most: int) -> SeatView:
    return SeatView(
        seat=number,
        request_id=f"r{number}",
        chat_id="c",
        title="A title of many words",
        phase=phase,
        priority=Priority.FOREGROUND,
        prompt_tokens=prompt,
        computed_tokens=computed,
        known_tokens=prompt + output,
        output_tokens=output,
        max_output_tokens=most,
        cached_tokens=0,
        blocks=4096,
        preemptions=0,
        boarded_step=1,
        tok_s=1.0,
    )


@pytest.mark.parametrize("width", [79, 40])
def test_long_titles_and_large_numbers_do_not_break_the_frame(engine: Engine, width: int) -> None:
    """A line that wraps would leave a part of itself behind when the next frame is drawn over it."""
    run = run_policy(engine, make_crowd(seats=8), Policy.IN_FLIGHT)
    seats = (
        make_seat(0, Phase.PREFILL, 123_456, 65_432, 0, 99),
        make_seat(1, Phase.DECODE, 123_456, 123_456, 8_000, 8_192),
        make_seat(2, Phase.DECODE, 9, 123_456, 123_000, 123_456),
        *[None] * 5,
    )
    waiting = tuple(replace(view_, title="Somebody " * 20, detail="because " * 30) for view_ in make_queue(engine))
    snapshot = replace(engine.snapshot, seats=seats, queue=waiting, waiting=100)
    progress = Progress(run.load, run.policy, snapshot, run.first_step, run.names, list(run.records), 1234.5, 3, 99_999)
    for ink in (view.Ink(False), view.Ink(True)):
        assert max(len(seen(line)) for line in view.frame(progress, ink, width, 23)) <= width


def make_queue(engine: Engine) -> tuple[QueueView, ...]:
    engine.pause()
    handles = [engine.submit([1, 2, 3], title="x") for _ in range(3)]
    wait_for(engine, lambda: engine.snapshot.waiting == 3)
    queue = engine.snapshot.queue
    for handle in handles:
        handle.cancel()
    return queue


def test_a_low_terminal_gets_a_low_frame(engine: Engine) -> None:
    assert all(len(lines) <= 9 for lines in make_frames(engine, Policy.STATIC, 79, 9))


def test_a_frame_in_the_middle_tells_seats_queue_and_blocks(engine: Engine) -> None:
    """The first frame of a run that was held at its first step would be empty, so look at one made from a paused engine's queue."""
    engine.configure(seats=2)
    engine.pause()
    load = riders()
    progress = Progress(load, Policy.STATIC, engine.snapshot, 1)
    handles = [engine.submit(request.prompt, request.params, title=request.title) for request in load.requests]
    wait_for(engine, lambda: engine.snapshot.waiting == len(handles))
    progress.snapshot = engine.snapshot
    text = "\n".join(view.frame(progress, view.Ink(False), 79, 23))
    assert "6 waiting: A, B, C, D, E, F" in text
    assert "0 in use, 0 cached, 1024 free" in text
    for handle in handles:
        handle.cancel()


def test_pictures_show_the_holes(six: tuple[PolicyRun, PolicyRun]) -> None:
    ink = view.Ink(False)
    assert [line.split("  ")[-1] for line in view.picture(six[0], 1, ink)] == ["/#######/#######", "/#....../#......", "/#####../#####.."]
    assert [line.split("  ")[-1] for line in view.picture(six[1], 1, ink)] == ["/#######/#####", "/#/#######....", "/#####/#......"]


def test_holes_in_the_picture_are_the_idle_seat_steps(six: tuple[PolicyRun, PolicyRun]) -> None:
    for run in six:
        assert sum(line.count(view.EMPTY) for line in view.picture(run, 1, view.Ink(False))) == run.idle_seat_steps


def test_two_pictures_have_one_scale(engine: Engine) -> None:
    runs = [run_policy(engine, make_crowd(), policy) for policy in (Policy.STATIC, Policy.IN_FLIGHT)]
    lines = view.pictures(runs, view.Ink(False), 30)
    scale = view.scale_for(runs, 30)
    assert scale > 1 and f"Each character stands for {scale} steps." in lines[-1]
    drawn = [line.rpartition("  ")[2] for line in lines if line.startswith("  seat 1")]
    assert [len(row) for row in drawn] == [-(-run.steps // scale) for run in runs]


def test_ruler_numbers_stand_over_their_steps() -> None:
    line = view.ruler(16, 1)
    start = len("  step    ")
    for step in (1, 6, 11, 16):
        assert line[start + step - 1 :].startswith(str(step))
    wide = view.ruler(400, 7)
    assert wide[start + 10 :].startswith("71")


@pytest.mark.parametrize(
    "cells, drawn",
    [
        ([(".", ""), (".", ""), ("#", "a")], "."),
        ([(".", ""), ("#", "a"), ("#", "a")], "#"),
        ([("/", "a"), ("#", "a"), ("#", "a")], "/"),
        ([("#", "a"), ("#", "a"), (".", ""), ("/", "b")], "/"),
    ],
)
def test_merged_cells(cells: list[view.Cell], drawn: str) -> None:
    assert view.merge(cells)[0] == drawn


def test_colour_needs_a_terminal_and_no_objection() -> None:
    assert view.Screen(Terminal(), {"TERM": "xterm"}).ink.colours
    assert not view.Screen(Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}).ink.colours
    assert view.Screen(Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}).redraws
    assert not view.Screen(io.StringIO(), {"TERM": "xterm"}).ink.colours
    assert not view.Screen(Terminal(), {"TERM": "dumb"}).redraws
    assert not view.Screen(Terminal(), {"TERM": "xterm"}, plain=True).redraws


def test_equal_names_have_equal_hues() -> None:
    ink = view.Ink(True)
    first, other, again = ink.owner("x", "ada"), ink.owner("x", "ben"), ink.owner("x", "ada")
    assert first == again != other


def test_frames_are_drawn_over_one_another(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: shutil.os.terminal_size((80, 24)))
    terminal = Terminal()
    with view.Screen(terminal, {"TERM": "xterm"}) as screen:
        run_policy(engine, riders(), Policy.STATIC, watch=screen.show)
        screen.say("done")
    text = terminal.getvalue()
    height = len(view.frame(_last(engine), view.Ink(False), 79, 23))
    assert text.count("\n") - 1 == height * text.count("Tour bus")
    assert text.endswith("done\n\x1b[?25h")
    assert f"\x1b[{height}A" in text


def _last(engine: Engine) -> Progress:
    return Progress(riders(), Policy.STATIC, engine.snapshot, 1, records=list(engine.history()))


def test_a_stream_that_is_no_terminal_gets_lines_now_and_then(engine: Engine) -> None:
    stream = io.StringIO()
    with view.Screen(stream, {}) as screen:
        screen.stage("loading")
        for policy in (Policy.STATIC, Policy.IN_FLIGHT):
            run_policy(engine, riders(), policy, watch=screen.show)
    lines = stream.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["static", "in_flight"]
    assert all("seats" in line and "waiting" in line and "blocks" in line for line in lines)


def test_a_models_text_cannot_steer_the_terminal() -> None:
    assert view.plain_text("a\x1b[2Jb\x9b1m\nc\x07", 40) == "a [2Jb 1m c"
    assert view.plain_text("x" * 50, 10) == "x" * 7 + "..."


@pytest.mark.parametrize("room, total, used, cached", [(30, 192, 1, 1), (30, 192, 192, 0), (30, 0, 0, 0), (4, 10_000, 1, 9_999)])
def test_bars_fit_and_show_what_is_there(room: int, total: int, used: int, cached: int) -> None:
    first, second = view._shares(room, total, used, cached)
    assert first + second <= room
    assert (first > 0) == (used > 0)
