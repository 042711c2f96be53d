"""Attention over the block pool, in torch operations alone: in place for decode rows, gathered for prefill chunks.

Owns the arithmetic and the one function registered with transformers. Works on any device torch has; exact (no dropped keys, no
approximations) with grouped heads, sliding windows, soft capping and attention sinks; softmax sums are float32. Holds no state: the
index tensors are described in `inputs.py`, the pool from `cache.py`. No mask function is registered, so transformers builds no mask.

Decode is split-key attention (Flash-Decoding, Dao et al., 2023): each (block, row) pair gives a partial maximum, sum and output,
and a row's partials are merged through a padded table. A pair touches its own block only, so one row's keys never meet another's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.model import eight
from engine.model.inputs import DecodeIndex

NAME = "omnibus"
PACK_GROUPS = 4  # up to this many query heads a key head, a chunk's heads are stacked as rows of one product (measured: 0-20 % faster)


def attend(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any, **kwargs: Any) -> Any:
    """The function transformers calls in every attention module; the step object passed to the model does the work.

    Shapes: query [1, heads, T, dim]; key and value as the step's `update` returned them. Returns ([1, T, heads, value dim], None).
    """
    step = kwargs.pop("step", None)
    if step is None:
        raise TypeError("the model does not pass its keyword arguments to its attention")
    return step.attend(module, query, key, value, attention_mask, **kwargs), None


def register() -> None:
    """Make the function known to transformers; safe to call again."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attend)


def window_of(module: torch.nn.Module, kwargs: dict[str, Any]) -> int:
    """How many positions back this layer sees, itself included; 0 is all. From the call, else from the model's layer types."""
    if "sliding_window" in kwargs:
        return int(kwargs["sliding_window"] or 0)
    config = getattr(module, "config", None)
    types = getattr(config, "layer_types", None)
    index = getattr(module, "layer_idx", None)
    if types and index is not None and index < len(types):
        return int(getattr(config, "sliding_window", 0) or 0) if types[index] == "sliding_attention" else 0
    return int(getattr(module, "sliding_window", 0) or 0)


# -------------------------------------------------------------------------------------------------------------- decode


def decode(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    index: DecodeIndex,
    scale: float,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of B single queries over their blocks.

    Shapes: query [B, heads, dim]; keys [blocks, key heads, bs, dim]; values [blocks, key heads, bs, value dim], both also as `eight.py`
    keeps them; sinks [heads]. Returns [B, heads, value dim] in the cache's dtype, or the query's.
    """
    rows, heads, dim = query.shape
    key_heads = keys.shape[1]
    fused = _fused(query, keys, values, softcap)
    asked = query.dtype if keys.dtype == torch.int8 else keys.dtype
    if query.device.type == "cpu" and not fused:
        query = query.float()
    if query.dtype == torch.float32:  # once a row, not once a pair; in 16 bits it would round
        query, scale = query * scale, 1.0
    grouped = query.reshape(rows, key_heads, heads // key_heads, dim)
    extent = index.owner.shape[0] - index.gathered.shape[0]
    parts = []
    if index.in_place:
        low = index.skip.shape[0]
        parts.append(
            _partials(
                grouped.index_select(0, index.owner[:extent]),
                eight.plain(keys[low : low + extent], query.dtype),
                eight.plain(values[low : low + extent], query.dtype),
                index.bias[:extent],
                scale,
                softcap,
                fused,
            )
        )
    if index.copies:
        parts.append(
            _partials(
                grouped.index_select(0, index.owner[extent:]),
                eight.plain(keys.index_select(0, index.gathered), query.dtype),
                eight.plain(values.index_select(0, index.gathered), query.dtype),
                index.bias[extent:],
                scale,
                softcap,
                fused,
            )
        )
    top, total, out = parts[0] if len(parts) == 1 else (torch.cat(both) for both in zip(*parts, strict=True))
    merged = _merge(top, total, out, index.table, index.table_bias, sinks)
    return merged.reshape(rows, heads, -1).to(asked)


def _partials(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    bias: torch.Tensor,
    scale: float,
    softcap: float | None,
    fused: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Softmax parts of n pairs, float32: maximum and sum of exponentials [n, key heads, group], output [n, key heads, group, value dim].

    The output is yet to be divided by the sum.
    """
    if fused:
        # 16-bit products of this size fall to a slow path of the CPU's BLAS; the flash kernel is 3 times faster and adds in float32.
        out, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, keys, values, 0.0, False, attn_mask=bias[:, None, None].to(query.dtype), scale=scale
        )
        return log_sum, torch.ones_like(log_sum), out.float()
    scores = torch.matmul(query, keys.to(query.dtype).transpose(-1, -2)).float()
    if scale != 1.0:
        scores = scores * scale
    scores = _cap(scores, softcap).add_(bias[:, None, None])
    top = scores.amax(-1, keepdim=True)
    weights = scores.sub_(top).exp_()
    values = values.to(query.dtype)
    return top.squeeze(-1), weights.sum(-1), torch.matmul(weights.to(values.dtype), values).float()


