"""`omnibus bench parity`: are answers the model's own, whoever rides along, however prompts are cut and blocks run short?

For each of a few families, over tiny random models (and with `--model` of a real one, see parity_model.py):

A  greedy answers in float32, in random company, against the model's own forward pass: every token must be the same;
B  seeded draws alone and in company: every token must be the same;
C  log-probabilities of the 16-bit and 8-bit classes on the exact answers, against float32's: how far apart;
D  log-probabilities alone and in company, bit for bit: how often equal, and how far apart at most;
F  streamed text of random ids against decoding them at once: must be equal.

E, tasks through the API, is of the real model alone. All of it takes some ten minutes: `--part 1/4 --json FILE` does a quarter, and
`--join FILE FILE ...` tells what the quarters come to.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from engine.bench import output
from engine.bench.census import ANSWER, CONTEXT, make_prompts, make_tiny, own_answer
from engine.core import Core
from engine.kv.pool import BlockPool
from engine.types import EngineConfig, Event, Priority, SamplingParams, TokenLogprob, TokensEvent

FAMILIES = ("llama", "qwen3", "gemma3_text", "mistral", "phi3", "mixtral", "gpt2")
PROMPTS = 200
BLOCKS, BLOCK = 40, 4  # so few that riders lose their seats
# How far log-probabilities of tiny random models may lie from float32's, mean and 99th percentile; their weights are far wider than trained
# ones, so that roundings weigh more.
BOUNDS = {"16-bit": (0.2, 1.5), "8-bit": (0.2, 1.5)}
CLASSES = tuple(BOUNDS)
LOGPROBS = 1e-3  # between the same request alone and in company
GREEDY = SamplingParams(max_tokens=ANSWER, temperature=0.0, top_p=1.0, ignore_eos=True, logprobs=0)
DRAWN = SamplingParams(max_tokens=ANSWER, temperature=0.8, ignore_eos=True, logprobs=0)


def make_lane(model: Any) -> Any:
    from engine.model.runner import make_runner

    loaded = SimpleNamespace(codec=SimpleNamespace(eos_ids=frozenset()), context=CONTEXT, dtype="float32", torch_model=model)
    return make_runner(loaded, EngineConfig(), BLOCKS, BLOCK)  # type: ignore[arg-type]


class Ride:
    """Requests on a real core, with the tokens and log-probabilities that came out."""

    def __init__(self, runner: Any, seats: int, chunk: int, blocks: int = BLOCKS, block: int = BLOCK, reproducible: bool = False) -> None:
        ticks = iter(range(1 << 40))
        config = EngineConfig(seats=seats, token_budget=max(24, seats), chunk=chunk, adapt_chunk=False, reproducible=reproducible)
        self.core = Core(runner, BlockPool(blocks, block), config, clock=lambda: float(next(ticks)), emit=self._note)
        self.tokens: dict[str, list[int]] = {}
        self.told: dict[str, list[TokenLogprob]] = {}
        self.prompt: dict[str, tuple[TokenLogprob, ...]] = {}

    def _note(self, event: Event) -> None:
        if isinstance(event, TokensEvent):
            self.tokens.setdefault(event.request_id, []).extend(event.token_ids)
            self.told.setdefault(event.request_id, []).extend(event.logprobs)
            self.prompt[event.request_id] = event.prompt_logprobs or self.prompt.get(event.request_id, ())

    def submit(self, name: str, prompt: Sequence[int], params: SamplingParams, seed: int) -> None:
        priority = Priority.BACKGROUND if seed % 3 else Priority.FOREGROUND
        self.core.submit(name, list(prompt), params, chat_id=name, title="", priority=priority, seed=seed)

    def run(self) -> Ride:
        while self.core.busy:
            self.core.step()
        return self


def in_company(runner: Any, prompts: Sequence[Sequence[int]], params: SamplingParams, seed: int) -> Ride:
    """All of them with random arrivals; every tenth has a neighbour that is cancelled in the middle."""
    rnd = random.Random(seed)
    ride = Ride(runner, rnd.randint(2, 8), rnd.choice((1, 7, 16, 64)))
    for number, prompt in enumerate(prompts):
        ride.submit(str(number), prompt, params, number)
        if number % 10 == 0:
            ride.submit(f"gone{number}", prompt[::-1], params, number)
        for _ in range(rnd.randrange(4)):
            ride.core.step()
        if number % 10 == 5:
            ride.core.cancel(f"gone{number - 5}")
    return ride.run()


def alone(runner: Any, prompts: Sequence[Sequence[int]], params: SamplingParams) -> Ride:
    """One after another, nothing remembered in between."""
    ride = Ride(runner, 1, 256)
    for number, prompt in enumerate(prompts):
        ride.core.clear_cache()
        ride.submit(str(number), prompt, params, number)
        ride.run()
    return ride


def family_figures(family: str, count: int, seed: int) -> dict[str, Any]:
    prompts = make_prompts(count, seed)
    for number in range(2, count, 3):  # a third begins as another one does
        prompts[number] = prompts[number - 1][:20] + prompts[number][:10]
    names = [str(number) for number in range(count)]
    expected = [own_answer(make_tiny(family), prompt) for prompt in prompts]
    runner = make_lane(make_tiny(family))
    company = in_company(runner, prompts, GREEDY, seed)
    single = alone(runner, prompts, GREEDY)
    drawn, drawn_alone = in_company(runner, prompts, DRAWN, seed + 1), alone(runner, prompts, DRAWN)
    pairs = [
        (one.logprob or 0.0, other.logprob or 0.0)
        for name in names
        for one, other in zip(single.told[name], company.told[name], strict=True)
    ]
    return {
        "preemptions": company.core.totals.preemptions + drawn.core.totals.preemptions,
        "greedy_equal": sum(company.tokens[name] == answer for name, answer in zip(names, expected, strict=True)),
        "sampled_equal": sum(drawn.tokens[name] == drawn_alone.tokens[name] for name in names),
        "logprobs_bitwise_equal_share": round(sum(one == other for one, other in pairs) / len(pairs), 4),
        "logprobs_largest_difference": max(abs(one - other) for one, other in pairs),
        "classes": {name: class_figures(family, name, prompts, expected) for name in CLASSES},
    }


def class_figures(family: str, name: str, prompts: Sequence[list[int]], answers: Sequence[list[int]]) -> dict[str, float]:
    """|difference| of log-probabilities of the exact answers' tokens, a class against float32."""
    from engine.model.linear import pack_linears

    params = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True, prompt_logprobs=0)
    texts = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
    packed = make_tiny(family)
    pack_linears(packed, name)
    exact, other = alone(make_lane(make_tiny(family)), texts, params), alone(make_lane(packed), texts, params)
    differences = sorted(
        abs((one.logprob or 0.0) - (two.logprob or 0.0))
        for number, answer in enumerate(answers)
        for one, two in zip(exact.prompt[str(number)][-len(answer) :], other.prompt[str(number)][-len(answer) :], strict=True)
    )
    place = min(len(differences) - 1, int(0.99 * len(differences)))
    return {"mean": sum(differences) / len(differences), "p99": differences[place], "largest": differences[-1]}


