"""`omnibus bench parity --model`: the same question of a real model, opened as the program opens it, fast lane and all.

A  greedy answers in float32, in random company, too few blocks and random chunks: every token must be the model's own first choice;
C  the 16-bit and 8-bit classes read the same texts in company: log-probabilities of the answers' tokens against float32's, within bounds;
D  some of the prompts alone and in company: on our own kernels the log-probabilities are the same to the last bit, elsewhere near, or
   the same where answers are to be reproducible;
E  tasks through the API over HTTP: the perplexity of each text as the model itself has it, and the same choice in every question.

The reference is transformers' own forward pass, one text at a time, without a cache. Prompts are those of `accuracy` in ten wordings, so
that many share their beginnings.
"""

from __future__ import annotations

import json
import math
import random
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.bench.accuracy import PROMPTS
from engine.bench.parity import Ride
from engine.bench.parity_tasks import QUESTIONS, TEXTS
from engine.engine import Engine
from engine.opened import OpenModel, open_real_model
from engine.server.serving import ApiServer
from engine.types import EngineConfig, Message, SamplingParams

ANSWER = 24  # tokens
SEATS = 8
TIGHT, ROOMY = 640, 2048  # tokens of KV cache; in the tight one riders lose their seats
ALONE = 8  # prompts that ride once more by themselves
TIE = 2e-4  # a first choice that is nearer to the second than this may fall either way: sums of another order differ by as much
WORDINGS = (
    "{}",
    "{} Answer in one sentence.",
    "{} Answer briefly, please.",
    "{} Explain it step by step.",
    "{} Imagine that I am ten years old.",
    "I have a question. {}",
    "Be honest: {}",
    "For a friend of mine: {}",
    "{} Give an example, too.",
    "{} Thank you!",
)
# How far the answers' log-probabilities may lie from float32's: mean, 99th percentile, largest. The 16-bit bounds are several times what
# transformers' own bfloat16 differs between batches of other sizes; 8-bit weights are coarser by their nature.
BOUNDS = {"16-bit": (0.03, 0.25, 0.75), "8-bit": (0.08, 0.5, 1.5)}
DTYPES = {"16-bit": "bfloat16", "8-bit": "8-bit"}
NOISE = 1.5  # our 16 bits may be farther from float32 than transformers' own by this factor at most
NEAR = 0.25  # a log-probability alone and in company, where sums may be made in another order; in float32 a thousandth of it
PERPLEXITY = 1e-4  # relative
PATIENCE_S = 240.0

GREEDY = SamplingParams(max_tokens=ANSWER, temperature=0.0, top_p=1.0, logprobs=0)

Tell = Callable[[str], None]


def prompts_of(codec: Any, count: int, first: int = 0) -> list[list[int]]:
    """The same 200 in the same mixed order always, from the `first` on."""
    texts = [wording.format(text) for text in PROMPTS for wording in WORDINGS]
    random.Random(200).shuffle(texts)
    return [codec.encode_chat([Message("user", text)]) for text in texts[first : first + count]]


def opened(source: str, dtype: str, kv_tokens: int) -> OpenModel:
    config = EngineConfig(model=source, device="cpu", dtype=dtype, seats=SEATS, kv_tokens=kv_tokens, threads=1)
    return open_real_model(config, lambda share, stage: None, lambda: False)


def plain(source: str, dtype: str = "float32") -> Any:
    """transformers' model, as it is."""
    from engine.model.loading import load_model

    return load_model(source, EngineConfig(model=source, device="cpu", dtype=dtype), lambda share, stage: None, lambda: False).torch_model


def company(model: OpenModel, prompts: Sequence[list[int]], params: SamplingParams, seed: int, reproducible: bool = False) -> Ride:
    """All of them on the real lane, with random arrivals, chunks and seats; every tenth has a neighbour that leaves in the middle."""
    rnd = random.Random(seed)
    seats, chunk = rnd.randint(4, SEATS), rnd.choice((7, 16, 64))
    ride = Ride(model.runner, seats, chunk, model.num_blocks, model.block_size, reproducible)
    for number, prompt in enumerate(prompts):
        ride.submit(str(number), prompt, params, number)
        if number % 10 == 0:
            ride.submit(f"gone{number}", prompt[:-3], params, number)
        for _ in range(rnd.randrange(8)):
            ride.core.step()
        if number % 10 == 5:
            ride.core.cancel(f"gone{number - 5}")
    return ride.run()


