"""Chooses the rows that sample earlier in a recorded step: what follows the last attention is done for them alone.

A chunk of a prompt samples in one row or none, but a model's own code takes the choice at the very end, behind the last layer. Nothing
there looks at another row, so the results are the same. Owns that change to the graph; it gives up the hidden states of the other rows.
"""

from __future__ import annotations

from typing import Any

import torch

# Operations that make a row of one row of each of their inputs at these places.
_BY_ROWS = {
    "aten::contiguous": (0,),
    "aten::add": (0, 1),
    "omnibus::linear": (0,),
    "omnibus::gated": (0,),
    "omnibus::rms_norm": (0,),
}
OUTPUTS = 2  # logits, and whether they can be trusted


def choose_early(graph: Any) -> None:
    """Move the choice of rows to where it saves the most. Where there is none, or nothing is saved, the graph stays as it is."""
    choices = [node for node in graph.nodes() if node.kind() == "aten::index" and _chooses_rows(node)]
    results = next(graph.outputs()).node()
    if len(choices) != 1 or results.kind() != "prim::TupleConstruct":
        return
    (choice,) = choices
    tail = _tail(graph, choice, results)
    if not any(node.kind() in ("omnibus::linear", "omnibus::gated") for node in tail):
        return
    states, chosen = choice.inputs()
    _give_only(graph, list(results.inputs())[:OUTPUTS])
    choice.output().replaceAllUsesWith(states)
    chosen.node().moveBefore(tail[0])
    rows: dict[str, Any] = {}
    for node in tail:
        for place in _BY_ROWS[node.kind()]:
            value = list(node.inputs())[place]
            if value.node() in tail:
                continue
            if value.debugName() not in rows:
                made = graph.create("aten::index", [value, chosen], 1)
                made.insertBefore(node)
                rows[value.debugName()] = made.output()
            node.replaceInput(place, rows[value.debugName()])
    choice.destroy()


def _chooses_rows(node: Any) -> bool:
    """Is it x[:, places]?"""
    places = list(node.inputs())[1].node()
    listed = list(places.inputs()) if places.kind() == "prim::ListConstruct" else []
    return len(listed) == 2 and listed[0].node().kind() == "prim::Constant" and listed[0].toIValue() is None


def _tail(graph: Any, choice: Any, results: Any) -> list[Any]:
    """The operations whose rows nobody needs but the choice, in their order."""
    nodes = list(graph.nodes())
    wanted = {next(choice.inputs()).debugName()}
    tail: list[Any] = []
    for node in reversed(nodes[: nodes.index(choice)]):
        if node.kind() not in _BY_ROWS or node.output().debugName() not in wanted:
            continue
        rows = [list(node.inputs())[place] for place in _BY_ROWS[node.kind()]]
        computed = all(value.node().kind() not in ("prim::Param", "prim::Constant") for value in rows)
        if computed and all(use.user in tail or use.user in (choice, results) for use in node.output().uses()):
            tail.append(node)
            wanted.update(value.debugName() for value in rows)
    return tail[::-1]


def _give_only(graph: Any, values: list[Any]) -> None:
    made = graph.create("prim::TupleConstruct", values, 1)
    graph.appendNode(made)
    made.output().setType(torch._C.TupleType([torch._C.TensorType.get()] * len(values)))
    old = next(graph.outputs()).node()
    graph.eraseOutput(0)
    graph.registerOutput(made.output())
    old.destroy()
