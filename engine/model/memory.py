"""Plans the memory of a loaded model: how many KV blocks fit beside the weights and the work of the largest step.

Owns the arithmetic and the reading of free memory; allocates nothing. Units: bytes, blocks, positions.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from engine.model.demand import scoring_bytes, step_bytes
from engine.model.geometry import Geometry
from engine.model.runner import Loaded, context_of, prepare
from engine.model.slots import slots_wanted
from engine.scheduling.window import KEPT_SHARE, slots_beside, slots_for
from engine.types import EngineConfig, ModelError, Sentence

BLOCK_CPU = 32  # in place, larger blocks cost nothing and make fewer pairs
BLOCK_OTHER = 16
CONTEXT_SHARE = 4096  # by default the pool holds this much of every seat's context
RAM_SHARE = 0.25  # of free memory, the most that a default pool takes on a machine that does other things too
PLENTY = 1 << 20  # blocks, where they cost nothing
RESERVE_RAM = 512 << 20  # left alone: the window, the tokenizer, the system
RESERVE_DEVICE = 256 << 20  # left alone on an accelerator: context, fragments, the display


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Free bytes, and what the plan makes of them. Weights are loaded already, so they are not in `free`.

    `bytes_per_block` counts what a block takes while it is read, too (see `Geometry.unpacked_bytes`).
    `bytes_per_slot` of these are in the layers that could keep blocks in slots (see `engine/kv/slots.py`); 0 where that is not to be.
    `beside` is what riders may need of slots, whatever they do; `slots` what was planned, 0 for one a block.
    Of a model on several devices, all of which hold the same blocks, each for its own layers: the figures of the one with least room.
    """

    free: int
    workspace: int
    reserve: int
    bytes_per_block: int
    block_size: int
    num_blocks: int
    bytes_per_slot: int = 0
    beside: int = 0
    slots: int = 0

    @property
    def most_blocks(self) -> int:
        return self.blocks_in(self.free - self.workspace - self.reserve)

    def blocks_in(self, room: int) -> int:
        """The most that fit in so many bytes."""
        if not self.bytes_per_block:  # nothing but recurrent layers: a position costs nothing, a seat does
            return PLENTY if room > 0 else 0
        most = max(0, room // self.bytes_per_block - 1)  # block 0 is for padding
        if self.bytes_per_slot:  # each block brings a part of a slot with it, beside those that riders need and slot 0
            by_block = self.bytes_per_block - self.bytes_per_slot
            left = room - by_block - (self.beside + 1) * self.bytes_per_slot
            count = max(0, KEPT_SHARE * left // (KEPT_SHARE * by_block + self.bytes_per_slot))
            most = max(most, count if slots_for(count, self.beside) else 0)
        return most

    def bytes_of(self, num_blocks: int) -> int:
        """What so many blocks take, without those that are no one's."""
        slots = slots_for(num_blocks, self.beside) if self.bytes_per_slot else 0
        return num_blocks * self.bytes_per_block - (num_blocks - slots if slots else 0) * self.bytes_per_slot

    def with_blocks(self, num_blocks: int) -> MemoryPlan:
        return replace(self, num_blocks=num_blocks, slots=slots_for(num_blocks, self.beside) if self.bytes_per_slot else 0)


def make_plan(loaded: Loaded, config: EngineConfig, free: int | None = None) -> MemoryPlan:
    """The plan for a loaded model; `free` overrides the measured free bytes.

    Raises ModelError("not_enough_memory", ...) when not one request of 64 positions fits, or the pool asked for does not.
    """
    geometry = prepare(loaded, config)
    context = context_of(loaded, config)
    on_cpu = geometry.device.type == "cpu"
    block_size = config.block_size or (BLOCK_CPU if on_cpu else BLOCK_OTHER)
    workspace = workspace_bytes(loaded.torch_model, geometry, config, context) + config.seats * geometry.bytes_per_seat()
    plans = [
        _plan_of(
            device,
            free_bytes(device) if free is None else free,
            workspace,
            geometry.bytes_per_position(device) + geometry.unpacked_bytes(),
            block_size,
        )
        for device in geometry.devices
    ]
    plan = min(plans, key=lambda item: item.most_blocks)
    if slots_wanted(geometry, config):
        budget = max(config.token_budget, config.seats)
        beside = slots_beside(max(geometry.windows), block_size, config.seats, budget)
        plan = replace(plan, bytes_per_slot=geometry.windowed_bytes() * block_size, beside=beside)
    free, reserve, bytes_per_block = plan.free, plan.reserve, plan.bytes_per_block
    least = -(-min(64, context) // block_size)
    if plan.most_blocks < least:
        raise ModelError(
            "not_enough_memory",
            Sentence(
                "{0} MiB are free beside the weights; a step needs {1} MiB and the smallest cache {2} MiB.",
                _mib(free),
                _mib(workspace + reserve),
                _mib((least + 1) * bytes_per_block),
            ),
            "Close other programs, or choose a smaller model, token budget or context.",
        )
    if config.kv_tokens is not None:
        wanted = -(-config.kv_tokens // block_size)
        if wanted > plan.most_blocks:
            raise ModelError(
                "not_enough_memory",
                Sentence(
                    "A cache of {0} positions needs {1} MiB, but only {2} MiB ({3} positions) fit.",
                    config.kv_tokens,
                    _mib(plan.bytes_of(wanted)),
                    _mib(plan.bytes_of(plan.most_blocks)),
                    plan.most_blocks * block_size,
                ),
                Sentence("Set kv_tokens to at most {0}, or leave it out.", plan.most_blocks * block_size),
            )
        return plan.with_blocks(wanted)
    useful = config.seats * -(-min(context, CONTEXT_SHARE if on_cpu else context) // block_size)
    most = plan.most_blocks
    if on_cpu:
        most = min(most, plan.blocks_in(int(free * RAM_SHARE) + bytes_per_block))
    return plan.with_blocks(max(least, min(useful, most)))


def _plan_of(device: torch.device, free: int, workspace: int, bytes_per_position: int, block_size: int) -> MemoryPlan:
    """Without a number of blocks yet. The whole workspace is counted on each device: the widest layer may lie on any."""
    reserve = RESERVE_RAM if device.type == "cpu" else RESERVE_DEVICE + free // 20
    return MemoryPlan(free, workspace, reserve, bytes_per_position * block_size, block_size, 0)


def workspace_bytes(model: Any, geometry: Geometry, config: EngineConfig, context: int) -> int:
    """An upper estimate of what the largest step of a loaded model allocates besides weights and cache (see `demand.step_bytes`), one that
    scores a prompt."""
    text = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    hidden = int(text.hidden_size)
    wide = int(getattr(text, "intermediate_size", None) or 4 * hidden)
    dtype = next(model.parameters()).dtype
    tiles = geometry.in_place
    vocabulary, experts = int(text.vocab_size), int(getattr(text, "num_experts_per_tok", None) or 1)
    return scoring_bytes(vocabulary) + step_bytes(
        hidden=hidden,
        wide=wide * experts,
        vocabulary=vocabulary,
        scored=0 if tiles else geometry.heads if _unfused(text) else min(geometry.group, 4) + 1,
        layer_bytes=0 if tiles else max((layer.plain_bytes() for layer in geometry.layers.values()), default=0),
        kernels=tiles and experts == 1,
        width=dtype.itemsize,
        seats=config.seats,
        context=context,
        token_budget=config.token_budget,
    )


def _unfused(text_config: Any) -> bool:
    return bool(getattr(text_config, "attn_logit_softcapping", None))


def check_tier(tokens: int, bytes_per_position: int, untouched: int) -> None:
    """Raise ModelError when so many positions of idle chats cannot be set aside in main memory; `untouched` bytes of it are promised
    already, but not in use yet."""
    need, room = tokens * bytes_per_position, free_ram() - RESERVE_RAM - untouched
    if need > room:
        most = max(0, room) // max(1, bytes_per_position)
        raise ModelError(
            "not_enough_memory",
            Sentence(
                "To set {0:,} positions of idle chats aside takes {1} MiB, but only {2} MiB are free.",
                tokens,
                _mib(need),
                _mib(max(0, room)),
            ),
            Sentence("Set tier_tokens to at most {0}, or set them aside in a file, with tier_folder.", most),
        )


# --------------------------------------------------------------------------------------------------------- free memory


def free_bytes(device: torch.device) -> int:
    """What may still be allocated on a device, as far as the system tells."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free) + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory()) - int(torch.mps.driver_allocated_memory())
    return free_ram()


def free_ram() -> int:
    """Bytes of main memory that can be used without swapping, within this process's control group."""
    if sys.platform == "win32":
        return _free_ram_windows()
    if sys.platform == "darwin":
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2  # the kernel gives no honest figure; half is safe
    return _free_ram_linux(Path("/proc/meminfo"), Path("/sys/fs/cgroup"))


def _free_ram_linux(meminfo: Path, cgroup: Path) -> int:
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
    free = int(fields["MemAvailable"].split()[0]) * 1024
    for limit, used in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        try:
            most, now = (cgroup / limit).read_text().strip(), (cgroup / used).read_text().strip()
        except OSError:
            continue
        if most.isdigit():
            free = min(free, max(0, int(most) - int(now)))
    return free


def _free_ram_windows() -> int:
    class Status(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ulong), ("load", ctypes.c_ulong)] + [
            (name, ctypes.c_ulonglong) for name in ("total", "free", "page_total", "page_free", "virtual_total", "virtual_free", "extended")
        ]

    status = Status()
    status.length = ctypes.sizeof(Status)
    ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))  # type: ignore[attr-defined]
    return int(status.free)


def _mib(size: int) -> int:
    return -(-size // (1 << 20))
