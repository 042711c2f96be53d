"""A program's arena: what is needed at the same time lies apart, and room is used again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.model.native.program import ADD, ALIGNED, ATTEND, LINEAR, PACK, Buffer, Program, Val

KINDS = (ADD, PACK, LINEAR, ATTEND)


def val(buffer: Buffer) -> Val:
    return Val(buffer, 0, buffer.width)


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 100), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=40))
def test_what_is_needed_at_the_same_time_lies_apart(steps: list[tuple[int, int, int, int]]) -> None:
    program = Program()
    program.externals["x"] = source = Buffer(7, external="x")
    made = [source]
    for kind, width, one, other in steps:
        out = Buffer(width)
        program.add(kind, [val(out), val(made[-1 - one % len(made)]), val(made[-1 - other % len(made)])], [1, 0.5, "x"])
        made.append(out)
    program.encode([made[-1]])
    head, *_ = program._held
    lives: dict[int, tuple[int, Buffer]] = {}
    for order in program.orders:
        for each in order.places:
            if each is not None and not each.buffer.external and each.buffer.output < 0:
                lives.setdefault(id(each.buffer), (order.stage, each.buffer))
    inside = list(lives.values())
    for number, (first, buffer) in enumerate(inside):
        assert buffer.start % ALIGNED == 0 and buffer.start + buffer.width <= head[4]
        for begun, other in inside[:number]:
            together = first <= other.last and begun <= buffer.last
            assert not together or buffer.start + buffer.width <= other.start or other.start + other.width <= buffer.start


def test_room_that_nobody_needs_any_more_is_used_again() -> None:
    program = Program()
    program.externals["x"] = last = Buffer(64, external="x")
    for _ in range(50):
        out = Buffer(64)
        program.add(LINEAR, [val(out), val(last)], [])
        last = out
    program.encode([last])
    assert program._held[0][4] == 2 * 64


def test_what_is_done_a_row_at_a_time_shares_a_stage_up_to_its_packing() -> None:
    program = Program()
    buffer = Buffer(4)
    for kind in (ADD, ADD, PACK, LINEAR, ADD, PACK, ADD, ATTEND, LINEAR):
        program.add(kind, [val(buffer)], [])
    assert [order.stage for order in program.orders] == [0, 0, 0, 1, 2, 2, 3, 4, 5]
