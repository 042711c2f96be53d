"""Makes one operation of a recorded step's long runs of ours: a program, which threads go through together (see program.c).

Owns the change to the graph. What is no operation of ours stays torch's, before, behind or between programs. Must never change a result by
a bit: a program does what its operations did, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from engine.model.graph import Recording, constant
from engine.model.native import library
from engine.model.native.early import choose_early
from engine.model.native.modules import COLUMNS, GROUP
from engine.model.native.program import (
    ADD,
    ATTEND,
    BOOLS,
    FINITE,
    HEADS,
    LINEAR,
    NORM,
    PACK,
    ROTATE,
    ROWS,
    STORE,
    TURNED,
    Buffer,
    Program,
    Val,
)

FEWEST = 4  # operations that are worth a program
MOST = 60  # tensors that come in, and that go out: torch gives an operation 64 arguments
_VIEWS = (
    "aten::view",
    "aten::reshape",
    "aten::transpose",
    "aten::slice",
    "aten::select",
    "aten::narrow",
)  # a row of these may be a part of one


class _Unknown(Exception):
    """This operation stays torch's."""


def use_programs(recording: Recording, pools: int) -> None:
    """From now on `recording` runs programs, where they are worth it. Raises whatever torch raises for a graph that it refuses.

    Args:
        pools: how many of the arguments, counted from the first, are tensors of the block pool.
    """
    graph = recording.graph()
    choose_early(graph)
    names = [value.debugName() for value in graph.inputs()]
    known = dict(zip(names[len(names) - len(recording.weights) :], recording.weights, strict=True))
    places = graph.addInput()
    held: list[Any] = []
    while (walk := _Walk(graph, known, names[:pools], places, held)).found():
        walk.put()
    if held:
        torch._C._jit_pass_dce(graph)
        recording.run_as(graph, pools, held)


