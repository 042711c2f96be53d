"""The kernels that can read the cache on a GPU, each behind the same call; which of them are right, and best, is found out in `choice.py`.

Owns one class a kernel: how its arguments are laid out, and what it says no to before it is tried. A reader is made for one `Need` and
raises `Unfit` where it cannot serve it. All but the floor, which is made of torch operations and runs everywhere, are unproven on a GPU.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, ClassVar

import torch
from torch import Tensor

from engine.model import attention
from engine.model.cuda import nvrtc
from engine.model.cuda.cache import gather_keys
from engine.model.cuda.paged import PackedChunks, PackedKeys, PagedIndex
from engine.model.cuda.reference import Need

HALF = (torch.bfloat16, torch.float16)
KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
TILE = 4  # query heads that one thread block answers: more would take more registers than leave room for company
WAVES = 4  # thread blocks a multiprocessor that the splits aim at
LEAST_SHARE = 64  # positions below which another split does not pay
MOST_SPLITS = 64


class Unfit(Exception):
    """A reader cannot serve a need; the text is the reason."""


class Reader:
    """Reads single positions.

    Attributes:
        label: its name in logs and reports.
        pages: the block sizes it takes are multiples of this.
        fixed: whether it may be captured for a table far wider than the rows are long: its work depends on their lengths alone.
    """

    label: ClassVar[str]
    pages: ClassVar[int] = 1
    fixed: ClassVar[bool] = True

    def __init__(self, need: Need, device: torch.device) -> None:
        """Raises Unfit."""
        self.need = need
        self.device = device
        if need.block_size % self.pages:
            raise Unfit(f"it takes blocks of multiples of {self.pages} positions")

    def read(self, query: Tensor, keys: Tensor, values: Tensor, index: PagedIndex, sinks: Tensor | None) -> Tensor:
        """[B, heads, value dim] in the query's dtype; see `cache.Readers` for the shapes."""
        raise NotImplementedError


