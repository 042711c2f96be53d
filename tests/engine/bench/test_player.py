"""The player against a contestant that answers at once, late, wrongly or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from engine.bench.figures import EXTRA, figures, median_of, table
from engine.bench.player import Outcome, Told, play

Answer = Callable[["Scripted", str, int], None]


def answer_whole(contestant: Scripted, request_id: str, tokens: int) -> None:
    for _ in range(tokens):
        contestant.told.tokens(request_id)
    contestant.told.done(request_id, f"answer to {request_id}")


class Scripted:
    """Answers as a script says, by the request's own name."""

    def __init__(self, **answers: Answer) -> None:
        self.told = Told()
        self.answers = answers
        self.asked: list[tuple[str, list[dict[str, str]], int]] = []

    def submit(self, request_id: str, messages: list[dict[str, str]], tokens: int) -> None:
        self.asked.append((request_id, messages, tokens))
        self.answers.get(request_id.partition("/")[2], answer_whole)(self, request_id, tokens)

    def close(self) -> None:
        pass


def make_request(name: str, tokens: int = 3, **more) -> dict:
    start = {} if more.keys() & {"after", "when"} else {"at": 0.0}
    return {"id": name, **start, "output_tokens": tokens, "messages": [{"role": "user", "content": f"ask {name}"}], **more}


def make_work(*requests: dict, **more) -> dict:
    return {"name": "T", "seats": 2, "max_len": 64, "kv_tokens": 128, "time_limit_s": 20, "requests": list(requests), **more}


def test_all_are_asked_and_counted() -> None:
    contestant = Scripted()
    outcomes = play(make_work(make_request("a", 3), make_request("b", 1)), contestant, contestant.told, "s1")
    assert [(outcome.id, outcome.tokens, outcome.whole) for outcome in outcomes] == [("a", 3, True), ("b", 1, True)]
    assert [messages[0]["content"] for _, messages, _ in contestant.asked] == ["[s1] ask a", "[s1] ask b"]


def test_the_work_itself_is_not_changed() -> None:
    work = make_work(make_request("a"), make_request("b", after="a"))
    before = repr(work)
    contestant = Scripted()
    play(work, contestant, contestant.told, "s1")
    assert repr(work) == before


def test_a_turn_brings_what_was_said_before() -> None:
    contestant = Scripted()
    play(make_work(make_request("a"), make_request("b", after="a"), make_request("c", after="b")), contestant, contestant.told, "s1")
    last = contestant.asked[-1][1]
    assert [message["role"] for message in last] == ["user", "assistant", "user", "assistant", "user"]
    assert last[1]["content"] == "answer to s1/a" and last[-1]["content"] == "ask c"


def test_one_that_waits_for_tokens_starts_when_they_are_there() -> None:
    def half(contestant: Scripted, request_id: str, tokens: int) -> None:
        contestant.told.tokens(request_id, 2)
        rest.append(lambda: (contestant.told.tokens(request_id, tokens - 2), contestant.told.done(request_id, "x")))

    def release(contestant: Scripted, request_id: str, tokens: int) -> None:
        answer_whole(contestant, request_id, tokens)
        for finish in rest:
            finish()

    rest: list[Callable[[], object]] = []
    contestant = Scripted(a=half, b=half, late=release)
    work = make_work(make_request("a", 5), make_request("b", 5), make_request("late", 1, when={"ids": ["a", "b"], "tokens": 2}))
    outcomes = play(work, contestant, contestant.told, "s1")
    assert [request_id for request_id, _, _ in contestant.asked] == ["s1/a", "s1/b", "s1/late"]
    assert all(outcome.whole for outcome in outcomes)


def test_arrivals_are_in_time_order_whatever_the_order_of_the_file() -> None:
    contestant = Scripted()
    work = make_work(make_request("second", at=0.02), make_request("first"))
    outcomes = play(work, contestant, contestant.told, "s1")
    assert [request_id for request_id, _, _ in contestant.asked] == ["s1/first", "s1/second"]
    assert [outcome.id for outcome in outcomes] == ["second", "first"]
    assert outcomes[0].sent - outcomes[1].sent >= 0.015


def test_failures_and_short_answers_are_not_whole() -> None:
    def short(contestant: Scripted, request_id: str, tokens: int) -> None:
        contestant.told.tokens(request_id)
        contestant.told.done(request_id, "x")

    def fail(contestant: Scripted, request_id: str, tokens: int) -> None:
        contestant.told.failed(request_id, "no room")

    contestant = Scripted(a=short, b=fail)
    work = make_work(make_request("a"), make_request("b"), make_request("c"), report=["lost"])
    made = figures(work, play(work, contestant, contestant.told, "s1"))
    assert made["whole"] == [1, 3]
    assert made["lost"]["why"] == ["1 of 3 tokens", "no room"]


def test_silence_ends_at_the_time_limit() -> None:
    contestant = Scripted(a=lambda *_: None)
    work = make_work(make_request("a"), make_request("b", after="a"), make_request("c"), time_limit_s=0.1)
    a, b, c = play(work, contestant, contestant.told, "s1")
    assert (a.error, b.error, c.error) == ("not finished in time", "never started in time", "")


