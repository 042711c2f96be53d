"""Several answers to one prompt compute it once, its unaligned end too, and part by a copy of the one block in which it ends."""

from __future__ import annotations

import pytest

from engine.core import Core
from engine.kv.copies import Fork
from engine.scheduling.plan import CacheRules
from engine.scheduling.request import RequestState
from engine.sim import Sim, expected_answer
from engine.types import EngineConfig, Policy, Priority, SamplingParams, StepRecord, WaitReason
from tests.engine.scheduling.make import make_sim, run_all


def ask(sim: Sim, count: int, prompt: list[int], answer: int = 6, chat: str = "several", salt: bytes = b"") -> list[RequestState]:
    """Several answers to one prompt, as `Engine.submit_several` asks for them: one chat, a seed each."""
    core: Core = sim.core
    first = core.totals.submitted
    params = SamplingParams(max_tokens=answer, ignore_eos=True)
    return [
        core.submit(f"r{first + n}", prompt, params, chat_id=chat, title=f"r{first + n}", priority=Priority.API, seed=n, salt=salt)
        for n in range(count)
    ]


def rows(record: StepRecord | None) -> dict[str, int]:
    assert record is not None
    return {row.request_id: row.tokens for row in record.rows}


def check_answers(sim: Sim, requests: list[RequestState], prompt: list[int], answer: int = 6) -> None:
    for request in requests:
        assert sim.tokens(request.id) == expected_answer(prompt, request.seed, answer)
    assert sim.core.pool.referenced == 0
    sim.core.scheduler.audit()


@pytest.mark.parametrize("length", [2, 3, 4, 5, 8, 9, 11, 64, 67])
def test_siblings_that_come_together_compute_the_prompt_once(length: int) -> None:
    sim = make_sim(block_size=4, seats=4, token_budget=200)
    prompt = list(range(length))
    siblings = ask(sim, 4, prompt)
    assert rows(sim.core.step()) == {"r0": length}
    assert {request.wait_reason for request in siblings[1:]} <= {WaitReason.PREFIX, WaitReason.TURN}
    assert rows(sim.core.step()) == {"r0": 1, "r1": 1, "r2": 1, "r3": 1}
    assert [request.cached_tokens for request in siblings] == [0, *[length - 1] * 3]
    copies = 3 if (length - 1) % 4 else 0  # a prompt whose last token stands alone in its block leaves nothing to copy
    assert sim.core.scheduler.prefixes.forks == copies
    full = (length - 1) // 4
    table = [request.blocks for request in siblings]
    assert all(blocks[:full] == table[0][:full] for blocks in table), "full blocks are held once"
    if length % 4:
        assert len({blocks[full] for blocks in table}) == 4, "each writes to its own"
        assert sim.core.pool.referenced == full + 4
    else:  # the copy became complete with the prompt's last token: it is given back for the block that was there
        assert len({blocks[full] for blocks in table}) == 1
        assert sim.core.pool.referenced == full + 1 + 1  # and the first has begun its next
    assert sim.core.totals.prompt_tokens == length + 3
    run_all(sim)
    check_answers(sim, siblings, prompt)


def test_siblings_without_a_seat_still_copy_when_the_first_has_gone() -> None:
    sim = make_sim(block_size=4, seats=1)
    prompt = list(range(10))
    siblings = ask(sim, 3, prompt)
    records = run_all(sim)
    assert sum(row.tokens for record in records for row in record.rows if row.phase == "prefill") == 10 + 2
    assert sim.core.scheduler.prefixes.forks == 2
    check_answers(sim, siblings, prompt)


def test_another_version_of_an_answer_computes_one_token() -> None:
    sim = make_sim(block_size=8)
    prompt = list(range(13))
    ask(sim, 1, prompt)
    run_all(sim)
    (again,) = ask(sim, 1, prompt)
    assert rows(sim.core.step()) == {"r1": 1} and again.cached_tokens == 12
    run_all(sim)
    check_answers(sim, [again], prompt)


def test_a_block_that_would_have_to_give_way_itself_is_not_copied() -> None:
    sim = make_sim(blocks=3, block_size=4, seats=1)
    prompt = list(range(11))
    ask(sim, 1, prompt, answer=1)
    run_all(sim)
    assert sim.core.pool.free == 0 and sim.core.pool.cached == 3
    (again,) = ask(sim, 1, prompt, answer=1)
    assert rows(sim.core.step()) == {"r1": 3} and again.cached_tokens == 8
    check_answers(sim, [again], prompt, 1)


def test_other_salts_share_nothing() -> None:
    sim = make_sim(block_size=4)
    prompt = list(range(10))
    ask(sim, 1, prompt, salt=b"mine")
    run_all(sim)
    (other,) = ask(sim, 1, prompt, salt=b"theirs")
    assert rows(sim.core.step()) == {"r1": 10} and other.cached_tokens == 0


def test_the_first_leaves_before_it_is_done_and_the_next_takes_over() -> None:
    sim = make_sim(block_size=4, seats=4, token_budget=4)
    prompt = list(range(10))
    siblings = ask(sim, 3, prompt)
    sim.core.step()
    sim.core.cancel("r0")
    records = run_all(sim)
    assert rows(records[0]) == {"r1": 4}  # on from the block that was complete
    check_answers(sim, siblings[1:], prompt)


def test_on_the_tour_bus_everyone_boards_and_computes_its_own() -> None:
    sim = make_sim(block_size=4, seats=3, token_budget=200, chunk=200, policy=Policy.STATIC)
    prompt = list(range(10))
    siblings = ask(sim, 3, prompt)
    assert rows(sim.core.step()) == {"r0": 10, "r1": 10, "r2": 10}
    run_all(sim)
    check_answers(sim, siblings, prompt)


def test_where_a_layer_keeps_a_state_each_reads_the_prompt() -> None:
    """The state of a request stands behind its last token and cannot be taken back by one."""
    config = EngineConfig(seats=3, token_budget=64, chunk=64, adapt_chunk=False)
    sim = Sim(config, blocks=40, block_size=4, rules=CacheRules(resumable=False))
    prompt = list(range(10))
    siblings = ask(sim, 3, prompt)
    assert rows(sim.core.step()) == {"r0": 10, "r1": 10, "r2": 10}
    run_all(sim)
    check_answers(sim, siblings, prompt)


def test_a_branch_of_a_chat_shares_all_that_they_have_in_common() -> None:
    sim = make_sim(block_size=4, seats=4)
    stem = list(range(18))
    ask(sim, 1, [*stem, 50, 51, 52], chat="a")
    ask(sim, 1, [*stem, 60, 61], chat="b")
    sim.core.scheduler.prefixes.twin_tokens = 4
    sim.core.step()
    record = sim.core.step()
    assert rows(record) == {"r0": 1, "r1": 20 - 18}
    branches = list(sim.core.scheduler.seated.values())
    assert branches[0].blocks[:4] == branches[1].blocks[:4] and branches[0].blocks[4] != branches[1].blocks[4]
    run_all(sim)
    assert sim.tokens("r1") == expected_answer([*stem, 60, 61], 0, 6)


def test_copies_are_ordered_once_and_before_the_rows() -> None:
    sim = make_sim(block_size=4, seats=4)
    ask(sim, 2, list(range(6)))
    scheduler = sim.core.scheduler
    sim.core.step()
    plan = scheduler.plan(1.0)
    first, second = scheduler.seated.values()
    assert [row.request for row in plan.rows] == [first, second]
    assert scheduler.prefixes.take_copies() == (Fork(first.blocks[1], second.blocks[1]),) and scheduler.prefixes.take_copies() == ()
