"""Records a function of tensors once and runs it without Python: torch.jit.trace, and a few clean-ups that an interpreter pays for.

Owns the knowledge of torch's graph format. Knows nothing of models, steps or caches. Must never change a result by a bit: every clean-up
takes away operations that do nothing or that were done before, and folds sizes that are the same in all examples. What it can get wrong,
a size that only happened to be the same, is for the caller to find out by a check on other inputs.

torch.jit is deprecated, and some of what is used here is private to torch: callers keep a way to run without it.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

Tensors = tuple[torch.Tensor, ...]

# Operations whose result depends on nothing but their inputs, and that a step may repeat in every layer on the same index tensors.
_NAMES = (
    "add arange contiguous eq expand floor_divide ge gt index_select le lt masked_fill mul ne reshape rsub select size slice squeeze sub"
)
_PURE = {f"aten::{name}" for name in (*_NAMES.split(), "transpose", "unsqueeze", "view", "view_as", "Int", "to", "zeros_like", "full_like")}
_PURE |= {"prim::NumToTensor", "prim::ListConstruct"}

_FOREVER = 2**63 - 1
_NAMES_FILE = "weights.json"
MUCH = 256  # numbers in a constant that is not a weight; with more, a recording is tied to the model it was made from


class Held:
    """Tensors for a call, with a second reference to each.

    torch takes Python's lock whenever the number of references to a tensor that Python knows rises from one or falls to it. A call takes a
    reference to each argument and drops it at its last use: without a second one elsewhere, a call would wait for the lock some two hundred
    times (measured beside a busy Python thread: 900 ms instead of 110). Making the references takes 0.1 ms between two steps, so whoever
    passes the same tensors again keeps them.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = tensors
        self._others = torch._C.ScriptList(list(tensors))


