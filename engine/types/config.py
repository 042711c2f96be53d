"""What an engine is started with."""

from __future__ import annotations

from dataclasses import dataclass

from engine.types.errors import EngineError
from engine.types.sentences import Sentence
from engine.types.words import Policy

# `EngineConfig.dtype` by the class of precision, of weights, that benchmarks compare within.
CLASS_DTYPES = {"32-bit": "float32", "16-bit": "bfloat16", "8-bit": "8-bit", "4-bit": "4-bit"}
KV_CLASSES = ("auto", "8-bit")  # `EngineConfig.kv_class`
MOST_THREADS = 1024  # the library that starts them ends the whole process when the system refuses it one


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What an engine is started with. Everything but model, device, dtype, kv_class, block_size and kv_tokens changes at run time.

    Attributes:
        model: "starter", a folder with safetensors, or a GGUF file.
        device: "auto", "cpu", "cuda", "mps", …; several with commas ("cuda:0,cuda:1") share the layers, each with their cache.
        dtype: "auto", "float32", "bfloat16", "float16"; on the CPU "8-bit" and "4-bit", too. There "auto" is 16 bits, or 4 for weights that
            lie on such a grid already and lose nothing (GGUF's Q4_0 and Q4_1), or float32 where nothing else is fast.
        seats: most requests in one batch.
        kv_tokens: positions of the KV pool; None lets the memory plan choose.
        block_size: positions a block; None lets the device choose (32 on the CPU; elsewhere 16, or what the fastest kernel takes).
        context: most positions a request; None takes the model's own.
        token_budget: most positions a step computes.
        chunk: most prefill positions in one step beside decodes, or before the first of several prompts is finished; adapted towards
            target_step_s when `adapt_chunk`.
        policy: in-flight or static.
        max_waiting: requests that may wait; more are refused with "queue_full".
        threads: torch threads, at most `MOST_THREADS`; None leaves one core to the window.
        overtake_limit: how many later requests may board before one that does not fit yet.
        aging_s: a request that waits this long moves up one priority class.
        kv_class: what keys and values are kept in. "auto" is the dtype that the model computes them in, or 16 bits where steps run on our
            own kernels; "8-bit" takes about half of the latter (`omnibus bench accuracy` measures its error).
        tier_tokens: positions of a second KV tier, where idle chats' blocks go instead of being forgotten; 0 is none.
        tier_folder: keep that tier in a file in this folder; None keeps it in host memory.
        plain: run the model as transformers does, without packed weights and recorded steps (slow; to find out whether those are at fault).
        idle_unload_s: let the model go after so many seconds without a request; None keeps it.
        draft_tokens: most tokens of an answer that a step verifies beyond the next one, guessed from its own text, where that is likely to
            pay; 0 is off, None lets the device choose (8 where all products of a step are our own kernels', elsewhere off). Answers are
            the same with and without, there to the last bit; with torch's products a sum may round in another way, as in company.
        reproducible: the same prompt and seed give the same answer, whoever rides along. Free where steps run on our own kernels, whose
            numbers are the same to the last bit in any company; elsewhere (and with experts, whose products are torch's) requests ride
            one at a time, each from its beginning.
        debug_audit: check every block's count against the tables that hold it, each step (slow).
    """

    model: str = "starter"
    device: str = "auto"
    dtype: str = "auto"
    seats: int = 8
    kv_tokens: int | None = None
    block_size: int | None = None
    context: int | None = None
    token_budget: int = 512
    chunk: int = 128
    adapt_chunk: bool = True
    target_step_s: float = 0.15
    policy: Policy = Policy.IN_FLIGHT
    max_waiting: int = 4096
    threads: int | None = None
    overtake_limit: int = 8
    aging_s: float = 30.0
    kv_class: str = "auto"
    tier_tokens: int = 0
    tier_folder: str | None = None
    idle_unload_s: float | None = None
    plain: bool = False
    draft_tokens: int | None = None
    reproducible: bool = False
    debug_audit: bool = False

    def check(self) -> None:
        """Raise EngineError("bad_config", ...) naming the first value that is out of range."""
        for name in ("seats", "token_budget", "chunk", "max_waiting"):
            if getattr(self, name) < 1:
                raise EngineError(
                    "bad_config",
                    Sentence("{0} is {1}, but it must be at least 1.", name, getattr(self, name)),
                    Sentence("Set {0} to 1 or more.", name),
                )
        for name in ("kv_tokens", "block_size", "context", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise EngineError(
                    "bad_config",
                    Sentence("{0} is {1}, but it must be at least 1.", name, value),
                    Sentence("Set {0} to 1 or more, or leave it out.", name),
                )
        if self.threads is not None and self.threads > MOST_THREADS:
            raise EngineError("bad_config", Sentence("threads is {0}, but it must be at most {1}.", self.threads, MOST_THREADS))
        if self.kv_class not in KV_CLASSES:
            raise EngineError("bad_config", Sentence("kv_class is {0!r}, but it must be one of {1}.", self.kv_class, ", ".join(KV_CLASSES)))
        if self.idle_unload_s is not None and not self.idle_unload_s > 0:
            raise EngineError("bad_config", "idle_unload_s must be above 0.", "Leave it out to keep the model loaded.")
        if self.draft_tokens is not None and not 0 <= self.draft_tokens <= 16:
            raise EngineError("bad_config", Sentence("draft_tokens is {0}, but it must lie between 0 (off) and 16.", self.draft_tokens))
        if self.tier_tokens < 0:
            raise EngineError("bad_config", Sentence("tier_tokens is {0}, but it must be 0 or more.", self.tier_tokens))
        if self.tier_folder is not None and not self.tier_tokens:
            raise EngineError(
                "bad_config",
                "tier_folder is given, but tier_tokens is 0: nothing would be set aside there.",
                "Set tier_tokens to the positions that the folder may hold, or leave the folder out.",
            )
        if self.overtake_limit < 0 or self.aging_s <= 0 or self.target_step_s <= 0:
            raise EngineError("bad_config", "overtake_limit must be 0 or more; aging_s and target_step_s must be above 0.")