class _Walk:
    """One pass over a graph, up to the end of the first run of our operations that is worth a program."""

    def __init__(self, graph: Any, known: dict[str, Any], pools: list[str], places: Any, held: list[Any]) -> None:
        self._graph = graph
        self._known = known
        self._in_pool = pools
        self._places = places  # where the pool's tensors lie
        self._held = held
        self._restart()

    def _restart(self) -> None:
        self._values: dict[str, Val] = {}  # that the run makes, by name
        self._program = Program()
        self._externals = self._program.externals
        self._behind: set[str] = set()  # names of what torch makes of what the run makes
        self._late: list[Any] = []  # the operations that do
        self._nodes: list[Any] = []  # that the run takes the place of, views among them
        self._packed: dict[tuple[Any, ...], tuple[Val, Val | None]] = {}
        self._sizes: set[str] = set()  # names of how many rows there are
        self._pools: dict[int, int] = {}  # the size of a value head, by the number of the pool's tensor

    # ------------------------------------------------------------------------------------------------------- the graph

    def found(self) -> bool:
        for node in list(self._graph.nodes()):
            names = [value.debugName() for value in node.inputs()]
            if node.kind() == "prim::Constant":
                continue
            ours = _TAKERS.get(node.kind())
            needs = any(name in self._behind for name in names)
            if needs and ours is not None and node.kind().startswith("omnibus::"):  # of what torch makes of the run's: the run ends here
                if self._worth():
                    return True
                self._restart()
                needs = False
            if ours is not None and not needs and self._takes(ours, node):
                self._nodes.append(node)
            elif any(name in self._values or name in self._sizes or name in self._behind for name in names):
                if node.kind().endswith("_"):  # writes to what the run may read
                    if self._worth():
                        return True
                    self._restart()
                self._behind.update(value.debugName() for value in node.outputs())
                self._late.append(node)
        return self._worth()

    def _takes(self, ours: Callable[[_Walk, Any], None], node: Any) -> bool:
        before = {name: buffer.width for name, buffer in self._externals.items()}
        try:
            ours(self, node)
        except _Unknown:
            for name in set(self._externals) - set(before):
                del self._externals[name]
            for name, width in before.items():
                self._externals[name].width = width
            return False
        return True

    def _worth(self) -> bool:
        return sum(order.kind != PACK for order in self._program.orders) >= FEWEST and len(self._externals) <= MOST

    def put(self) -> None:
        """Put the program into the graph. What it made of the values that others need comes out of it."""
        last = self._nodes[-1]
        place = {node: number for number, node in enumerate(self._graph.nodes())}
        outputs: list[Buffer] = []
        kept: list[Any] = []
        mine = set(self._nodes)
        for node in reversed(self._nodes):
            for value in node.outputs():
                used = any(use.user not in mine for use in value.uses())
                val = self._values.get(value.debugName())
                if used and val is not None and val.buffer.maker is node:
                    outputs.append(val.buffer)
                elif used:  # a view, which is made again of what comes out
                    mine.discard(node)
                    kept.append(node)
        if not 0 < len(outputs) <= MOST:
            raise RuntimeError(f"a program of {len(outputs)} results")
        name = library.define_run(len(self._externals), len(outputs))
        self._held.append(self._program)
        self._graph.setInsertPoint(last)
        program = self._graph.insertConstant(self._program.encode(outputs))
        by_name = {value.debugName(): value for node in self._graph.nodes() for value in node.outputs()}
        by_name.update({value.debugName(): value for value in self._graph.inputs()})
        made = self._graph.create(name, [program, self._places, *(by_name[each] for each in self._externals)], len(outputs))
        made.insertBefore(last)
        for buffer, value in zip(outputs, made.outputs(), strict=True):
            old = buffer.maker.output()
            value.setType(torch._C.TensorType.get())
            old.replaceAllUsesWith(value)
        after = made
        for node in sorted([*kept, *self._late], key=lambda node: place[node]):
            if place[node] < place[last]:
                node.moveAfter(after)
                after = node
        for node in reversed(self._nodes):
            if node in mine:
                node.destroy()

    # ------------------------------------------------------------------------------------------------------- operations

    def _rows(self, value: Any, width: int = 0) -> Val:
        """A value as numbers of rows: the run's own, or if `width` is said one that comes in."""
        name = value.debugName()
        if name in self._values:
            return self._values[name]
        source = value
        while source.node().kind() == "aten::contiguous":
            source = next(source.node().inputs())
        if not width or name in self._known or source.node().kind() in _VIEWS:
            raise _Unknown
        return Val(self._take_in(name, width), 0, width)

    def _take_in(self, name: str, width: int = 0) -> Buffer:
        buffer = self._externals.setdefault(name, Buffer(width, external=name))
        if width and buffer.width != width:
            if buffer.width:
                raise _Unknown
            buffer.width = width
        return buffer

    def _tensor(self, value: Any) -> str:
        """Of a tensor that comes in as it is."""
        name = value.debugName()
        if name in self._values or name in self._known or value.node().kind() == "prim::Constant":
            raise _Unknown
        self._take_in(name)
        return name

    def _pool(self, value: Any) -> int:
        name = value.debugName()
        if name not in self._in_pool:
            raise _Unknown
        return self._in_pool.index(name)

    def _weight(self, value: Any) -> torch.Tensor:
        weight = self._known.get(value.debugName(), constant(value))
        if not isinstance(weight, torch.Tensor) or not weight.is_contiguous():
            raise _Unknown
        return weight

    def _make(self, node: Any, width: int, form: int = ROWS, size: int = 0) -> Val:
        heads = width // size if size else 1
        made = Val(Buffer(width, maker=node, shape=(form, heads, size or width)), 0, width, form, size)
        self._values[node.output().debugName()] = made
        return made

    def same(self, node: Any) -> None:
        self._values[node.output().debugName()] = self._rows(next(node.inputs()))

    def narrow(self, node: Any) -> None:
        x, dimension, start, length = node.inputs()
        val, numbers = self._rows(x), [constant(each) for each in (dimension, start, length)]
        if val.form != ROWS or numbers[0] not in (-1, 2) or None in numbers or numbers[1] < 0:
            raise _Unknown
        self._values[node.output().debugName()] = replace(val, offset=val.offset + numbers[1], width=numbers[2])

    def view(self, node: Any) -> None:
        x, sizes = node.inputs()
        val = self._rows(x)
        wanted = [constant(each) for each in sizes.node().inputs()] if sizes.node().kind() == "prim::ListConstruct" else []
        if len(wanted) == 4 and val.form == ROWS and wanted[0] == 1 and wanted[3] and val.width % wanted[3] == 0:
            if wanted[2] not in (-1, val.width // wanted[3]):
                raise _Unknown
            made = replace(val, form=HEADS, size=wanted[3])
        elif len(wanted) == 3 and val.form in (HEADS, ROWS) and wanted[0] == 1 and wanted[2] in (-1, val.width):
            made = replace(val, form=ROWS, size=0)
        else:
            raise _Unknown
        self._values[node.output().debugName()] = made

    def transpose(self, node: Any) -> None:
        x, one, other = node.inputs()
        val = self._rows(x)
        if val.form == ROWS or {constant(one), constant(other)} != {1, 2}:
            raise _Unknown
        self._values[node.output().debugName()] = replace(val, form=HEADS if val.form == TURNED else TURNED)

    def size(self, node: Any) -> None:
        """How many rows there are, which views say again."""
        x, dimension = node.inputs()
        if constant(dimension) != (2 if self._rows(x).form == TURNED else 1):
            raise _Unknown
        self._sizes.add(node.output().debugName())

    def listed(self, node: Any) -> None:
        if not any(value.debugName() in self._sizes for value in node.inputs()):
            raise _Unknown

    def add(self, node: Any) -> None:
        a, b, alpha = node.inputs()
        if constant(alpha) != 1:
            raise _Unknown
        sides = [value.debugName() for value in (a, b)]
        widths = [self._values[name].width for name in sides if name in self._values]
        if not widths or not all(name in self._values or self._is_rows(value) for name, value in zip(sides, (a, b), strict=True)):
            raise _Unknown
        vals = [self._rows(value, widths[0]) for value in (a, b)]
        if any(val.form != ROWS or val.width != widths[0] for val in vals):
            raise _Unknown
        self._program.add(ADD, [self._make(node, widths[0]), *vals], [widths[0]])

    def _is_rows(self, value: Any) -> bool:
        """Of what comes in: does it hold float32 rows? Those that are normed do, and what was chosen of rows (see early.py)."""
        name = value.debugName()
        return self._externals.get(name, Buffer(0)).width > 0 or value.node().kind() == "aten::index"

    def norm(self, node: Any) -> None:
        x, weight, eps = node.inputs()
        scale = self._weight(weight)
        val, size = self._rows(x, scale.numel()), scale.numel()
        if (val.size or val.width) != size or scale.dtype != torch.float32:
            raise _Unknown
        made = self._make(node, val.width, val.form, val.size)
        self._program.add(NORM, [made, val], [val.width // size, size, float(constant(eps))], [scale])

    def rotate(self, node: Any) -> None:
        x, cos, sin = node.inputs()
        val = self._rows(x)
        if val.form != TURNED:
            raise _Unknown
        beside = [self._rows(value, val.size) for value in (cos, sin)]
        if any(not each.buffer.external for each in beside):
            raise _Unknown
        self._program.add(ROTATE, [self._make(node, val.width, TURNED, val.size), val, *beside], [val.heads, val.size])

    def store(self, node: Any) -> None:
        keys, values, key, value, block, offset, steps = node.inputs()
        vals = [self._rows(each) for each in (key, value)]
        if any(val.form != TURNED for val in vals):
            raise _Unknown
        pools, index = [self._pool(each) for each in (keys, values)], [self._tensor(each) for each in (block, offset)]
        self._pools[pools[1]] = vals[1].size
        self._program.add(STORE, vals, [*pools, *index], [self._weight(steps)])

    def finite(self, node: Any) -> None:
        key, value = (self._rows(each) for each in node.inputs())
        if key.form != TURNED or value.form != TURNED or not node.output().uses():
            raise _Unknown
        self._program.add(FINITE, [self._make(node, 1, BOOLS), key, value], [key.heads, key.size, value.heads, value.size])

    def attend(self, node: Any) -> None:
        query, keys, values, tiles, table, scale, softcap, window, sinks, steps = node.inputs()
        val = self._rows(query)
        pools = [self._pool(each) for each in (keys, values)]
        size = self._pools.get(pools[1])
        if val.form != TURNED or val.offset or val.buffer.width != val.width or not size:
            raise _Unknown
        index = [self._tensor(each) for each in (tiles, table)]
        made = self._make(node, val.heads * size, HEADS, size)
        numbers = [*pools, *index, float(constant(scale)), float(constant(softcap)), constant(window), val.heads]
        self._program.add(ATTEND, [val, made], numbers, [self._weight(sinks), self._weight(steps)])

    def linear(self, node: Any) -> None:
        x, weight, scale, bias, columns = node.inputs()
        self._product(node, x, weight, [self._weight(each) for each in (scale, bias)], columns, -1)

    def gated(self, node: Any) -> None:
        x, weight, scale, act, columns = node.inputs()
        self._product(node, x, weight, [self._weight(scale)], columns, constant(act))

    def _product(self, node: Any, x: Any, weight: Any, beside: list[torch.Tensor], columns: Any, act: int) -> None:
        packed = self._weight(weight)
        levels = packed.dtype == torch.uint8 and packed.shape[2] != 2 * COLUMNS
        pairs = packed.shape[1] * (GROUP if levels else 1)
        val = self._rows(x, 2 * pairs)
        if val.form != ROWS or val.width not in (2 * pairs - 1, 2 * pairs):
            raise _Unknown
        kind = (id(val.buffer), val.offset, val.width, packed.dtype, packed.shape[2])
        if kind not in self._packed:
            made = Val(Buffer(2 * pairs), 0, 2 * pairs)  # a pair takes four bytes, or eight on CPUs that multiply in float32
            self._packed[kind] = made, Val(Buffer(pairs // GROUP), 0, pairs // GROUP) if levels else None
            self._program.add(PACK, [val, *self._packed[kind]], [len(self._program.orders) + 1])
        made, totals = self._packed[kind]
        out = self._make(node, constant(columns))
        self._program.add(LINEAR, [val, made, totals, out], [val.width, constant(columns), act, *packed.shape[:3]], [packed, *beside])


_TAKERS = {
    "aten::contiguous": _Walk.same,
    "aten::narrow": _Walk.narrow,
    "aten::view": _Walk.view,
    "aten::reshape": _Walk.view,
    "aten::transpose": _Walk.transpose,
    "aten::size": _Walk.size,
    "prim::ListConstruct": _Walk.listed,
    "aten::add": _Walk.add,
    "omnibus::rms_norm": _Walk.norm,
    "omnibus::rotate": _Walk.rotate,
    "omnibus::store_": _Walk.store,
    "omnibus::finite": _Walk.finite,
    "omnibus::attend": _Walk.attend,
    "omnibus::linear": _Walk.linear,
    "omnibus::gated": _Walk.gated,
}