class Recording:
    """A recorded function: call it with the tensors that the function takes.

    Attributes:
        operations: how many operations one call runs.
        names: the weights it needs, in the order in which it takes them after the tensors.
        weights: these.
        portable: whether `to_bytes` is allowed: everything large that it holds is a named weight.
        pools: how many tensors, counted from the first, it reads and writes where they lie; with any, `at` may be called.
        placed: how many of these `at` does without: all or none.
    """

    def __init__(self, function: Any, names: Sequence[str], weights: Mapping[str, Any], portable: bool) -> None:
        self._function = self._run = function
        self.weights = self._passed = tuple(weights[name] for name in names)
        self._held = torch._C.ScriptList([weight for weight in self.weights if isinstance(weight, torch.Tensor)])
        self._beside: Any = None
        self.pools = 0
        self.placed = 0
        self.names = tuple(names)
        self.portable = portable
        self.operations = _count(function.graph)

    def __call__(self, *tensors: torch.Tensor) -> Any:
        if self.pools:
            return self.at(places_of(tensors[: self.pools]), Held(tensors[self.placed :]))
        return self._call(self._run, Held(tensors), self._passed)

    def as_recorded(self, *tensors: torch.Tensor) -> Any:
        """All that was recorded, where what is run gives less of it."""
        return self._call(self._function, Held(tensors), self.weights)

    def at(self, places: torch.Tensor, held: Held) -> Any:
        """With `places_of` the first `placed` tensors in their stead. They have to live until the call is over."""
        return self._call(self._run, held, (*self._passed, places))

    @staticmethod
    def _call(function: Any, held: Held, others: Sequence[Any]) -> Any:
        # The plain interpreter: the optimising one first watches two calls and rebuilds the graph, which takes seconds and gains nothing.
        # (As torch.jit.optimized_execution, which takes 30 us longer between two steps.)
        before = torch._C._get_graph_executor_optimize(False)
        try:
            return function(*held.tensors, *others)
        finally:
            torch._C._set_graph_executor_optimize(before)

    def graph(self) -> Any:
        """A copy of the operations; the last inputs are the `weights`."""
        graph = self._function.graph.copy()
        if isinstance(next(graph.inputs()).type(), torch._C.ClassType):  # of what was read from a file
            graph.eraseInput(0)
        return graph

    def kinds(self) -> set[str]:
        """Of the operations as they were recorded, such as "aten::mul"."""
        return {node.kind() for node in self._function.graph.nodes()}

    def run_as(self, graph: Any, pools: int, beside: Any) -> None:
        """From now on run `graph`, which gives the same as that of `graph()`, or the first of it, by other operations.

        Args:
            pools: how many of the tensors, counted from the first, it reads and writes where they lie; its last input is `places_of` them.
            beside: what it needs, which lives as long.
        """
        inputs = list(graph.inputs())
        first = len(inputs) - 1 - len(self.weights)
        self.placed = 0 if any(value.uses() for value in inputs[:pools]) else pools
        unused = [place for place in range(first, len(inputs) - 1) if not inputs[place].uses()]
        for place in reversed([*range(self.placed), *unused]):
            graph.eraseInput(place)
        self._run = torch._C._create_function_from_graph("omnibus_step", graph)
        self._passed = tuple(weight for place, weight in enumerate(self.weights, first) if place not in unused)
        self.pools, self._beside = pools, beside
        self.operations = _count(graph)

    def run_plainly(self) -> bool:
        """Run the operations as they were recorded again. Returns whether others were run before."""
        others = self._run is not self._function
        self._run, self._passed, self._beside = self._function, self.weights, None
        self.pools = self.placed = 0
        self.operations = _count(self._function.graph)
        return others

    def to_bytes(self) -> bytes:
        """The operations as they were recorded, without the weights."""
        return bytes(self._function.save_to_buffer(_extra_files={_NAMES_FILE: json.dumps(self.names)}))

    @classmethod
    def of_bytes(cls, data: bytes, weights: Mapping[str, Any]) -> Recording:
        """Of what `to_bytes` gave. Raises RuntimeError for what is damaged, or KeyError for a weight that is not in `weights`."""
        extra = {_NAMES_FILE: ""}
        with _no_deprecations():
            function = torch.jit.load(io.BytesIO(data), _extra_files=extra)
        torch._C._jit_pass_cse(function.graph)  # a list that several operations take is written down once for each
        torch._C._jit_pass_constant_pooling(function.graph)
        return cls(function, json.loads(extra[_NAMES_FILE]), weights, True)


def weights_of(model: nn.Module) -> dict[str, Any]:
    """Everything a recording of `model` may need by name: parameters, buffers and packed weights."""
    found: dict[str, Any] = dict(model.named_parameters()) | dict(model.named_buffers())
    for path, module in model.named_modules():
        found.update({f"{path}.{name}": item for name, item in vars(module).items() if isinstance(item, torch.ScriptObject)})
    return found


def record(
    function: Callable[..., Any],
    owners: Mapping[str, nn.Module],
    weights: Mapping[str, Any],
    examples: Sequence[Tensors],
    mutable: int = 0,
    rewrite: Callable[[Any], None] = lambda graph: None,
) -> Recording:
    """Record `function`, which takes any number of tensors and returns a tuple of tensors.

    Args:
        owners: by path, the modules whose weights are no plain tensors.
        weights: what `weights_of` gives. Other tensors that the function holds become constants of the recording.
        examples: arguments, at least two sets. They must differ in every size that may differ later; what is the same in all is fixed.
        mutable: how many of the arguments, counted from the first, the function writes to.
        rewrite: may change operations of the graph, in which every value still has the shape it had in the first example.

    Raises whatever torch raises for what it cannot record.
    """
    if len(examples) < 2:
        raise ValueError("one example cannot tell fixed sizes from others")
    count = len(examples[0])
    with _no_deprecations(), torch.inference_mode():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        module = torch.jit.trace(_Root(function, list(owners.values())), examples[0], check_trace=False)
        graph = module.graph
        torch._C._jit_pass_inline(graph)
        _drop_casts(graph)
        _drop_ones(graph)
        names = _take_out_weights(graph, list(owners), weights)
        portable = not _holds_much(graph)  # asked before constants are folded, which may hide where they came from
        torch._C._jit_pass_cse(graph)
        rewrite(graph)
        torch._C._jit_pass_dce(graph)
        sizes = [_noted_size(node) for node in _sizes_in(graph)]
        torch._C._jit_pass_erase_shape_information(graph)
        _fold_sizes(graph, sizes, examples[1:], [weights[name] for name in names])
        _clean(graph)
        _drop_whole_slices(graph)
        _share(graph, set(list(graph.inputs())[mutable:count]))
        _clean(graph)
        return Recording(torch._C._create_function_from_graph("omnibus_step", graph), names, weights, portable)


