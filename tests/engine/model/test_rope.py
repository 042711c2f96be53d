"""Positions are frozen at load: no request's values depend on a neighbour's length, whatever the scaling."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.model.rope import freeze_rope
from engine.types import ModelError
from tests.engine.model.tiny import CONTEXT, Driver, make_lane, make_model, make_prompts, make_request, reference_answer

DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
SCALED: dict[str, tuple[str, dict[str, Any]]] = {
    "longrope": ("phi3", {}),
    "dynamic": ("llama", {"rope_parameters": DYNAMIC, "max_position_embeddings": 16}),
    "yarn": ("llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}}),
    "llama3": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 1e4,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "gemma3 by layer type": (
        "gemma3",
        {
            "rope_parameters": {"full_attention": DYNAMIC, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}},
            "max_position_embeddings": 16,
        },
    ),
}


@pytest.mark.parametrize("name", SCALED)
def test_a_long_neighbour_changes_nothing(name: str) -> None:
    family, changes = SCALED[name]
    runner = make_lane(make_model(family, **changes))
    short, long = make_prompts(1, 1, 6, 6)[0], make_prompts(1, 2, 90, 90)[0]
    alone = Driver(runner, 1).answer([make_request(short)], 8)
    beside = Driver(runner, 1).answer([make_request(short), make_request(long, name="long")], 8, seats=2)
    assert beside[0] == alone[0]


@pytest.mark.parametrize("name", ["longrope", "dynamic", "gemma3 by layer type"])
def test_the_neighbour_would_matter_otherwise(name: str) -> None:
    """Without freezing, the same rotary module gives the short request other values: the test above tests something."""
    family, changes = SCALED[name]
    model = make_model(family, **changes)
    rotary = model.model.rotary_emb
    more = ("full_attention",) if isinstance(rotary.rope_type, dict) else ()
    near = torch.arange(4)[None]
    alone = rotary(torch.zeros(1), near, *more)[0].clone()
    beside = rotary(torch.zeros(1), torch.cat([near, torch.tensor([[90]])], 1), *more)[0]
    assert not torch.equal(alone, beside[:, :4])


def test_longrope_short_factors_for_a_short_context() -> None:
    """A context within what the model was first trained on takes the short factors: transformers' own answers there."""
    model = make_model("phi3")
    done = freeze_rope(model, 16)
    assert len(done) == 1 and "short factors" in done[0]
    twin = make_model("phi3")
    for prompt in make_prompts(4, 3, 2, 6):
        lane = make_lane(model, context=16)
        assert Driver(lane).answer([make_request(prompt)], 8)[0] == reference_answer(twin, prompt, 8)


def test_dynamic_is_fixed_at_the_context() -> None:
    """The frozen frequencies are those that transformers computes for a request as long as the context."""
    family, changes = SCALED["dynamic"]
    frozen, plain = make_model(family, **changes), make_model(family, **changes)
    assert "fixed at 64 positions" in freeze_rope(frozen, 64)[0]
    plain.model.rotary_emb(torch.zeros(1), torch.tensor([[63]]))
    torch.testing.assert_close(frozen.model.rotary_emb.inv_freq, plain.model.rotary_emb.inv_freq, rtol=1e-6, atol=0)


def test_within_its_own_length_dynamic_is_plain() -> None:
    family, changes = SCALED["dynamic"]
    model, twin = make_model(family, **changes), make_model(family, **changes)
    lane = make_lane(model, context=16)
    prompt = make_prompts(1, 8, 5, 5)[0]
    assert Driver(lane).answer([make_request(prompt)], 8)[0] == reference_answer(twin, prompt, 8)


def test_a_family_with_its_own_update_is_told_one_length() -> None:
    """Phi-MoE scales by the longest position in a forward of its own, beside the frequencies."""
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * 8,
        "long_factor": [3.0] * 8,
        "short_mscale": 1.1,
        "long_mscale": 1.4,
        "original_max_position_embeddings": 16,
    }
    from transformers import PhimoeConfig
    from transformers.models.phimoe.modeling_phimoe import PhimoeRotaryEmbedding

    config = PhimoeConfig(
        hidden_size=64, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=CONTEXT, rope_parameters=rope
    )
    holder = torch.nn.ModuleDict({"rotary": PhimoeRotaryEmbedding(config)})
    done = freeze_rope(holder, CONTEXT)
    near = torch.arange(4)[None]
    alone = holder["rotary"](torch.zeros(1), near)
    beside = holder["rotary"](torch.zeros(1), torch.cat([near, torch.tensor([[90]])], 1))
    assert any("always told" in line for line in done)
    assert all(torch.equal(a, b[:, :4]) and a.shape == (1, 4, 16) for a, b in zip(alone, beside, strict=True))


def test_freezing_twice() -> None:
    model = make_model("phi3")
    assert freeze_rope(model, CONTEXT) and not freeze_rope(model, CONTEXT)
    with pytest.raises(ModelError, match="context of 256, not 64"):
        freeze_rope(model, 64)
