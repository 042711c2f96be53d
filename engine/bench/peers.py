"""The engines that `omnibus bench work` sets against one another, each behind the same three calls.

Our own engine in process, and the peers that are installed. Each is made in a process of its own (see contest.py), so importing this
module imports none of them. Every one decodes greedily, to the exact length asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.bench.endpoint import Endpoint, OmnibusServer
from engine.bench.player import Contestant, Messages, Told
from engine.types import CLASS_DTYPES, EngineConfig, EngineError, FinishedEvent, Message, Policy, SamplingParams, TokensEvent


@dataclass(frozen=True, slots=True)
class Setting:
    """What a contestant is made with.

    Attributes:
        model: a folder with safetensors; gguf: a file, for the peers that want one.
        dtype: what `EngineConfig.dtype` takes; a torch name in the classes that transformers can run.
        seats, max_len, kv_tokens: the workload's limits.
        url, key: of a server that runs already.
    """

    model: str
    dtype: str
    threads: int
    seats: int
    max_len: int
    kv_tokens: int
    gguf: str = ""
    url: str = ""
    key: str = ""


def engine_config(setting: Setting, **rules: Any) -> EngineConfig:
    return EngineConfig(
        model=setting.model,
        dtype=setting.dtype,
        threads=setting.threads,
        seats=setting.seats,
        context=setting.max_len,
        kv_tokens=setting.kv_tokens,
        **rules,
    )


class Omnibus:
    """Our engine, in this process, through its public face; by other `rules` than its own, if some are given."""

    def __init__(self, setting: Setting, told: Told, **rules: Any) -> None:
        from engine.engine import Engine

        self._told = told
        self._answers: dict[str, list[str]] = {}
        self._ready: queue.SimpleQueue[tuple[str, Any] | None] = queue.SimpleQueue()
        self._engine = Engine(engine_config(setting, **rules))
        self._engine.start()
        self._engine.wait_ready(300)
        self._reader = threading.Thread(target=self._read, name="bench-reader", daemon=True)
        self._reader.start()

    def submit(self, request_id: str, messages: Messages, tokens: int) -> None:
        params = SamplingParams(max_tokens=tokens, min_tokens=tokens, temperature=0.0, ignore_eos=True)
        self._answers[request_id] = []
        prompt = [Message(message["role"], message["content"]) for message in messages]
        try:
            self._engine.submit(prompt, params, chat_id=request_id, on_ready=lambda handle: self._ready.put((request_id, handle)))
        except EngineError as error:
            self._told.failed(request_id, error.message)

    def close(self) -> None:
        self._engine.close()
        self._ready.put(None)
        self._reader.join(5)

    def _read(self) -> None:
        """As a client does: woken when there is something, then polls."""
        while (item := self._ready.get()) is not None:
            request_id, handle = item
            for event in handle.poll():
                if isinstance(event, TokensEvent):
                    self._answers[request_id].append(event.text)
                    self._told.tokens(request_id, event.tokens)
                elif isinstance(event, FinishedEvent):
                    if event.error is not None:
                        self._told.failed(request_id, event.error.message)
                    else:
                        self._told.done(request_id, "".join(self._answers[request_id]))


class _Transformers:
    """What both ways of using transformers share."""

    def __init__(self, setting: Setting, told: Told) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(setting.threads)
        self.setting, self.told = setting, told
        self.tokenizer = AutoTokenizer.from_pretrained(setting.model, padding_side="left")
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        dtype = getattr(torch, setting.dtype)
        self.model = AutoModelForCausalLM.from_pretrained(setting.model, dtype=dtype, attn_implementation="sdpa").eval()

    def ids(self, messages: Messages) -> list[int]:
        text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def text(self, ids: Any) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))


class HfStatic(_Transformers):
    """transformers' `generate` over groups: whoever waits boards together, the next group when the last of this one is done.

    The kind form of it: tokens reach their owners as they come, and each answer ends at its own length although its row runs on.
    """

    GATHER_S = 0.02

    def __init__(self, setting: Setting, told: Told) -> None:
        super().__init__(setting, told)
        self._waiting: queue.SimpleQueue[tuple[str, list[int], int] | None] = queue.SimpleQueue()
        self._driver = threading.Thread(target=self._drive, name="bench-hf-static", daemon=True)
        self._driver.start()

    def submit(self, request_id: str, messages: Messages, tokens: int) -> None:
        ids = self.ids(messages)
        if len(ids) + tokens > self.setting.max_len:
            self.told.failed(request_id, f"{len(ids)} + {tokens} tokens exceed {self.setting.max_len}")
            return
        self._waiting.put((request_id, ids, tokens))

    def close(self) -> None:
        self._waiting.put(None)
        self._driver.join(5)

    def _drive(self) -> None:
        while True:
            group = self._gather()
            for part in self._within_cache(group):
                try:
                    self._generate(part)
                except Exception as error:  # told to whoever waits; the next group goes on
                    for request_id, _, _ in part:
                        self.told.failed(request_id, f"{type(error).__name__}: {error}")
            if len(group) == 0:
                return

    def _gather(self) -> list[tuple[str, list[int], int]]:
        """Up to `seats` requests; empty when it is over."""
        group: list[tuple[str, list[int], int]] = []
        while len(group) < self.setting.seats:
            try:
                request = self._waiting.get(timeout=self.GATHER_S if group else None)
            except queue.Empty:
                break
            if request is None:
                self._waiting.put(None)  # for the next round, when this group has ridden
                break
            group.append(request)
        return group

    def _within_cache(self, group: list[tuple[str, list[int], int]]) -> list[list[tuple[str, list[int], int]]]:
        """A padded batch takes rows x (longest prompt + longest answer) positions; split where that would pass kv_tokens."""
        parts: list[list[tuple[str, list[int], int]]] = []
        for request in group:
            trial = [*(parts[-1] if parts else []), request]
            size = len(trial) * (max(len(ids) for _, ids, _ in trial) + max(tokens for _, _, tokens in trial))
            if parts and size <= self.setting.kv_tokens:
                parts[-1] = trial
            else:
                parts.append([request])
        return parts

    def _generate(self, group: list[tuple[str, list[int], int]]) -> None:
        import torch

        batch = self.tokenizer.pad({"input_ids": [ids for _, ids, _ in group]}, return_tensors="pt")
        width = batch["input_ids"].shape[1]
        longest = max(tokens for _, _, tokens in group)

        def after_step(sequences: Any, scores: Any, **_: Any) -> Any:
            out = sequences.shape[1] - width
            for row, (request_id, _ids, tokens) in enumerate(group):
                if out <= tokens:
                    self.told.tokens(request_id)
                if out == tokens:
                    self.told.done(request_id, self.text(sequences[row, width:]))
            return torch.tensor([out >= tokens for _, _, tokens in group])

        with torch.inference_mode():
            self.model.generate(**batch, do_sample=False, max_new_tokens=longest, min_new_tokens=longest, stopping_criteria=[after_step])


class HfContinuous(_Transformers):
    """transformers' own continuous batching."""

    PAGE = 32
    MOST_TOKENS = 1024  # positions a step
    NO_EOS = -1

    def __init__(self, setting: Setting, told: Told) -> None:
        from transformers import ContinuousBatchingConfig, GenerationConfig

        super().__init__(setting, told)
        config = ContinuousBatchingConfig(
            page_size=self.PAGE,
            num_blocks=max(1, setting.kv_tokens // self.PAGE),
            max_batch_tokens=self.MOST_TOKENS,
            max_requests_per_batch=setting.seats,
            allow_block_sharing=True,
            auto_switch_to_flash=False,
        )
        generation = GenerationConfig(
            do_sample=False, eos_token_id=self.NO_EOS, pad_token_id=self.tokenizer.pad_token_id, max_new_tokens=setting.max_len
        )
        self._sent: dict[str, int] = {}
        self._closing = False
        self._manager = self.model.init_continuous_batching(generation_config=generation, continuous_batching_config=config)
        self._manager.start()
        self._reader = threading.Thread(target=self._read, name="bench-hf-continuous", daemon=True)
        self._reader.start()

    def submit(self, request_id: str, messages: Messages, tokens: int) -> None:
        self._sent[request_id] = 0
        taken = self._manager.add_request(
            self.ids(messages), request_id=request_id, max_new_tokens=tokens, streaming=True, eos_token_id=self.NO_EOS
        )
        if taken is None:
            self.told.failed(request_id, "transformers' continuous batching takes no more requests")

    def close(self) -> None:
        self._closing = True
        self._manager.stop(block=True, timeout=10)
        self._reader.join(5)

    def _read(self) -> None:
        while not self._closing:
            output = self._manager.get_result(timeout=0.2)
            if output is None:
                if not self._manager.is_running() and not self._closing:
                    for request_id in self._sent:
                        self.told.failed(request_id, "transformers' continuous batching has stopped")
                    return
                continue
            request_id = output.request_id
            if output.error:
                self.told.failed(request_id, str(output.error))
                continue
            fresh = len(output.generated_tokens) - self._sent[request_id]
            if fresh > 0:
                self._sent[request_id] += fresh
                self.told.tokens(request_id, fresh)
            if output.is_finished():
                self.told.done(request_id, self.text(output.generated_tokens))


class LlamaCpp:
    """llama-cpp-python's own interface: one request at a time, the prompt's beginning reused when it is the same as before."""

    def __init__(self, setting: Setting, told: Told) -> None:
        Llama = importlib.import_module("llama_cpp").Llama
        self._told = told
        self._llama = Llama(
            model_path=setting.gguf, n_ctx=setting.max_len, n_threads=setting.threads, n_threads_batch=setting.threads, verbose=False
        )
        self._end_bias = {self._llama.token_eos(): -1e9}  # never ends early
        self._waiting: queue.SimpleQueue[tuple[str, Messages, int] | None] = queue.SimpleQueue()
        self._driver = threading.Thread(target=self._drive, name="bench-llama-cpp", daemon=True)
        self._driver.start()

    def submit(self, request_id: str, messages: Messages, tokens: int) -> None:
        self._waiting.put((request_id, messages, tokens))

    def close(self) -> None:
        self._waiting.put(None)
        self._driver.join(5)

    def _drive(self) -> None:
        while (request := self._waiting.get()) is not None:
            request_id, messages, tokens = request
            said: list[str] = []
            try:
                for part in self._llama.create_chat_completion(
                    messages=messages, max_tokens=tokens, temperature=0.0, stream=True, logit_bias=self._end_bias
                ):
                    text = part["choices"][0]["delta"].get("content")
                    if text:
                        said.append(text)
                        self._told.tokens(request_id)
            except Exception as error:  # told to whoever waits; the next goes on
                self._told.failed(request_id, f"{type(error).__name__}: {error}")
            else:
                self._told.done(request_id, "".join(said))


# ------------------------------------------------------------------------------------------------------------------ list


@dataclass(frozen=True, slots=True)
class Peer:
    """One line of the contest.

    Attributes:
        needs: the package that must be importable.
        classes: the precision classes it can run; empty when its file, or whoever started it, decides.
        gguf, url: whether it needs one.
        named: takes part only when it is named.
    """

    make: Callable[[Setting, Told], Contestant]
    needs: str
    classes: tuple[str, ...]
    gguf: bool = False
    url: bool = False
    named: bool = False

    def installed(self) -> bool:
        return importlib.util.find_spec(self.needs) is not None


_TRANSFORMERS = ("32-bit", "16-bit")

PEERS: dict[str, Peer] = {
    "omnibus": Peer(Omnibus, "torch", tuple(CLASS_DTYPES)),
    "omnibus-http": Peer(OmnibusServer, "uvicorn", tuple(CLASS_DTYPES)),
    "omnibus-undrafted": Peer(partial(Omnibus, draft_tokens=0), "torch", tuple(CLASS_DTYPES), named=True),
    "omnibus-static": Peer(partial(Omnibus, policy=Policy.STATIC), "torch", tuple(CLASS_DTYPES), named=True),
    "hf-static": Peer(HfStatic, "transformers", _TRANSFORMERS),
    "hf-continuous": Peer(HfContinuous, "transformers", _TRANSFORMERS),
    "llama-cpp": Peer(LlamaCpp, "llama_cpp", (), gguf=True),
    "endpoint": Peer(Endpoint, "http", (), url=True),
}


def warm(contestant: Contestant, told: Told, limit_s: float = 180.0) -> None:
    """Touch each path once before anything is measured: a few short answers together, and a longer prompt. Raises TimeoutError."""
    prompts = ["Say hello.", "Count the boats in the bay, please, and tell me their names. " * 12, "Name a tree."]
    open_ids = {f"warm-{number}" for number in range(len(prompts))}
    for request_id, prompt in zip(sorted(open_ids), prompts, strict=True):
        contestant.submit(request_id, [{"role": "user", "content": prompt}], 8)
    deadline = time.monotonic() + limit_s
    while open_ids:
        news = told.next(deadline - time.monotonic())
        if news is None:
            raise TimeoutError(f"no answer to a first short chat within {limit_s:.0f} s")
        if news.error:
            raise EngineError("peer_failed", f"It failed on a first short chat: {news.error}")
        if news.done:
            open_ids.discard(news.request_id)