def text_figures(count: int, seed: int) -> dict[str, int]:
    """Streamed against decoded at once, over random ids of a byte-level vocabulary: most of them are no whole characters."""
    from engine.bench.small_models import make_tokenizer
    from engine.text.codec import Codec

    codec, rnd, equal = Codec(make_tokenizer()), random.Random(seed), 0
    for _ in range(count):
        ids = [rnd.randrange(3, 259) for _ in range(rnd.randint(1, 40))]
        stream = codec.stream()
        equal += "".join([*map(stream.push, ids), stream.flush()]) == codec.decode(ids)
    return {"texts": count, "equal": equal}


def family_words(family: str, item: Mapping[str, Any], count: int) -> str:
    classes = ", ".join(f"{name} mean {found['mean']:.4f} p99 {found['p99']:.3f}" for name, found in item["classes"].items())
    return (
        f"{family:<14}greedy {item['greedy_equal']}/{count}, sampled {item['sampled_equal']}/{count}, {item['preemptions']} seats lost, "
        f"bitwise {item['logprobs_bitwise_equal_share']:.1%} (at most {item['logprobs_largest_difference']:.1e} apart); {classes}"
    )


def text_words(item: Mapping[str, Any]) -> str:
    return f"{'text':<14}{item['equal']}/{item['texts']} streams are their decoding"