class Judge:
    """What the model itself says of a text: for each of its last tokens the log-probability, and whether it was the first choice."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def logs(self, ids: Sequence[int], last: int) -> Any:
        """Log-probabilities [last, vocabulary] at the places where the last tokens were chosen."""
        import torch

        with torch.inference_mode():
            logits = self._model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0, -last - 1 : -1]
        return logits.float().log_softmax(-1)

    def chosen(self, ids: Sequence[int], last: int) -> list[float]:
        import torch

        return self.logs(ids, last).gather(1, torch.tensor(list(ids[-last:]))[:, None])[:, 0].tolist()  # type: ignore[no-any-return]


def greedy_figures(
    source: str, count: int, first: int, seed: int, tell: Tell
) -> tuple[dict[str, Any], list[tuple[list[int], int]], list[list[float]]]:
    """A; with the texts (prompt and answer, how long the answer is) and the log-probabilities of the answers' tokens."""
    model = opened(source, "float32", TIGHT)
    prompts = prompts_of(model.codec, count, first)
    ride = company(model, prompts, GREEDY, seed)
    apart = company_figures(model, prompts[:ALONE], ride)
    same = company_figures(model, prompts[:ALONE], company(model, prompts[:ALONE], GREEDY, seed, reproducible=True), reproducible=True)
    lost_seats, lane = ride.core.totals.preemptions, model.runner.lane  # type: ignore[attr-defined]
    model.close()
    judge = Judge(plain(source))
    texts, expected = [], []
    equal = ties = 0
    far = 0.0
    for number, prompt in enumerate(prompts):
        answer = ride.tokens[str(number)]
        logs = judge.logs(prompt + answer, len(answer))
        best = logs.topk(2, -1)
        gaps = (best.values[:, 0] - best.values[:, 1]).tolist()
        wrong = [place for place, (ours, own) in enumerate(zip(answer, best.indices[:, 0].tolist(), strict=True)) if ours != own]
        equal += not wrong
        ties += bool(wrong) and gaps[wrong[0]] < TIE
        own = [float(row[token]) for row, token in zip(logs, answer, strict=True)]
        told = [item.logprob or 0.0 for item in ride.told[str(number)]]
        far = max(far, max(abs(one - other) for one, other in zip(own, told, strict=True)))
        texts.append((prompt + answer, len(answer)))
        expected.append(own)
    figures = {
        "prompts": len(prompts),
        "equal": equal,
        "ties": ties,
        "preemptions": lost_seats,
        "lane": lane,
        "largest_difference": far,
        "company": apart,
        "reproducible": same,
    }
    tell_greedy(figures, tell)
    return figures, texts, expected


def class_figures(
    source: str, name: str, texts: Sequence[tuple[list[int], int]], expected: Sequence[Sequence[float]], seed: int, tell: Tell
) -> dict[str, Any]:
    """C, for one class."""
    model = opened(source, DTYPES[name], ROOMY)
    ride = company(model, [ids for ids, _ in texts], SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0), seed + 1)
    prompts = [ids[:-length] for ids, length in texts[: 2 * ALONE]]
    apart = company_figures(model, prompts[:ALONE], company(model, prompts, GREEDY, seed + 2))
    model.close()
    ours = [[item.logprob or 0.0 for item in ride.prompt[str(number)][-length:]] for number, (_, length) in enumerate(texts)]
    figures: dict[str, Any] = {"against_f32": spread(expected, ours)}
    if name == "16-bit":
        judge = Judge(plain(source, "bfloat16"))
        figures["transformers_against_f32"] = spread(expected, [judge.chosen(ids, length) for ids, length in texts])
    figures["company"] = apart
    tell_class(name, figures, tell)
    return figures


