"""What a look at the dashboard costs, in CPU milliseconds of the window's thread. Run by hand, on a quiet machine:

python -m tests.app.dashboard.measure
"""

from __future__ import annotations

import os
import time
from dataclasses import replace

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import numpy as np
from PySide6.QtWidgets import QApplication

from app.dashboard import DashboardPage
from app.theme import Theme, apply_theme
from tests.app.dashboard.sim_engine import SimEngine
from tests.app.dashboard.test_kv import make_kv

FULL, FAST = 2.5, 7.5  # looks a second with and without the figures: one in four of ten


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] * 1e3


def main() -> None:
    app = QApplication([])
    apply_theme(app, Theme.dark())
    now = [0.0]
    engine = SimEngine(seats=8, blocks=2048)
    engine.load(12, 3, long=900)
    engine.step(220)
    page = DashboardPage(engine, Theme.dark(), clock=lambda: now[0])
    page.resize(1200, 1300)
    page.show()
    app.processEvents()
    costs: dict[bool, list[float]] = {True: [], False: []}
    for look in range(400):
        full = bool(look % 2)
        engine.step(2)
        now[0] += 0.4 if full else 0.001
        begun = time.thread_time()
        page.sampler.sample()
        app.processEvents()
        costs[full].append(time.thread_time() - begun)
    for share in (0.05, 0.5):
        full_ms, fast_ms = percentile(costs[True], share), percentile(costs[False], share)
        total = (FULL * full_ms + FAST * fast_ms) / 10
        print(f"8 seats, p{100 * share:.0f}: full look {full_ms:.2f} ms, quick look {fast_ms:.2f} ms, share of a core {total:.1f} %")
    dice, paints = np.random.default_rng(1), []
    for _ in range(100):
        snapshot = replace(engine.snapshot, kv=make_kv(dice.integers(0, 40, 65_536)))
        begun = time.thread_time()
        page.kvmap.show_snapshot(snapshot)
        page.kvmap.repaint()
        paints.append(time.thread_time() - begun)
    print(f"65,536 blocks, all changed: p50 {percentile(paints, 0.5):.2f} ms, p99 {percentile(paints, 0.99):.2f} ms")
    page.close()


if __name__ == "__main__":
    main()
