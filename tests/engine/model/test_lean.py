"""Bringing transformers in without a compiler and several machines: what stays out, and that it is there for whoever asks afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

LEAN = """
import sys
from engine.model.lean import bring_in
bring_in()
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers import LlamaConfig
from engine.model.lean import lean
import torch
small = LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
with torch.device("meta"), lean():
    shapes = LlamaForCausalLM(small)
assert shapes.lm_head.weight.is_meta and torch.arange(2).tolist() == [0, 1]
heavy = [name for name in ("sympy", "torch._dynamo", "torch._inductor", "torch.distributed.tensor") if name in sys.modules]
print(heavy, "_dynamo" in torch.__dict__, torch.distributed.is_available())

from transformers import masking_utils
model = LlamaForCausalLM(small)
assert float(model.lm_head.weight.std()) > 0.0
print(tuple(model(torch.tensor([[1, 2, 3]])).logits.shape))
with masking_utils.TransformGetItemToIndex() as inside:
    print(type(masking_utils.TransformGetItemToIndex()).__module__)
import torch._dynamo
print(torch._dynamo.allow_in_graph.__module__, torch._dynamo.__file__ is not None)
bring_in()
"""


def test_what_we_do_not_need_stays_out_and_is_there_afterwards() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", LEAN], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    heavy, shape, helper, real = done.stdout.splitlines()
    assert heavy == "[] False True"
    assert shape == "(1, 3, 32)"
    assert helper == "torch._dynamo._trace_wrapped_higher_order_op"
    assert real == "torch._dynamo.decorators True"
