"""How much each class of precision changes a model's answers: `omnibus bench accuracy`.

Owns the prompts and the comparison. The model answers twenty chat prompts greedily in float32; then every class reads the same prompts
and answers, and its next-token distributions at each answered position are compared with float32's. One forward pass a text, without an
engine: transformers' own, or where steps run on our own kernels theirs, with keys and values in 16 bits. The last row is float32 with
nothing but keys and values in 8 bits, through the general lane. No class may ever be tuned on these prompts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from engine.bench import output
from engine.types import EngineConfig, EngineError, Message

if TYPE_CHECKING:
    import torch

CLASSES = ("f32", "16-bit", "8-bit", "4-bit", "8-bit-kv")
EIGHT = "8-bit-kv"
ANSWER = 40  # tokens of each answer, at most
LONGEST = 4096  # positions that a text may have

PROMPTS = (
    "Why does bread rise in the oven?",
    "Write a short thank-you note to a neighbour who watered my plants.",
    "Explain what a prime number is to a ten-year-old.",
    "List five things to check before a long bicycle tour.",
    "What is the difference between weather and climate?",
    "Write a Python function that counts the vowels in a string.",
    "Summarise the story of Romeo and Juliet in three sentences.",
    "I have eggs, rice and one onion. What can I cook?",
    "Translate into French: The train leaves at seven in the morning.",
    "How do vaccines work?",
    "Give me a name and a slogan for a small bookshop by the sea.",
    "What is 17 times 24? Show how you get there.",
    "Write four lines of verse about the first snow of the year.",
    "My laptop does not turn on any more. What should I try first?",
    "Who was Marie Curie and what is she known for?",
    "Explain recursion with an example from everyday life.",
    "Write a polite e-mail that asks to move a meeting from Tuesday to Thursday.",
    "What do plants need light for?",
    "Compare tea and coffee in a short table.",
    "How can I fall asleep more easily at night?",
)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """One class against float32.

    Attributes:
        mean_kl, p99_kl: divergence of the class's next-token distribution from float32's, in nats (mean and 99th percentile).
        top1: share of positions where both find the same token most likely.
        positions: how many were compared.
        precision: the class the machine made of it (a class it has no kernel for falls back to a finer one).
        kernels: products by kernel.
    """

    mean_kl: float
    p99_kl: float
    top1: float
    positions: int
    precision: str
    kernels: dict[str, int]


@dataclass(frozen=True, slots=True)
class Transcript:
    """One prompt with its float32 answer, and float32's log probabilities [positions, vocabulary] where the answer's tokens were chosen."""

    ids: torch.Tensor
    prompt: int
    reference: torch.Tensor

    @property
    def places(self) -> slice:
        return slice(self.prompt - 1, len(self.ids) - 1)


def measure(
    load: Callable[[], Any],
    prompts: Sequence[Sequence[int]],
    eos_ids: frozenset[int],
    classes: Sequence[str] = CLASSES,
    told: Callable[[str, Accuracy | EngineError | None], None] = lambda name, result: None,
) -> dict[str, Accuracy]:
    """Each class of `classes` by name; a class that the model or machine refuses is left out.

    Args:
        load: gives the model afresh, float32, as a transformers causal LM.
        prompts: token ids.
        told: hears of each class twice: with None before, with its outcome after.
    """
    import torch

    from engine.model.linear import pack_linears
    from engine.model.norms import quicken_norms

    results = {}
    with torch.inference_mode():
        transcripts = _transcripts(load(), prompts, eos_ids)
        for name in classes:
            told(name, None)
            model = load()
            try:
                report = pack_linears(model, "f32" if name == EIGHT else name)
                quicken_norms(model, native=report.precision != "f32")
                forward = _forward_eight(model) if name == EIGHT else _forward(model, report.precision)
            except EngineError as error:
                told(name, error)
                continue
            divergences, agreements = zip(*(_compare(forward, transcript) for transcript in transcripts), strict=True)
            kl, same = torch.cat(divergences), torch.cat(agreements)
            results[name] = Accuracy(
                mean_kl=float(kl.mean()),
                p99_kl=float(kl.quantile(0.99)),
                top1=float(same.float().mean()),
                positions=len(kl),
                precision=report.precision,
                kernels=report.kernels,
            )
            told(name, results[name])
    return results


def _transcripts(model: Any, prompts: Sequence[Sequence[int]], eos_ids: frozenset[int]) -> list[Transcript]:
    """Float32's own answers and distributions."""
    import torch

    made = []
    for prompt, answer in zip(prompts, _answers(model, prompts, eos_ids), strict=True):
        ids = torch.tensor([*prompt, *answer])
        logits = model(ids[None], use_cache=False).logits[0, len(prompt) - 1 : len(ids) - 1]
        made.append(Transcript(ids, len(prompt), logits.float().log_softmax(-1)))
    return made


def _answers(model: Any, prompts: Sequence[Sequence[int]], eos_ids: frozenset[int]) -> list[list[int]]:
    """Greedy answers of all prompts in one left-padded batch, end of text included."""
    import torch

    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    made = model.generate(
        ids, attention_mask=mask, max_new_tokens=ANSWER, do_sample=False, eos_token_id=sorted(eos_ids) or None, pad_token_id=0
    )
    answers = []
    for row in made[:, longest:].tolist():
        end = next((place + 1 for place, token in enumerate(row) if token in eos_ids), len(row))
        answers.append(row[:end])
    return answers