def company_figures(model: OpenModel, prompts: Sequence[list[int]], ride: Ride, reproducible: bool = False) -> dict[str, Any]:
    """D: the first prompts of a ride in company once more, one after another and nothing remembered in between."""
    from engine.model.native.lane import TileLane

    single = Ride(model.runner, 1, 256, model.num_blocks, model.block_size, reproducible)
    for number, prompt in enumerate(prompts):
        single.core.clear_cache()
        single.submit(str(number), prompt, GREEDY, number)
        single.run()
    names = [str(number) for number in range(len(prompts))]
    pairs = [
        (one.logprob or 0.0, other.logprob or 0.0)
        for name in names
        for one, other in zip(single.told[name], ride.told[name], strict=False)
        if single.tokens[name] == ride.tokens[name]
    ]
    return {
        "exact": reproducible or isinstance(model.runner.fast, TileLane),  # type: ignore[attr-defined]
        "one_at_a_time": ride.core.company.alone,
        "prompts": len(prompts),
        "answers_equal": sum(single.tokens[name] == ride.tokens[name] for name in names),
        "tokens": len(pairs),
        "bitwise_equal": sum(one == other for one, other in pairs),
        "largest_difference": max((abs(one - other) for one, other in pairs), default=0.0),
    }


def company_words(item: Mapping[str, Any]) -> str:
    lane = "our own kernels" if item["exact"] else "sums may be made in another order"
    lane = "one at a time, for reproducible answers" if item.get("one_at_a_time") else lane
    return (
        f"alone and in company {item['answers_equal']}/{item['prompts']} answers are the same, {item['bitwise_equal']}/{item['tokens']} "
        f"log-probabilities to the last bit, at most {item['largest_difference']:.1e} apart ({lane})"
    )