@contextmanager
def _no_deprecations() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


class _Root(nn.Module):
    """A function as a module that owns `modules` and nothing else: the fewer modules a trace has to register, the sooner it is done."""

    def __init__(self, function: Callable[..., Any], modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.owned = nn.ModuleList(modules)
        self.function = (function,)  # in a tuple, so that a module with a forward is not registered

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function[0](*tensors)


def places_of(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """int64 [n, 5]: the address and the four sizes of each."""
    return torch.tensor([(tensor.data_ptr(), *tensor.shape) for tensor in tensors], dtype=torch.int64)


def _count(graph: Any) -> int:
    return sum(node.kind() not in ("prim::Constant", "prim::GetAttr") for node in graph.nodes())


def _clean(graph: Any) -> None:
    torch._C._jit_pass_constant_propagation(graph)
    torch._C._jit_pass_cse(graph)
    torch._C._jit_pass_peephole(graph, True)
    torch._C._jit_pass_constant_pooling(graph)
    torch._C._jit_pass_dce(graph)


def constant(value: Any) -> Any:
    """What a constant holds; None for what is computed. (None itself is not told apart, which no caller needs.)"""
    return value.toIValue() if value.node().kind() == "prim::Constant" else None


def _replace(node: Any, value: Any) -> None:
    node.output().replaceAllUsesWith(value)
    node.destroy()


def _take_out_weights(graph: Any, owners: Sequence[str], weights: Mapping[str, Any]) -> list[str]:
    """Weights become inputs after the others, in place of the module that the graph was recorded from. Returns their names in order."""
    paths: dict[str, tuple[str, ...]] = {next(graph.inputs()).debugName(): ()}
    places = {item.data_ptr(): name for name, item in weights.items() if _plain(item)}
    inputs: dict[str, Any] = {}
    done = []
    for node in list(graph.nodes()):
        name = None
        if node.kind() == "prim::GetAttr":
            path = (*paths[next(node.inputs()).debugName()], node.s("name"))
            paths[node.output().debugName()] = path
            done.append(node)
            if len(path) == 3:  # owned, a number, and what is asked of that owner
                name = f"{owners[int(path[1])]}.{path[2]}"
        elif node.kind() == "prim::Constant" and isinstance(value := constant(node.output()), torch.Tensor) and _plain(value):
            name = places.get(value.data_ptr())
            if name is not None and (weights[name].shape != value.shape or weights[name].dtype != value.dtype):
                name = None
        if name is None:
            continue
        if name not in inputs:
            inputs[name] = graph.addInput()
            inputs[name].setType(node.output().type())
        node.output().replaceAllUsesWith(inputs[name])
        if node.kind() == "prim::Constant":
            done.append(node)
    for node in reversed(done):
        node.destroy()
    graph.eraseInput(0)
    return list(inputs)


def _plain(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.layout == torch.strided and item.numel() > 0 and item.dim() > 0


def _holds_much(graph: Any) -> bool:
    values = (constant(node.output()) for node in graph.nodes() if node.kind() == "prim::Constant")
    return any(isinstance(value, torch.Tensor) and value.numel() > MUCH for value in values)


def _drop_casts(graph: Any) -> None:
    """Casts to the dtype that a value has already. Reads the dtypes that tracing noted."""
    for node in list(graph.nodes()):
        if node.kind() != "aten::to" or "aten::to.dtype(" not in node.schema():
            continue
        source, _, _, copy, layout = node.inputs()
        known = [value.type().scalarType() for value in (source, node.output())]
        if known[0] is not None and known[0] == known[1] and constant(copy) is False and constant(layout) is None:
            _replace(node, source)


def _drop_ones(graph: Any) -> None:
    """Products with a single number that is 1, where they change no dtype. Reads the dtypes that tracing noted."""
    nodes = list(graph.nodes())
    if any(node.kind().startswith("aten::") and node.kind().endswith("_") for node in nodes):
        return  # what writes in place may need a tensor of its own
    for node in nodes:
        if node.kind() != "aten::mul":
            continue
        source, factor = node.inputs()
        number = constant(factor)
        if isinstance(number, torch.Tensor):
            number = number.item() if number.dim() == 0 else None
        known = [value.type().scalarType() for value in (source, node.output())]
        if number == 1 and known[0] is not None and known[0] == known[1]:
            _replace(node, source)


def _sizes_in(graph: Any) -> list[Any]:
    return [node for node in graph.nodes() if node.kind() == "aten::size" and node.inputsSize() == 2]


def _noted_size(node: Any) -> int:
    """What a size was when it was recorded."""
    source, dimension = node.inputs()
    return int(source.type().sizes()[constant(dimension)])


def _fold_sizes(graph: Any, noted: Sequence[int], examples: Sequence[Tensors], weights: Sequence[Any]) -> None:
    """Sizes that are the same as noted in all examples become constants, and with them whatever is computed of them."""
    # A copy of the graph that returns all sizes. It still runs everything else, since sizes depend on it.
    probe = graph.copy()
    while list(probe.outputs()):
        probe.eraseOutput(0)
    all_sizes = probe.create("prim::ListConstruct", [node.output() for node in _sizes_in(probe)], 1)
    probe.appendNode(all_sizes)
    all_sizes.output().setType(torch._C.ListType.ofInts())
    probe.registerOutput(all_sizes.output())
    function = torch._C._create_function_from_graph("omnibus_sizes", probe)
    with torch.jit.optimized_execution(False):
        found = [noted, *(function(*example, *weights) for example in examples)]
    first = next(iter(graph.nodes()))
    for node, values in zip(_sizes_in(graph), zip(*found, strict=True), strict=True):
        if len(set(values)) == 1:
            graph.setInsertPoint(first)
            _replace(node, graph.insertConstant(values[0]))


def _drop_whole_slices(graph: Any) -> None:
    """x[:], which indexing with None leaves behind."""
    for node in list(graph.nodes()):
        if node.kind() == "aten::slice" and node.inputsSize() == 5:
            source, _, start, end, step = node.inputs()
            if constant(start) == 0 and constant(step) == 1 and constant(end) == _FOREVER:
                _replace(node, source)


def _share(graph: Any, fixed_inputs: set[Any]) -> None:
    """Do once what every layer does with the same inputs. torch's own pass does not, since for it any two inputs may be one memory."""
    fixed = {value.debugName() for value in fixed_inputs}
    known: dict[tuple[Any, ...], Any] = {}
    doubles: list[tuple[Any, Any]] = []
    stands_for: dict[str, str] = {}
    for node in graph.nodes():
        names = [value.debugName() for value in node.inputs()]
        if node.kind().endswith("_") and names[0] in fixed:
            return  # written to: nothing is certain any more
        if node.kind() == "prim::Constant":
            fixed.add(node.output().debugName())
        elif node.kind() in _PURE and all(name in fixed for name in names):
            output = node.output()
            fixed.add(output.debugName())
            key = (node.kind(), *(stands_for.get(name, name) for name in names))
            if key in known:
                stands_for[output.debugName()] = known[key].debugName()
                doubles.append((node, known[key]))
            else:
                known[key] = output
    for node, value in reversed(doubles):
        _replace(node, value)
