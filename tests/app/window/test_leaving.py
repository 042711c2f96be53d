"""Quitting in the middle of what the dashboard does, from outside: the process ends at once, in order, with nothing in its log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.app.window.test_start import finish

# The real window and start-up over an engine that really steps, on a made-up model; what is done in the window is the test's.
PROGRAM = """
import argparse, asyncio, os, sys, time, traceback
import app.window.start as start
from engine import Engine
from tests.engine.made_up_model import Workshop

workshop = Workshop(blocks=4096, context=100_000)
workshop.pace = 0.002
real = start.Engine
start.Engine = lambda config: real(config, opener=workshop.open)

async def until(there):
    end = time.monotonic() + 30
    while not there():
        assert time.monotonic() < end, "it never came to that"
        await asyncio.sleep(0.01)

async def ask(window, count):
    for number in range(count):
        window.send(window.new_chat(), f"question {{number}}")
    await until(lambda: window._engine.snapshot.seated)

async def record(window, page, steps=30):
    page.deck.toggle_record()
    await until(lambda: page.deck.recording)
    first = window._engine.snapshot.step
    await until(lambda: window._engine.snapshot.step > first + steps)
    page.deck.stop_recording()
    await until(lambda: page.deck.tape is not None)

async def play(*what):
    try:
        await scene(*what)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(9)

async def scene(window, engine, script):
    await until(lambda: window._engine.snapshot.state.value == "ready")
    window.parts.set_dashboard("full")
    page = window.parts.dashboard
{scene}
    print("there", flush=True)

start._play = play
sub = argparse.ArgumentParser().add_subparsers()
start.add_parser(sub)
sys.exit(start.run(sub.choices["window"].parse_args(["--data", sys.argv[1], "--seats", "4", "--ask", "x"])))
"""
SCENES = {
    "a demo is recorded": """
    window.run_demo()
    page.deck.toggle_record()
    await until(lambda: page.deck.recording and window._engine.snapshot.seated)
""",
    "a recording is played while tabs are closed": """
    await ask(window, 8)
    await record(window, page, 400)
    page.deck.replay()
    await until(lambda: page.deck.replaying)
    page.deck.player.set_playing(True)
    for turn in range(8):
        window.close_tab(window.tabs.count() - 1, ("stop", "keep")[turn % 2])
        await asyncio.sleep(0.02)
    assert page.deck.player.playing
""",
    "policies are compared": """
    await ask(window, 8)
    await record(window, page, 300)
    page.deck.compare()
""",
    "a file dialog is open": """
    await ask(window, 2)
    await record(window, page)
    page.deck._choose_save()
    await asyncio.sleep(0.1)
""",
}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
@pytest.mark.parametrize("scene", SCENES)
def test_quitting_while(scene: str, tmp_path: Path, user_folders: Path) -> None:
    program = [sys.executable, "-c", PROGRAM.format(scene=SCENES[scene]), str(tmp_path)]
    environment = os.environ | {"QT_QPA_PLATFORM": "offscreen"}
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None and process.stdout.readline() == "there\n", finish(process)[2]
    assert psutil.Process(process.pid).children() == []
    process.send_signal(signal.SIGTERM)
    status, _, err = finish(process)
    assert (status, err) == (0, "")
    (log,) = user_folders.rglob("omnibus.log")
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if "This plugin does not support" not in line]
    assert [line for line in lines if "Traceback" in line or " ERROR " in line or " WARNING " in line] == []
    (crash,) = user_folders.rglob("crash.log")
    assert crash.read_text() == ""
