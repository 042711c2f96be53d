from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine import EngineError
from engine.bench.workloads import MAKERS, check_work, load_work, make_work


def count_words(text: str) -> int:
    return len(text.split())


def prompt_words(request: dict) -> int:
    return sum(count_words(message["content"]) for message in request["messages"])


@pytest.mark.parametrize("name", MAKERS)
def test_every_workload_can_be_played(name: str) -> None:
    work = make_work(name, count_words)
    check_work(work)
    assert work["name"] == name and work["title"]
    assert all(prompt_words(request) + request["output_tokens"] < work["max_len"] for request in work["requests"])
    json.dumps(work)


@pytest.mark.parametrize("name", MAKERS)
def test_a_seed_is_a_workload(name: str) -> None:
    assert make_work(name, count_words, seed=3) == make_work(name, count_words, seed=3)
    assert make_work(name, count_words, seed=3) != make_work(name, count_words, seed=4)


def test_prompts_have_their_length() -> None:
    requests = make_work("W4", count_words)["requests"]
    assert 4000 <= prompt_words(requests[-1]) <= 4096
    assert all(40 <= prompt_words(request) <= 60 for request in requests[:-1])
    system = make_work("W5", count_words)["requests"][0]["messages"][0]["content"]
    assert 1000 <= count_words(system) <= 1024


def test_the_crowd_has_a_heavy_tail() -> None:
    lengths = [request["output_tokens"] for request in make_work("W2", count_words)["requests"]]
    assert len(lengths) == 16 and min(lengths) == 8 and max(lengths) == 512


def test_the_rate_sets_how_many_arrive() -> None:
    slow, fast = (make_work("W3", count_words, rate=rate)["requests"] for rate in (0.5, 3.0))
    assert 15 <= len(slow) <= 45 and 130 <= len(fast) <= 230
    for requests in (slow, fast):
        times = [request["at"] for request in requests]
        assert times == sorted(times) and times[0] > 0 and times[-1] < 60


def test_turns_follow_one_another() -> None:
    requests = {request["id"]: request for request in make_work("W5", count_words)["requests"]}
    assert requests["c3t2"]["after"] == "c3t1" and "at" not in requests["c3t2"]
    assert [message["role"] for message in requests["c3t1"]["messages"]] == ["system", "user"]
    assert [message["role"] for message in requests["c3t2"]["messages"]] == ["user"]


def test_the_cache_of_the_tight_one_holds_about_three() -> None:
    work = make_work("W7", count_words)
    sizes = [prompt_words(request) + request["output_tokens"] for request in work["requests"]]
    assert 2 <= work["kv_tokens"] / (sum(sizes) / len(sizes)) <= 5


def test_an_unknown_name_is_a_sentence() -> None:
    with pytest.raises(EngineError, match="no workload named W9"):
        make_work("W9", count_words)


def test_a_file_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "work.json"
    work = make_work("W1", count_words)
    path.write_text(json.dumps(work))
    assert load_work(str(path)) == work


def make_text(*requests: dict, **more) -> str:
    return json.dumps({"seats": 1, "max_len": 9, "kv_tokens": 9, "time_limit_s": 1, "requests": requests, **more})


def make_entry(name: str = "a", **more) -> dict:
    return {"id": name, "output_tokens": 1, "messages": [{"role": "user", "content": "x"}], **more}


BROKEN = {
    "no JSON": "not json",
    "a list": "[]",
    "nothing in it": "{}",
    "no requests": make_text(),
    "no seats": make_text(make_entry(at=0), seats=0),
    "no time": make_text(make_entry(at=0), time_limit_s=0),
    "no start": make_text(make_entry()),
    "no tokens": make_text(make_entry(at=0, output_tokens=0)),
    "a message without words": make_text(make_entry(at=0, messages=[{"role": "user"}])),
    "one id twice": make_text(make_entry(at=0), make_entry(at=0)),
    "waits for itself": make_text(make_entry(after="a")),
    "waits for a later one": make_text(make_entry("a", at=0), make_entry("b", when={"ids": ["c"], "tokens": 1}), make_entry("c", at=0)),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_file_that_is_no_workload_is_a_sentence(tmp_path: Path, what: str) -> None:
    path = tmp_path / "work.json"
    path.write_text(BROKEN[what])
    with pytest.raises(EngineError) as caught:
        load_work(str(path))
    assert caught.value.code == "bad_work"
    check_work(json.loads(make_text(make_entry(at=0))))  # what the broken ones are broken from


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot be read"):
        load_work(str(tmp_path / "none.json"))