def spread(some: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> dict[str, float]:
    apart = sorted(abs(one - other) for these, those in zip(some, others, strict=True) for one, other in zip(these, those, strict=True))
    place = min(len(apart) - 1, int(0.99 * len(apart)))
    return {"tokens": len(apart), "mean": sum(apart) / len(apart), "p99": apart[place], "largest": apart[-1]}


def told(item: dict[str, float]) -> str:
    return f"mean {item['mean']:.4f}, p99 {item['p99']:.3f}, largest {item['largest']:.3f}"


def task_figures(source: str, tell: Tell) -> dict[str, Any]:
    """E, in float32, through the server's completions with `echo` and `logprobs`, as evaluation harnesses ask."""
    engine = Engine(EngineConfig(model=source, device="cpu", dtype="float32", seats=4, kv_tokens=ROOMY, threads=1))
    token = "parity-" + "0123456789abcdef" * 3
    server = ApiServer(engine, token)
    judge = Judge(plain(source))
    try:
        engine.start()
        engine.wait_ready(PATIENCE_S)
        server.start()

        def ask(texts: Sequence[str]) -> list[list[float]]:
            """Log-probabilities of all tokens but the first, of all texts in one request: they ride together."""
            prompts = [engine.tokenize(text) or [] for text in texts]
            body = {"prompt": prompts, "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            request = urllib.request.Request(f"http://127.0.0.1:{server.port}/v1/completions", json.dumps(body).encode(), headers)
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
                choices = json.load(reply)["choices"]
            logs = [choice["logprobs"]["token_logprobs"] for choice in sorted(choices, key=lambda choice: int(choice["index"]))]
            return [given[1 : len(prompt)] for given, prompt in zip(logs, prompts, strict=True)]

        def own(text: str) -> list[float]:
            ids = list(engine.tokenize(text) or [])
            return judge.chosen(ids, len(ids) - 1)

        perplexities = [(perplexity(served), perplexity(own(text))) for text, served in zip(TEXTS, ask(TEXTS), strict=True)]
        picks = []
        for question, answers, _ in QUESTIONS:
            begin = len(engine.tokenize(question) or []) - 1
            whole = [f"{question} {answer}" for answer in answers]
            picks.append((pick([logs[begin:] for logs in ask(whole)]), pick([own(text)[begin:] for text in whole])))
    finally:
        server.stop(30.0)
        engine.close(30.0)
    farthest = max(abs(ours - theirs) / theirs for ours, theirs in perplexities)
    figures = {
        "texts": len(perplexities),
        "perplexity": math.exp(sum(math.log(ours) for ours, _ in perplexities) / len(perplexities)),
        "perplexity_relative_difference": farthest,
        "questions": len(picks),
        "same_choice": sum(ours == theirs for ours, theirs in picks),
        "right": sum(ours == right for (ours, _), (_, _, right) in zip(picks, QUESTIONS, strict=True)),
        "right_by_the_model": sum(theirs == right for (_, theirs), (_, _, right) in zip(picks, QUESTIONS, strict=True)),
    }
    tell_tasks(figures, tell)
    return figures


def perplexity(logs: Sequence[float]) -> float:
    return math.exp(-sum(logs) / len(logs))


def pick(answers: Sequence[Sequence[float]]) -> int:
    """The likeliest answer, by the mean over its tokens."""
    means = [sum(logs) / len(logs) for logs in answers]
    return means.index(max(means))


def model_parity(source: str, count: int, seed: int, tell: Tell, first: int = 0) -> dict[str, Any]:
    """The tasks are always the same: only those who begin with the first prompt do them."""
    greedy, texts, expected = greedy_figures(source, count, first, seed, tell)
    classes = {name: class_figures(source, name, texts, expected, seed, tell) for name in BOUNDS}
    return {"greedy": greedy, "classes": classes, "tasks": task_figures(source, tell) if first == 0 else None}


def tell_model(figures: Mapping[str, Any], tell: Tell) -> None:
    tell_greedy(figures["greedy"], tell)
    for name, found in figures["classes"].items():
        tell_class(name, found, tell)
    if figures["tasks"]:
        tell_tasks(figures["tasks"], tell)


def tell_greedy(item: Mapping[str, Any], tell: Tell) -> None:
    ties = f", {item['ties']} more but for a tie" if item["ties"] else ""
    tell(
        f"A  float32, {item['lane']} lane, {item['preemptions']} seats lost on the way: {item['equal']}/{item['prompts']} answers are the "
        f"model's own token by token{ties}; log-probabilities at most {item['largest_difference']:.1e} apart"
    )
    tell(f"D  float32: {company_words(item['company'])}")
    if "reproducible" in item:  # not in the documents of older versions
        tell(f"D  float32: {company_words(item['reproducible'])}")


def tell_class(name: str, item: Mapping[str, Any], tell: Tell) -> None:
    spreads = [(who, item[who]) for who in ("against_f32", "transformers_against_f32") if who in item]
    tell(f"C  {name}: " + "; ".join(f"{who.replace('_', ' ')} {told(found)}" for who, found in spreads))
    tell(f"D  {name}: {company_words(item['company'])}")


def tell_tasks(item: Mapping[str, Any], tell: Tell) -> None:
    tell(
        f"E  through the API: perplexity {item['perplexity']:.4f}, at most {item['perplexity_relative_difference']:.1e} (relative) from "
        f"the model's own; {item['same_choice']}/{item['questions']} questions answered alike, {item['right']} rightly"
    )


def model_wrong(figures: dict[str, Any]) -> list[str]:
    """What is out of its bounds, in words."""
    wrong = []
    greedy, tasks = figures["greedy"], figures["tasks"]
    if greedy["equal"] + greedy["ties"] < greedy["prompts"]:
        wrong.append(f"{greedy['prompts'] - greedy['equal'] - greedy['ties']} greedy answers are not the model's own")
    for name, found in figures["classes"].items():
        ours = found["against_f32"]
        for word, most in zip(("mean", "p99", "largest"), BOUNDS[name], strict=True):
            if ours[word] > most:
                wrong.append(f"{name}: the {word} difference is {ours[word]:.4f}, more than {most}")
        theirs = found.get("transformers_against_f32")
        if theirs and ours["mean"] > NOISE * theirs["mean"]:
            wrong.append(f"{name}: farther from float32 than transformers' own by more than {NOISE}")
        wrong += company_wrong(name, found["company"], NEAR)
    wrong += company_wrong("float32", greedy["company"], NEAR / 1000)
    wrong += company_wrong("float32, reproducible", greedy["reproducible"], 0.0) if "reproducible" in greedy else []
    return wrong + (tasks_wrong(tasks) if tasks else [])


def company_wrong(name: str, found: Mapping[str, Any], near: float) -> list[str]:
    wrong = []
    if found["exact"] and (found["bitwise_equal"] < found["tokens"] or found["answers_equal"] < found["prompts"]):
        wrong.append(f"{name}: answers depend on their company, on kernels that should not let them")
    if found["largest_difference"] > near:
        wrong.append(f"{name}: log-probabilities differ by {found['largest_difference']:.1e} in company")
    return wrong


def tasks_wrong(tasks: Mapping[str, Any]) -> list[str]:
    wrong = []
    if tasks["perplexity_relative_difference"] > PERPLEXITY:
        wrong.append(f"a perplexity differs by {tasks['perplexity_relative_difference']:.1e}")
    if tasks["same_choice"] < tasks["questions"]:
        wrong.append(f"{tasks['questions'] - tasks['same_choice']} questions are answered otherwise")
    return wrong