def _forward(model: Any, precision: str) -> Callable[[Transcript], torch.Tensor]:
    """Logits [positions, vocabulary] as the engine computes them: on our own kernels, with its cache in 16 bits, where it would do so."""
    from engine.model.native.lane import tile_geometry
    from engine.model.probe import probe

    if precision != "f32":
        own = model.config._attn_implementation
        geometry = tile_geometry(model, probe(model, LONGEST), None)
        if geometry is not None:
            return lambda transcript: _through_tiles(model, geometry, transcript)
        model.set_attn_implementation(own)
    return lambda transcript: model(transcript.ids[None], use_cache=False).logits[0, transcript.places]  # type: ignore[no-any-return]


def _forward_eight(model: Any) -> Callable[[Transcript], torch.Tensor]:
    """The same with keys and values in 8 bits."""
    import torch

    from engine.model.batch import BatchBuilder
    from engine.model.native.lane import UNIT
    from engine.model.probe import probe
    from engine.model.states import SeatStates
    from engine.model.step import run_step

    geometry = probe(model, LONGEST).in_eight_bits()

    def forward(transcript: Transcript) -> torch.Tensor:
        states = SeatStates(geometry.states) if geometry.states else None
        builder = BatchBuilder(UNIT, geometry.windows, torch.device("cpu"), by_row=geometry.by_row, states=states)
        store, inputs = _whole(transcript, geometry, builder)
        return run_step(model, geometry, store.keys, store.values, inputs, states.tensors if states else None)[0]

    return forward


def _through_tiles(model: Any, geometry: Any, transcript: Transcript) -> torch.Tensor:
    from engine.model.native.cache import run_tiles
    from engine.model.native.lane import UNIT
    from engine.model.native.paged import TileBuilder

    store, inputs = _whole(transcript, geometry, TileBuilder(UNIT, geometry.windows, geometry.group))
    return run_tiles(model, geometry, store.keys, store.values, inputs)[0]


def _whole(transcript: Transcript, geometry: Any, builder: Any) -> tuple[Any, Any]:
    """(A cache of its own, inputs) of a step that reads a whole transcript and gives the logits of its answer's places."""
    import torch

    from engine.model.cache import KVStore
    from engine.model.rehearsal import made_up
    from engine.scheduling.plan import Row

    ids, size = transcript.ids.tolist(), builder.block_size
    blocks = -(-len(ids) // size)
    request = made_up("whole", ids, range(1, blocks + 1))
    inputs = builder.build([Row(request, 0, len(ids), True)]).inputs
    places = transcript.places
    return KVStore(geometry, blocks, size), replace(inputs, sample=torch.arange(places.start, places.stop))


def _compare(forward: Callable[[Transcript], torch.Tensor], transcript: Transcript) -> tuple[torch.Tensor, torch.Tensor]:
    """(divergence [positions], whether the most likely token is the same [positions])"""
    logits = forward(transcript).float()
    logs = logits.log_softmax(-1)
    reference = transcript.reference
    return (reference.exp() * (reference - logs)).sum(-1), logs.argmax(-1) == reference.argmax(-1)


# --------------------------------------------------------------------------------------------------------- command line


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("accuracy", help="compare each class of precision with float32")
    parser.add_argument("--model", default="starter", metavar="MODEL", help="starter (the default), a model folder or a GGUF file")
    parser.add_argument("--only", metavar="CLASS", action="append", choices=CLASSES, help="measure this class (repeatable); all by default")
    output.add_json_option(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    stream = output.human_stream(args.json)
    try:
        output.check_writable(args.json)
        results = _measure_model(args.model, args.only or CLASSES, stream)
        output.write_document(args.json, {"classes": {name: asdict(result) for name, result in results.items()}})
    except output.NotWritable as error:
        print(f"omnibus: {error}", file=sys.stderr)
        return 1
    return 0


def _measure_model(source: str, classes: Sequence[str], stream: Any) -> dict[str, Accuracy]:
    from engine.model.loading import load_model

    config = EngineConfig(model=source, device="cpu", dtype="float32")

    def load() -> Any:
        return load_model(source, config, lambda share, stage: None, lambda: False)

    def told(name: str, result: Accuracy | EngineError | None) -> None:
        if isinstance(result, Accuracy):
            kernels = ", ".join(sorted(result.kernels))
            print(f"{result.mean_kl:>10.6f}{result.p99_kl:>10.6f}{result.top1:>8.1%}   {kernels}", file=stream, flush=True)
        elif result is not None:
            print(f"  {result.message}", file=stream, flush=True)
        else:
            print(f"{name:<9}", end="", file=stream, flush=True)

    first = load()
    codec = first.codec
    prompts = [codec.encode_chat([Message("user", text)]) for text in PROMPTS]
    print(f"{first.name}: {len(prompts)} chat prompts, greedy float32 answers of up to {ANSWER} tokens", file=stream, flush=True)
    print(f"{'class':<9}{'mean KL':>10}{'p99 KL':>10}{'top-1':>8}   kernels", file=stream, flush=True)
    del first
    return measure(lambda: load().torch_model, prompts, codec.eos_ids, classes, told)
