"""What torch and transformers bring along and a chat never uses (`late`, `lean`): left out, and there for whoever asks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

LATE = """
import sys
from engine.model import late
late.import_torch()
import torch
from engine.model.lean import bring_in as bring_in_transformers, lean
bring_in_transformers()
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers import LlamaConfig
small = LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
with torch.device("meta"), lean():
    shapes = LlamaForCausalLM(small)
assert shapes.lm_head.weight.is_meta and torch.arange(2).tolist() == [0, 1]
heavy = [name for name in ("sympy", "torch._dynamo", "torch._inductor", "torch.distributed.tensor") if name in sys.modules]
print(heavy, "_dynamo" in torch.__dict__, torch.distributed.is_available())
model = LlamaForCausalLM(small).eval().requires_grad_(False)
assert float(model.lm_head.weight.std()) > 0.0
told = model(torch.tensor([[1, 2, 3]])).logits
record = torch.jit.trace(lambda ids: model(ids).logits, torch.tensor([[1, 2, 3]]), check_trace=False)
assert torch.equal(record(torch.tensor([[1, 2, 3]])), told)
print(torch.Generator().manual_seed(1).initial_seed())
print([name for name in late.PARTS if isinstance(sys.modules[name], late._Late)] == list(late.PARTS))

whole = torch.empty(4, device="meta", dtype=torch.complex64)
try:
    torch.fft.fft(whole)
    print("computed")
except NotImplementedError:
    print("not yet")
print(late.bring_in(), late.bring_in())
print(torch.fft.fft(whole).shape, torch.export.Dim.__module__, torch.export.__spec__ is not None)

from transformers import masking_utils
with masking_utils.TransformGetItemToIndex() as inside:
    print(type(masking_utils.TransformGetItemToIndex()).__module__)
import torch._dynamo
print(torch._dynamo.allow_in_graph.__module__, torch._dynamo.__file__ is not None)
bring_in_transformers()
"""

ASKED = """
import sys
from engine.model import late
late.import_torch()
import torch
import torch.export.dynamic_shapes
from torch.export import export
print(export.__module__, type(torch.export).__name__, type(sys.modules["torch.export"]).__name__)
late.import_torch()
print(type(sys.modules["torch.export"]).__name__)
"""


def run(script: str) -> list[str]:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_what_a_chat_never_uses_is_not_imported_and_there_afterwards() -> None:
    heavy, *late, helper, real = run(LATE)
    assert heavy == "[] False True"
    assert late == ["1", "True", "not yet", "True False", "torch.Size([4]) torch.export.dynamic_shapes True"]
    assert helper == "torch._dynamo._trace_wrapped_higher_order_op"
    assert real == "torch._dynamo.decorators True"


def test_whoever_imports_it_has_the_real_one() -> None:
    assert run(ASKED) == ["torch.export module module", "module"]
