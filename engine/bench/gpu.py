"""The GPU lane, checked and measured in one go: `omnibus bench gpu`.

In this order, and in under eight minutes: what the GPU's memory and its products allow; every kernel against the textbook (grouped heads,
windows, soft capping, sinks) and its time; decode steps as graphs against eager ones; then decode and prefill of models of 1 and 8 billion
random weights against those limits, and against transformers' continuous batching on the same GPU. What no time is left for is left out and
said to be. Owns the order, the time and the report; the measurements of a model are in `gpu_model.py`. Never run on a GPU so far.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from engine.bench import output

if TYPE_CHECKING:
    import torch

    from engine.model.cuda.choice import Verdict
    from engine.model.cuda.reference import Need

NO_GPU = 2
SECONDS = 450.0
# What a part is expected to take at most: it is begun only while that much is left. The largest model is measured last.
EXPECTED = {"limits": 15.0, "kernels": 90.0, "graphs": 60.0, "1B": 90.0, "8B": 150.0}
MODELS = ("1B", "8B")


class Budget:
    """The time there is."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._seconds = seconds

    @property
    def used(self) -> float:
        return self._clock() - self._began

    def allows(self, seconds: float) -> bool:
        return self.used + seconds <= self._seconds


@dataclass
class Report:
    """What was found; written as JSON as it stands.

    Attributes:
        limits: "gb_s" and "tflop_s", measured.
        kernels: one entry a kernel and kind of attention.
        graphs: the largest difference from the eager step by number of rows, as a share of the largest logit.
        models: see `gpu_model.ModelFigures`.
        wrong: checks that failed, as sentences; left_out: parts without time or that failed, with the reason.
    """

    device: str
    torch: str
    limits: dict[str, float] = field(default_factory=dict)
    kernels: list[dict[str, Any]] = field(default_factory=list)
    graphs: dict[str, Any] = field(default_factory=dict)
    models: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "gpu",
        help="check and measure the lane for NVIDIA GPUs",
        description="Check the kernels and graphs of the GPU lane and measure it, in under eight minutes. Needs an NVIDIA GPU.",
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help=f"begin nothing that would end later ({SECONDS:.0f})")
    parser.add_argument("--only", nargs="+", choices=EXPECTED, metavar="PART", help=f"some of {', '.join(EXPECTED)}")
    output.add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """0: all that was checked is right; 1: something is wrong; 2: there is no GPU, or the document cannot be written."""
    human = output.human_stream(args.json)
    try:
        output.check_writable(args.json)
        device = find_gpu()
        if isinstance(device, str):
            print(device, file=sys.stderr)
            return NO_GPU
        report = measure(device, args.only or list(EXPECTED), Budget(args.seconds, time.monotonic), human)
        output.write_document(args.json, asdict(report))
    except output.NotWritable as error:
        print(error, file=sys.stderr)
        return NO_GPU
    return 1 if report.wrong else 0


def find_gpu() -> torch.device | str:
    """The GPU, or a sentence that says why there is none."""
    import torch

    if torch.version.cuda is None:
        return f"There is no GPU to measure: this torch ({torch.__version__}) is built without CUDA. Nothing was run."
    if not torch.cuda.is_available():
        return f"There is no GPU to measure: torch {torch.__version__} finds no NVIDIA GPU or no driver for it. Nothing was run."
    return torch.device("cuda", torch.cuda.current_device())