def _merge(
    top: torch.Tensor,
    total: torch.Tensor,
    out: torch.Tensor,
    table: torch.Tensor,
    table_bias: torch.Tensor,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Rows from their pairs: [B, key heads, group, value dim]. A sink is one more key of logit s and no value."""
    rows, width = table.shape
    flat = table.reshape(-1)
    tops = top.index_select(0, flat).view(rows, width, *top.shape[1:]) + table_bias[:, :, None, None]
    best = tops.amax(1, keepdim=True)
    if sinks is not None:
        sink = sinks.float().view(top.shape[1:])
        best = torch.maximum(best, sink)
    weights = (tops - best).exp_()
    sums = (total.index_select(0, flat).view_as(weights) * weights).sum(1)
    if sinks is not None:
        sums = sums + (sink - best.squeeze(1)).exp_()
    outs = out.index_select(0, flat).view(rows, width, *out.shape[1:])
    return outs.mul_(weights.unsqueeze(-1)).sum(1).div_(sums.unsqueeze(-1))


# -------------------------------------------------------------------------------------------------------------- chunks


def chunk_mask(positions: torch.Tensor, first: torch.Tensor, keys: int | torch.Tensor, window: int, dtype: torch.dtype) -> torch.Tensor:
    """[P, 1, Tc, keys] additive mask, 0 or -inf: a query sees positions up to its own, `window` of them at most (0: all).

    Shapes: positions [P, Tc], of the queries; first [P], the position of the first key.
    """
    key_positions = first[:, None, None] + torch.arange(keys, device=first.device)
    queries = positions.unsqueeze(-1)
    hidden = key_positions > queries
    if window:
        hidden = hidden | (key_positions <= queries - window)
    return torch.zeros(hidden.shape, dtype=dtype, device=first.device).masked_fill_(hidden, float("-inf")).unsqueeze(1)


def spread_mask(mask: torch.Tensor, key_heads: int, group: int) -> torch.Tensor:
    """The mask in the shape `chunks` wants: its heads stacked as rows, or (many heads a key head) broadcast over them."""
    chunks_, _, length, keys = mask.shape
    if group <= PACK_GROUPS:
        return mask.expand(-1, group, -1, -1).reshape(chunks_, 1, group * length, keys)
    return mask.expand(-1, key_heads, -1, -1).reshape(chunks_ * key_heads, 1, length, keys)  # no copy for a single chunk


def chunks(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    block_rows: torch.Tensor,
    mask: torch.Tensor,
    scale: float,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of P padded chunks of Tc queries over their gathered blocks.

    Shapes: query [P, Tc, heads, dim]; keys [blocks, key heads, bs, dim], values likewise, both also as `eight.py` keeps them; block_rows
    [P, key heads, W] int64, rows block * key heads + head of the pool seen as [blocks * key heads, bs * dim], so that one copy brings a
    head's keys together; mask from `spread_mask`; sinks [heads]. Returns [P * Tc, heads, value dim].
    """
    count, length, heads, dim = query.shape
    key_heads = keys.shape[1]
    group = heads // key_heads
    flat = block_rows.reshape(-1)
    gathered_keys = _gathered(keys, flat, query.dtype).view(count * key_heads, 1, -1, dim)
    gathered_values = _gathered(values, flat, query.dtype)
    value_dim = gathered_values.shape[1]
    gathered_values = gathered_values.view(count * key_heads, 1, -1, value_dim)
    grouped = query.view(count, length, key_heads, group, dim).permute(0, 2, 3, 1, 4)
    if group <= PACK_GROUPS:
        grouped = grouped.reshape(count, key_heads, group * length, dim)
        gathered_keys = gathered_keys.view(count, key_heads, -1, dim)
        gathered_values = gathered_values.view(count, key_heads, -1, value_dim)
    else:
        grouped = grouped.reshape(count * key_heads, group, length, dim)
        gathered_keys = gathered_keys.expand(-1, group, -1, -1)
        gathered_values = gathered_values.expand(-1, group, -1, -1)
    out, log_sum = _softmax_attention(grouped, gathered_keys, gathered_values, mask, scale, softcap, sinks is not None)
    out = out.view(count, key_heads, group, length, value_dim)
    if sinks is not None:
        # One more key of logit s and no value scales the output by exp(lse) / (exp(lse) + exp(s)).
        sink = sinks.float().view(key_heads, group, 1)
        out = out * torch.sigmoid(log_sum.view(count, key_heads, group, length) - sink).unsqueeze(-1)
    return out.permute(0, 3, 1, 2, 4).reshape(count * length, heads, value_dim).to(query.dtype)


def _gathered(pool: torch.Tensor, rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """[positions, size] of the pool's rows block * key heads + head."""
    positions, kept = pool.shape[2:]
    return eight.plain(pool.view(-1, positions * kept).index_select(0, rows).view(-1, kept), dtype)


def one_row(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    scale: float,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of one row over its own history: query [1, heads, count, dim], keys and values [1, key heads, length, size], mask
    [1, 1, count, length]. Returns [count, heads, value dim]."""
    group = query.shape[1] // keys.shape[1]
    if group > 1:
        keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
    out, log_sum = _softmax_attention(query, keys, values, mask, scale, softcap, sinks is not None)
    if sinks is not None:
        out = out * torch.sigmoid(log_sum - sinks.float().view(1, -1, 1)).unsqueeze(-1)
    return out[0].transpose(0, 1).to(query.dtype)


def _softmax_attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, scale: float, softcap: float | None, wants_sum: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """(output, log of the sum of exponentials); the second is only right where `wants_sum`."""
    if softcap is None and query.device.type == "cpu" and keys.shape[-1] == values.shape[-1]:
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, keys, values, 0.0, False, attn_mask=mask, scale=scale)
    if softcap is None and not wants_sum:
        return scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale), mask
    if query.device.type == "cpu":
        query, keys, values = query.float(), keys.float(), values.float()
    scores = torch.matmul(query, keys.transpose(-1, -2)).float()
    scores = _cap(scores * scale, softcap) + mask
    weights = scores.softmax(-1)
    return torch.matmul(weights.to(values.dtype), values).float(), scores.logsumexp(-1) if wants_sum else mask


# -------------------------------------------------------------------------------------------------------------- pieces


def _cap(scores: torch.Tensor, softcap: float | None) -> torch.Tensor:
    """softcap * tanh(scores / softcap), as in Gemma 2."""
    return scores if softcap is None else torch.tanh(scores / softcap) * softcap


def _fused(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, softcap: float | None) -> bool:
    return query.device.type == "cpu" and query.dtype != torch.float32 and softcap is None and keys.shape[-1] == values.shape[-1]
