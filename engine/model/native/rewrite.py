"""Puts one operation of ours in the place of several in a recorded step: rotary embeddings, as transformers' models write them.

Works on a graph whose shapes are still noted. It must never change what a step computes beyond the order of two roundings; the recording is
checked against the eager step afterwards.
"""

from __future__ import annotations

from typing import Any

from engine.model.graph import constant

_FOREVER = 2**63 - 1


def fuse_rotations(graph: Any) -> None:
    """x cos + (the halves of x exchanged, the second negated) sin becomes one operation (rotary embedding, Su et al., 2021)."""
    for node in [node for node in graph.nodes() if node.kind() == "aten::add"]:
        found = _rotation(node)
        if found is None:
            continue
        made = graph.create("omnibus::rotate", list(found), 1)
        made.insertBefore(node)
        made.output().setType(node.output().type())
        node.output().replaceAllUsesWith(made.output())
        node.destroy()


def _rotation(node: Any) -> tuple[Any, Any, Any] | None:
    """(x, cos, sin) if the sum is a rotation of x [1, heads, T, size]."""
    plain, turned, alpha = node.inputs()
    if not all(_kind(value) == "aten::mul" for value in (plain, turned)) or constant(alpha) != 1:
        return None
    x, cos = plain.node().inputs()
    joined, sin = turned.node().inputs()
    if _kind(joined) != "aten::cat":
        return None
    parts, dimension = joined.node().inputs()
    parts = list(parts.node().inputs()) if _kind(parts) == "prim::ListConstruct" else []
    sizes, beside = _sizes(x), [_sizes(cos), _sizes(sin)]
    if len(parts) != 2 or _kind(parts[0]) != "aten::neg" or len(sizes) != 4 or constant(dimension) not in (-1, 3) or sizes[3] % 2:
        return None
    second, first = next(parts[0].node().inputs()), parts[1]
    halves = _is_half(first, x, begins=True) and _is_half(second, x, begins=False)
    fits = all(shape == [1, 1, sizes[2], sizes[3]] for shape in beside)
    floats = all(value.type().scalarType() == "Float" for value in (x, cos, sin))
    return (x, cos, sin) if halves and fits and floats else None


def _is_half(value: Any, x: Any, begins: bool) -> bool:
    """Is `value` the first half of the last dimension of `x`, or with `begins` False the second?"""
    if _kind(value) != "aten::slice":
        return False
    source, dimension, start, end, step = value.node().inputs()
    half = _sizes(value)[-1:] == [_sizes(x)[-1] // 2]
    placed = constant(start) == 0 if begins else constant(end) == _FOREVER  # what is as long as half and goes to the end begins there
    same = source.debugName() == x.debugName()
    return same and half and placed and constant(dimension) in (-1, 3) and constant(step) == 1


def _kind(value: Any) -> str:
    return str(value.node().kind())


def _sizes(value: Any) -> list[int]:
    """As they were when the graph was recorded; empty where they were not noted."""
    kind = value.type()
    return list(kind.sizes() or ()) if hasattr(kind, "sizes") else []
