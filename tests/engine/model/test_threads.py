"""Threads follow what other programs leave of the machine."""

from __future__ import annotations

from collections.abc import Callable

from engine.model.threads import LOOK_S, CpuUse, ThreadChooser, read_cpu_use


class Machine:
    """A made-up machine: this process uses what it has threads for, others use `others` cores."""

    def __init__(self) -> None:
        self.now = self.machine = self.own = self.others = 0.0
        self.set: list[int] = []
        self.rest: Callable[[], None] = lambda: None

    def read(self) -> CpuUse:
        return CpuUse(self.machine, self.own)

    def pass_time(self, seconds: float) -> None:
        """A step takes so long."""
        self.now += seconds
        self.own += seconds * self.set[-1]
        self.machine += seconds * (self.set[-1] + self.others)
        self.rest()

    def pause(self, seconds: float) -> None:
        """Nothing runs here."""
        self.now += seconds
        self.machine += seconds * self.others


def make_chooser(most: int) -> tuple[Machine, ThreadChooser]:
    machine = Machine()
    chooser = ThreadChooser(most, machine.set.append, machine.read, lambda: machine.now)
    machine.rest = chooser.rest
    return machine, chooser


def test_alone_it_takes_all() -> None:
    machine, chooser = make_chooser(4)
    for _ in range(10):
        machine.pass_time(LOOK_S)
        chooser.adjust()
    assert machine.set == [4]


def test_it_makes_room_at_once_and_comes_back_slowly() -> None:
    machine, chooser = make_chooser(2)
    machine.others = 1.0
    machine.pass_time(LOOK_S)
    assert chooser.adjust() == 1
    machine.others = 0.0
    machine.pass_time(LOOK_S)
    assert chooser.adjust() == 1
    machine.pass_time(LOOK_S)
    assert chooser.adjust() == 2
    assert machine.set == [2, 1, 2]


def test_what_others_did_while_nothing_ran_here_is_no_reason_to_make_room() -> None:
    machine, chooser = make_chooser(2)
    machine.others = 1.5  # as a program that starts takes
    machine.pause(10)
    machine.others = 0.0
    assert chooser.adjust() == 2
    machine.others = 1.0
    machine.pass_time(LOOK_S)
    assert chooser.adjust() == 1, "seen beside a step"


def test_after_a_quiet_pause_it_has_all_at_once() -> None:
    machine, chooser = make_chooser(2)
    machine.others = 1.0
    machine.pass_time(LOOK_S)
    assert chooser.adjust() == 1
    machine.others = 0.0
    machine.pause(LOOK_S)
    assert chooser.adjust() == 2


def test_a_pause_too_short_to_tell_begins_a_new_look() -> None:
    machine, chooser = make_chooser(2)
    machine.others = 1.0
    machine.pause(0.9 * LOOK_S)
    machine.others = 0.0
    assert chooser.adjust() == 2
    machine.pass_time(0.2 * LOOK_S)
    assert chooser.adjust() == 2
    machine.pass_time(0.8 * LOOK_S)
    assert chooser.adjust() == 2, "what the pause brought is not in the look"


def test_a_little_of_a_core_is_no_reason() -> None:
    machine, chooser = make_chooser(8)
    machine.others = 0.3
    machine.pass_time(LOOK_S)
    assert chooser.adjust() == 8
    machine.others = 3.0
    machine.pass_time(LOOK_S)
    assert chooser.adjust() == 5


def test_never_less_than_one() -> None:
    machine, chooser = make_chooser(2)
    machine.others = 40.0
    machine.pass_time(LOOK_S)
    assert chooser.adjust() == 1


def test_it_does_not_look_too_often() -> None:
    machine, chooser = make_chooser(2)
    machine.others = 2.0
    machine.pass_time(LOOK_S / 4)
    assert chooser.adjust() == 2


def test_the_real_counters_grow() -> None:
    first = read_cpu_use()
    sum(number * number for number in range(300_000))
    second = read_cpu_use()
    assert second.own > first.own
    assert second.machine >= first.machine