def test_late_news_of_another_run_is_not_taken_for_this_ones() -> None:
    def stale(contestant: Scripted, request_id: str, tokens: int) -> None:
        contestant.told.tokens("s0/a", 7)
        contestant.told.done("s0/a", "old")
        answer_whole(contestant, request_id, tokens)

    contestant = Scripted(a=stale)
    (outcome,) = play(make_work(make_request("a")), contestant, contestant.told, "s1")
    assert outcome.whole and outcome.text == "answer to s1/a"


def test_news_may_come_from_any_thread() -> None:
    def threaded(contestant: Scripted, request_id: str, tokens: int) -> None:
        threading.Thread(target=answer_whole, args=(contestant, request_id, tokens), name="test-news").start()

    contestant = Scripted(**{f"q{number}": threaded for number in range(8)})
    seen: list[tuple[int, int]] = []
    outcomes = play(
        make_work(*(make_request(f"q{n}", 20) for n in range(8))), contestant, contestant.told, "s1", lambda *of: seen.append(of)
    )
    assert all(outcome.whole for outcome in outcomes)
    assert seen == [(number, 8) for number in range(1, 9)]


# --------------------------------------------------------------------------------------------------------------- figures


def make_outcome(name: str, sent: float, *times: float, counts: list[int] | None = None, **more) -> Outcome:
    counts = counts or [1] * len(times)
    return Outcome(name, sum(counts), sent=sent, times=list(times), counts=counts, ended=True, **more)


def test_figures_by_hand() -> None:
    made = figures(make_work(), [make_outcome("a", 10.0, 10.5, 10.6, 10.9), make_outcome("b", 10.0, 11.0, 12.0, counts=[1, 3])])
    assert made["whole"] == [2, 2]
    assert made["tok_s"] == pytest.approx(7 / 2.0)
    assert made["ttft_p50_s"] == pytest.approx(0.75)
    assert made["itl_p50_ms"] == pytest.approx(300) and made["itl_max_ms"] == pytest.approx(1000)


def test_no_answers_make_no_figures_and_no_crash() -> None:
    work = make_work(report=list(EXTRA), long="a", goal={"ttft_s": 1, "itl_p95_s": 1})
    made = figures(work, [Outcome("a", 3, sent=1.0, error="x"), Outcome("b", 3)])
    assert made["tok_s"] == 0 and made["ttft_p50_s"] is None and made["itl_max_ms"] is None


def test_the_silence_that_a_long_prompt_causes() -> None:
    outcomes = [make_outcome("d", 0.0, 1.0, 1.1, 3.0, 3.1, 9.0), make_outcome("L", 1.5, 4.0)]
    stall = figures(make_work(report=["stall"], long="L"), outcomes)["stall"]
    assert stall["worst_gap_s"] == pytest.approx(5.9), "the gap that begins before the long prompt's first token counts"
    assert stall["long_ttft_s"] == pytest.approx(2.5)
    assert stall["others_tok_s"] == pytest.approx(2 / 2.5)


def test_goodput_wants_both_goals() -> None:
    outcomes = [make_outcome("fast", 0.0, 0.5, 0.55), make_outcome("late", 0.0, 1.5, 1.55), make_outcome("slow", 0.0, 0.5, 0.9)]
    assert figures(make_work(report=["goodput"], goal={"ttft_s": 1.0, "itl_p95_s": 0.1}), outcomes)["goodput"]["share"] == pytest.approx(
        1 / 3
    )


def test_later_turns_are_apart_from_first_ones() -> None:
    outcomes = [make_outcome("a", 0.0, 2.0, turn=1), make_outcome("b", 3.0, 3.25, turn=2), make_outcome("c", 4.0, 4.75, turn=3)]
    turns = figures(make_work(report=["turns"]), outcomes)["turns"]
    assert turns["first_p50_s"] == pytest.approx(2.0) and turns["later_p50_s"] == pytest.approx(0.5)


def test_decode_leaves_the_prefill_out() -> None:
    assert figures(make_work(report=["decode"]), [make_outcome("a", 0.0, 5.0, 5.5, 6.0)])["decode"]["tok_s"] == pytest.approx(2.0)


def test_medians_and_sums_over_repeats() -> None:
    runs = [{"whole": [1, 2], "tok_s": value, "ttft_p50_s": None, "turns": {"later_p50_s": value}} for value in (1.0, 5.0, 3.0)]
    made = median_of(runs)
    assert made == {"whole": [3, 6], "tok_s": 3.0, "ttft_p50_s": None, "turns": {"later_p50_s": 3.0}}


def test_the_table_fits_and_compares_within_a_class() -> None:
    row = {"whole": [225, 225], "ttft_p50_s": 1.0, "ttft_p95_s": 99.99, "itl_p50_ms": 123.4, "itl_max_ms": 12345.0, "rss_mib": 12345.0}
    results = [
        {"engine": "omnibus", "class": "16-bit", "tok_s": 300.0, **row},
        {"engine": "hf-continuous", "class": "16-bit", "tok_s": 100.0, **row},
        {"engine": "llama-cpp", "class": "8-bit", "tok_s": 100.0, **row},
        {"engine": "hf-static", "class": "16-bit", "error": "it fell over"},
    ]
    lines = table(results, "omnibus")
    assert all(len(line) < 80 for line in lines)
    assert "3.00" in lines[2] and "3.00" not in lines[3] and "it fell over" in lines[4]