def parity(
    families: Sequence[str],
    count: int,
    seed: int = 1,
    told: Callable[[str], None] = lambda words: None,
    model: str | None = None,
    first: int = 0,
) -> dict[str, Any]:
    """The figures of `count` prompts of each kind, from the `first` on; `told` hears each line."""
    figures: dict[str, Any] = {"prompts": count, "first": first, "families": {}}
    for family in families:
        figures["families"][family] = found = family_figures(family, count, seed + first)
        told(family_words(family, found, count))
    figures["text"] = text_figures(10 * count, seed + first)
    told(text_words(figures["text"]))
    if model is not None:
        from engine.bench.parity_model import model_parity

        figures["model"] = model_parity(model, count, seed, told, first)
    return figures


def wrong(figures: dict[str, Any]) -> list[str]:
    """What must be equal, or within its bounds, and is not."""
    found, whole = [], figures["prompts"]
    for family, item in figures["families"].items():
        for kind in ("greedy", "sampled"):
            if item[f"{kind}_equal"] != whole:
                found.append(f"{family}: {whole - item[f'{kind}_equal']} {kind} answers differ")
        if item["logprobs_largest_difference"] > LOGPROBS:
            found.append(f"{family}: log-probabilities differ by {item['logprobs_largest_difference']:.1e} in company")
        for name, (mean, p99) in BOUNDS.items():
            if item["classes"][name]["mean"] > mean or item["classes"][name]["p99"] > p99:
                found.append(f"{family}: {name} is farther from float32 than its bounds allow")
    if figures["text"]["equal"] != figures["text"]["texts"]:
        found.append("streamed text differs from the decoded one")
    if "model" in figures:
        from engine.bench.parity_model import model_wrong

        found += model_wrong(figures["model"])
    return found


def tell_joined(figures: Mapping[str, Any], told: Callable[[str], None]) -> None:
    """The lines of a whole run, from the figures of its parts."""
    for family, item in figures["families"].items():
        told(family_words(family, item, figures["prompts"]))
    told(text_words(figures["text"]))
    if "model" in figures:
        from engine.bench.parity_model import tell_model

        tell_model(figures["model"], told)


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("parity", help="are answers the model's own, whoever rides along?")
    parser.add_argument("--prompts", type=int, default=PROMPTS, help=f"of each family (default: {PROMPTS})")
    parser.add_argument("--family", action="append", help=f"one of the census's, or none (repeatable; default: {', '.join(FAMILIES)})")
    parser.add_argument("--model", help="a real model, too: starter, a folder or a GGUF file")
    parser.add_argument("--first", type=int, default=0, help="where among the real model's 200 prompts to begin (default: 0)")
    parser.add_argument("--part", metavar="I/N", help=f"the I-th of N parts of all {PROMPTS} prompts, instead of --prompts and --first")
    parser.add_argument("--join", metavar="FILE", nargs="+", help="tell what the documents of several parts come to; nothing is run")
    parser.add_argument("--seed", type=int, default=1)
    output.add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """0 everything that must be equal is, 1 something is not or the document could not be written, 2 asked for in a wrong way."""
    from engine.bench import census, parity_parts

    families = args.family if args.family is not None else list(FAMILIES)
    families = [] if families == ["none"] else families
    unknown = [name for name in families if name not in census.FAMILIES]
    if args.prompts < 1 or unknown or not 0 <= args.first < PROMPTS:
        print(f"There is no family {unknown[0]!r}." if unknown else "Say at least 1 prompt, from 0 to 199 on.", file=sys.stderr)
        return 2
    out = output.human_stream(args.json)

    def told(words: str) -> None:
        print(words, file=out, flush=True)

    try:
        output.check_writable(args.json)
        if args.join:
            figures = parity_parts.joined(parity_parts.read(args.join))
            tell_joined(figures, told)
        else:
            first, count = parity_parts.span(args.part, PROMPTS) if args.part else (args.first, args.prompts)
            figures = parity(families, count, args.seed, told, args.model, first)
        figures["wrong"] = wrong(figures)
        output.write_document(args.json, figures)
    except parity_parts.NoPart as error:
        print(error, file=sys.stderr)
        return 2
    except output.NotWritable as error:
        print(error, file=sys.stderr)
        return 1
    for words in figures["wrong"]:
        print(f"{words}.", file=out)
    return 1 if figures["wrong"] else 0