class Gathered(Reader):
    """The floor: all blocks of the table are copied together and attended to with a mask, by torch's own attention."""

    label = "gather + SDPA"
    fixed = False

    def read(self, query: Tensor, keys: Tensor, values: Tensor, index: PagedIndex, sinks: Tensor | None) -> Tensor:
        need, width = self.need, index.table.shape[1]
        at = (index.lengths.long() - 1)[:, None]
        mask = attention.chunk_mask(at, torch.zeros_like(at[:, 0]), width * need.block_size, index.window, query.dtype)
        spread = attention.spread_mask(mask, need.key_heads, need.heads // need.key_heads)
        heads = torch.arange(need.key_heads, device=query.device)[:, None]
        block_rows = index.table.long()[:, None, :] * need.key_heads + heads
        return attention.chunks(query[:, None], keys, values, block_rows, spread, need.scale, need.softcap, sinks)


class Ours(Reader):
    """Our own kernel, compiled by NVRTC: any block size, grouped heads, windows, soft capping, sinks."""

    label = "omnibus paged decode"

    def __init__(self, need: Need, device: torch.device) -> None:
        super().__init__(need, device)
        if need.dtype not in KINDS or need.key_dim % 8 or need.value_dim % 8 or max(need.key_dim, need.value_dim) > 256:
            raise Unfit("it takes sizes of multiples of 8 up to 256, in float32, bfloat16 or float16")
        group = need.heads // need.key_heads
        self.tile = min(group, TILE)
        self.tiles = -(-group // self.tile)
        self.processors = torch.cuda.get_device_properties(device).multi_processor_count
        self._kernels = nvrtc.load(device.index or 0, **self.defines(need))

    @staticmethod
    def defines(need: Need) -> dict[str, int]:
        group = need.heads // need.key_heads
        sizes = {"DIM": need.key_dim, "VALUE_DIM": need.value_dim, "BLOCK": need.block_size}
        return {"KIND": KINDS[need.dtype], **sizes, "GROUP": group, "TILE": min(group, TILE)}

    def read(self, query: Tensor, keys: Tensor, values: Tensor, index: PagedIndex, sinks: Tensor | None) -> Tensor:
        need, (rows, width) = self.need, index.table.shape
        splits = splits_for(rows * need.key_heads * self.tiles, width * need.block_size, self.processors)
        tops = query.new_empty((rows, need.heads, splits), dtype=torch.float32)
        sums = torch.empty_like(tops)
        outs = query.new_empty((rows, need.heads, splits, need.value_dim), dtype=torch.float32)
        result = query.new_empty((rows, need.heads, need.value_dim))
        query = query.contiguous()
        held = tops if sinks is None else sinks.float().contiguous()  # something must be pointed to
        with torch.cuda.device(query.device):
            self._kernels["paged_partials"](
                grid=(splits, need.key_heads * self.tiles, rows),
                block=(128, 1, 1),
                args=[query, keys, values, index.table, index.lengths, tops, sums, outs]
                + [width, need.key_heads, index.window, float(need.scale), float(need.softcap or 0.0)],
            )
            self._kernels["paged_merge"](
                grid=(need.heads, rows, 1),
                block=(64 if need.value_dim <= 64 else 128, 1, 1),
                args=[tops, sums, outs, held, result, splits, int(sinks is not None)],
            )
        return result


def splits_for(blocks: int, positions: int, processors: int) -> int:
    """Into how many shares a row's positions are cut, so that `blocks` thread blocks a share fill the GPU: a power of two."""
    wanted = min(-(-WAVES * processors // blocks), -(-positions // LEAST_SHARE), MOST_SPLITS)
    return 1 << (max(1, wanted).bit_length() - 1)


class Varlen(Reader):
    """torch.nn.attention.varlen with a block table: the FlashAttention that comes with torch, in pages of 256."""

    label = "torch varlen, paged"
    pages = 256

    def __init__(self, need: Need, device: torch.device) -> None:
        super().__init__(need, device)
        _check_flash(need)
        use_flash(None)

    def read(self, query: Tensor, keys: Tensor, values: Tensor, index: PagedIndex, sinks: Tensor | None) -> Tensor:
        from torch.nn.attention.varlen import AuxRequest, varlen_attn

        rows, width = index.table.shape
        out: Any = varlen_attn(
            query,
            keys.transpose(1, 2),
            values.transpose(1, 2),
            torch.arange(rows + 1, dtype=torch.int32, device=query.device),
            None,
            1,
            width * self.need.block_size,
            scale=self.need.scale,
            window_size=_window(index.window),
            enable_gqa=True,
            seqused_k=index.lengths,
            block_table=index.table,
            return_aux=AuxRequest(lse=True),
        )
        return _with_sinks(out[0], out[1], sinks)


class FlashAttention3(Varlen):
    """The same call with FlashAttention 3 in its place, where the person has installed it: pages of any size."""

    label = "FlashAttention 3, paged"
    pages = 1

    def __init__(self, need: Need, device: torch.device) -> None:
        if importlib.util.find_spec("flash_attn_interface") is None:
            raise Unfit("the package flash_attn_interface is not installed")
        super().__init__(need, device)
        use_flash("FA3")


def use_flash(name: str | None) -> None:
    """Which FlashAttention torch calls from now on, in the whole process; None is its own."""
    from torch.nn.attention import activate_flash_attention_impl, current_flash_attention_impl, restore_flash_attention_impl

    if current_flash_attention_impl() != name:
        if name is None:
            restore_flash_attention_impl()
        else:
            activate_flash_attention_impl(name)


class FlashInfer(Reader):
    """FlashInfer's decode by block table, where the person has installed it; its other kernels want a call a step outside the graph."""

    label = "FlashInfer"
    _workspace: ClassVar[dict[torch.device, Tensor]] = {}

    def __init__(self, need: Need, device: torch.device) -> None:
        super().__init__(need, device)
        if importlib.util.find_spec("flashinfer") is None:
            raise Unfit("the package flashinfer is not installed")
        _check_flash(need)
        if device not in self._workspace:
            self._workspace[device] = torch.zeros(128 << 20, dtype=torch.uint8, device=device)

    def read(self, query: Tensor, keys: Tensor, values: Tensor, index: PagedIndex, sinks: Tensor | None) -> Tensor:
        decode = importlib.import_module("flashinfer.decode").trtllm_batch_decode_with_kv_cache
        result: Tensor = decode(
            query=query.contiguous(),
            kv_cache=(keys, values),
            workspace_buffer=self._workspace[self.device],
            block_tables=index.table,
            seq_lens=index.lengths,
            max_seq_len=index.table.shape[1] * self.need.block_size,
            bmm1_scale=self.need.scale,
            bmm2_scale=1.0,
            window_left=index.window - 1,
            sinks=None if sinks is None else sinks.float(),
            kv_layout="HND",
        )
        return result


# -------------------------------------------------------------------------------------------------------------- chunks


class PackedVarlen:
    """Chunks: their keys are copied together, without padding, and attended to by torch's own FlashAttention."""

    label = "torch varlen, packed"

    def __init__(self, need: Need, device: torch.device) -> None:
        """Raises Unfit."""
        self.need = need
        _check_flash(need)

    def read(self, query: Tensor, keys: Tensor, values: Tensor, chunks: PackedChunks, seen: PackedKeys, sinks: Tensor | None) -> Tensor:
        """[Tq, heads, value dim] for the packed queries [Tq, heads, dim]."""
        from torch.nn.attention.varlen import AuxRequest, varlen_attn

        out: Any = varlen_attn(
            query.contiguous(),
            gather_keys(keys, seen),
            gather_keys(values, seen),
            chunks.ends,
            seen.ends,
            chunks.longest,
            seen.longest,
            scale=self.need.scale,
            window_size=_window(seen.window),
            enable_gqa=True,
            return_aux=AuxRequest(lse=True),
        )
        return _with_sinks(out[0], out[1], sinks)


def _check_flash(need: Need) -> None:
    if need.dtype not in HALF or need.softcap is not None or need.key_dim != need.value_dim or need.key_dim > 256 or need.key_dim % 8:
        raise Unfit("it takes bfloat16 or float16, sizes of multiples of 8 up to 256, and no soft capping")


def _window(window: int) -> tuple[int, int]:
    """FlashAttention counts the positions before a query's own."""
    return (window - 1 if window else -1, 0)


def _with_sinks(out: Tensor, log_sum: Tensor, sinks: Tensor | None) -> Tensor:
    """`out` [T, heads, size] with one more key a head, of that logit and no value; `log_sum` is [heads, T], as torch 2.13 makes it (its
    documentation says [T, heads])."""
    if sinks is None:
        return out
    if log_sum.shape != (out.shape[1], out.shape[0]):
        log_sum = log_sum.view(out.shape[:2]).transpose(0, 1)
    share = torch.sigmoid(log_sum.transpose(0, 1) - sinks.float())
    return (out.float() * share.unsqueeze(-1)).to(out.dtype)