def measure(device: torch.device, parts: Sequence[str], budget: Budget, human: TextIO, tools: Any = None) -> Report:
    """Run the parts in order. One that raises is reported and costs no other, unless the GPU is lost. `tools` stands in for `gpu_model`."""
    import torch

    if tools is None:
        from engine.bench import gpu_model as tools
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    report = Report(name, torch.__version__)
    print(f"{name}, torch {torch.__version__}", file=human, flush=True)
    for part in EXPECTED:
        if part not in parts:
            continue
        if not budget.allows(EXPECTED[part]):
            report.left_out[part] = f"it may take {EXPECTED[part]:.0f} s, and {budget.used:.0f} s are used"
            print(f"{part}: left out, {report.left_out[part]}", file=human, flush=True)
            continue
        try:
            for line in _part(part, device, report, tools):
                print(line, file=human, flush=True)
        except Exception as fault:
            reason = (str(fault).strip().splitlines() or [type(fault).__name__])[0]
            report.left_out[part] = reason
            report.wrong.append(f"{part} failed: {reason}")
            print(f"{part}: failed, {reason}", file=human, flush=True)
            if isinstance(fault, torch.AcceleratorError):
                break  # nothing runs on this GPU any more, in this process
    report.seconds = budget.used
    print(verdict(report), file=human, flush=True)
    return report


def _part(part: str, device: torch.device, report: Report, tools: Any) -> Sequence[str]:
    """Measure one part, note it in the report, return the lines to show."""
    if part == "limits":
        report.limits = tools.limits(device)
        return [f"memory {report.limits['gb_s']:,.0f} GB/s, products {report.limits['tflop_s']:,.0f} TFLOP/s (16 bit)"]
    if part == "kernels":
        return note_kernels(report, tools.try_kernels(device))
    if part == "graphs":
        report.graphs = tools.compare_graphs(device)
        wrong = {rows: worst for rows, worst in report.graphs["worst"].items() if not worst <= report.graphs["allowed"]}
        if wrong or not report.graphs["worst"]:
            report.wrong.append(f"graphs are not the eager step: {wrong or report.graphs['failed']}")
        shown = ", ".join(f"{rows}: {worst:.1e}" for rows, worst in report.graphs["worst"].items())
        return [f"graphs against eager, by rows (allowed {report.graphs['allowed']:.0e}): {shown or report.graphs['failed']}"]
    lines = []
    for figures in tools.measure_model(part, device, report.limits):
        report.models.append(asdict(figures))
        lines.append(figures.words)
    return lines


# ---------------------------------------------------------------------------------------------------------------- words


def read_bytes(need: Need, positions: int) -> int:
    """Of keys and values that so many positions have."""
    return positions * need.key_heads * (need.key_dim + need.value_dim) * need.dtype.itemsize


def note_kernels(report: Report, tried: Sequence[tuple[Verdict, int]]) -> list[str]:
    """Verdicts with the positions that each timed read covered, as entries and lines. Our own kernel and the floor must be right."""
    from engine.model.cuda.readers import Gathered, Ours

    lines = []
    for tested, positions in tried:
        entry: dict[str, Any] = {"kernel": tested.label, "need": tested.need.words, "block_size": tested.need.block_size}
        entry |= {"right": tested.fault is None, "fault": tested.fault, "us": None, "share": None}
        said = tested.fault or "right"
        if tested.seconds is not None:
            entry["us"] = 1e6 * tested.seconds
            said += f", {entry['us']:.0f} us"
            if report.limits:
                entry["share"] = read_bytes(tested.need, positions) / tested.seconds / (1e9 * report.limits["gb_s"])
                said += f", {entry['share']:.0%} of the memory's speed"
        report.kernels.append(entry)
        lines.append(f"  {tested.label:<24} {tested.need.words}, blocks of {tested.need.block_size}: {said}")
        if tested.fault and tested.label in (Ours.label, Gathered.label):
            report.wrong.append(f"{tested.label} ({tested.need.words}): {tested.fault}")
    return lines


def verdict(report: Report) -> str:
    lines = [f"{report.seconds:.0f} s."]
    if report.left_out:
        lines.append("Not measured: " + "; ".join(f"{part} ({reason})" for part, reason in report.left_out.items()) + ".")
    lines.append("WRONG: " + "; ".join(report.wrong) if report.wrong else "All that was checked is right.")
    return "\n".join(lines)
