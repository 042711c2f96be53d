"""The KV tensors, and the object a model takes for its cache during one step.

Owns, per layer, one tensor of keys and one of values, [blocks + 1, kv heads, block, size] (in eight bits as `eight.py` lays a row out);
block 0 takes the writes of padding. Which block belongs to whom is the pool's business, not known here. Every tensor starts as zeros and
only ever holds finite numbers between steps (see `clean`), because a masked key still meets its value as 0 * v.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.kv.copies import Fork
from engine.model import attention, eight
from engine.model.alone import gather
from engine.model.geometry import Geometry, LayerShape, hand_down
from engine.model.graph import places_of
from engine.model.inputs import RowSpan, StepInputs
from engine.model.states import GroupCache, Key, Mixing
from engine.model.untouched import untouched_zeros


class KVStore:
    """Keys and values of all layers.

    Attributes:
        geometry: what the model needs.
        block_size: positions a block.
        keys, values: by layer number, tensors [num_blocks + 1, kv heads, block_size, size].
        bytes_per_block: of all layers together.
        slots: places for blocks in the layers that keep them in slots: [slots + 1, …]; 0 where none does.
    """

    def __init__(self, geometry: Geometry, num_blocks: int, block_size: int, slots: int = 0) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"a store needs at least one block of one position, not {num_blocks} of {block_size}")
        if geometry.slotted != (slots > 0):
            raise ValueError(f"{slots} slots for layers {'in slots' if geometry.slotted else 'by block'}")
        self.geometry = geometry
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.slots = slots
        self.bytes_per_block = geometry.bytes_per_position() * block_size
        places = {layer: slots if geometry.in_slots(layer) else num_blocks for layer in geometry.layers}
        self.keys = {layer: self._zeros(shape, shape.key_dim, places[layer]) for layer, shape in geometry.layers.items()}
        self.values = {layer: self._zeros(shape, shape.value_dim, places[layer]) for layer, shape in geometry.layers.items()}
        self._places: torch.Tensor | None = None

    @property
    def kv_bytes(self) -> int:
        """Of all layers, without the places that are no one's."""
        return sum(tensor[1:].nbytes for tensor in self.tensors())

    def _zeros(self, shape: LayerShape, size: int, num_blocks: int) -> torch.Tensor:
        sizes = (num_blocks + 1, shape.kv_heads, self.block_size, shape.kept(size))
        if shape.device.type == "cpu":
            return untouched_zeros(sizes, shape.kept_as)
        return torch.zeros(sizes, dtype=shape.kept_as, device=shape.device)

    def resize(self, num_blocks: int) -> None:
        """Room for blocks 0..num_blocks; blocks that remain keep their content. A layer at a time, so that the peak stays low.

        Slots stay as many as they are.
        """
        kept = min(num_blocks, self.num_blocks) + 1
        for tensors, size in ((self.keys, "key_dim"), (self.values, "value_dim")):
            for layer, old in tensors.items():
                if self.geometry.in_slots(layer):
                    continue
                shape = self.geometry.layers[layer]
                new = self._zeros(shape, getattr(shape, size), num_blocks)
                new[:kept].copy_(old[:kept])
                tensors[layer] = new
                del old
        self._places = None
        self.num_blocks = num_blocks

    def clean(self, blocks: Iterable[int], slots: Iterable[int] = ()) -> None:
        """Replace what is not a finite number in these blocks and slots by 0, so that their next owner never meets it."""
        wanted = {False: sorted(set(blocks)), True: sorted(set(slots))}
        for tensors in (self.keys, self.values):
            for layer, tensor in tensors.items():
                at = torch.tensor(wanted[self.geometry.in_slots(layer)], dtype=torch.int64, device=tensor.device)
                tensor.index_copy_(0, at, tensor.index_select(0, at).nan_to_num_(0.0, 0.0, 0.0))  # of whole numbers, these are all

    def fork(self, forks: Sequence[Fork]) -> None:
        """Copy whole blocks within the store: all sources are read before a target is written."""
        by_block = [(fork.source, fork.target) for fork in forks]
        by_slot = [fork.slots for fork in forks if fork.slots is not None]
        for tensors in (self.keys, self.values):
            for layer, tensor in tensors.items():
                pairs = by_slot if self.geometry.in_slots(layer) else by_block
                sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
                if tensor.device.type == "cpu":
                    _copy(tensor, sources, targets)
                elif len(pairs) == 1:  # no numbers to bring to the device
                    tensor[targets[0]].copy_(tensor[sources[0]])
                else:
                    places = torch.tensor([targets, sources], device=tensor.device)
                    tensor.index_copy_(0, places[0], tensor.index_select(0, places[1]))

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Keys and values of all layers in a fixed order: arguments of a traced or captured step."""
        return (*self.keys.values(), *self.values.values())

    def places(self) -> torch.Tensor:
        """Where these lie: `places_of` them."""
        if self._places is None:
            self._places = places_of(self.tensors())
        return self._places


def _copy(tensor: torch.Tensor, sources: Sequence[int], targets: Sequence[int]) -> None:
    """Copy blocks in main memory. ctypes' copies keep Python's lock; torch's and numpy's let go of it and may each wait for it again, which
    for a block of sixty tensors took 10 to 24 ms while other chats were prepared."""
    start, size = tensor.data_ptr(), tensor.stride(0) * tensor.element_size()
    found = [ctypes.string_at(start + source * size, size) for source in sources]
    for target, block in zip(targets, found, strict=True):
        ctypes.memmove(start + target * size, block, size)


class StepCache:
    """Cache and step in one, for one forward pass: `update` writes to the blocks, `attend` reads them (5.24's protocol).

    Made anew each step from tensors alone, so that a trace or a graph sees every tensor as an input.

    Attributes:
        finite: [T] bool once the last layer has stored its keys: false where a token's keys or values are not finite. Whatever is not
            finite in an earlier layer reaches the last one at the same token, since every token attends to itself. What the last
            recurrent layer gives must be finite too.
    """

    is_sliding: tuple[bool, ...] = ()  # read by transformers' mask functions, which then build none for our attention

    def __init__(
        self,
        geometry: Geometry,
        keys: dict[int, torch.Tensor],
        values: dict[int, torch.Tensor],
        inputs: StepInputs,
        states: dict[Key, torch.Tensor] | None = None,
    ) -> None:
        self.geometry = geometry
        self.keys = keys
        self.values = values
        self.inputs = inputs
        self.states = states or {}
        self.finite: torch.Tensor | None = None
        self._last = max(geometry.layers, default=-1)
        self._last_mixer = max((shape.layer for shape in geometry.states), default=-1)
        self._memo: dict[tuple[Any, ...], Any] = {}

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions are always passed explicitly; a model that asks nevertheless is caught by the check at load."""
        return 0

    def get_query_offset(self, layer_idx: int = 0) -> int:
        return 0

    def __len__(self) -> int:
        return len(self.geometry.layers)

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values [1, kv heads, T, size] of one layer to their blocks. Of latents, returns the histories of all rows, one
        after another [1, 1, sum of lengths, size], since the layer is about to make keys and values of them."""
        hand_down(self, kwargs)
        keys, values = self.keys[layer_idx], self.values[layer_idx]
        rows = self._write_rows(keys.shape[1], keys.shape[2], keys.device, self.geometry.in_slots(layer_idx))
        for kept, new in ((keys, key), (values, value)):
            kept.view(-1, kept.shape[3]).index_copy_(0, rows, eight.packed(new.transpose(1, 2).reshape(-1, new.shape[3]), kept))
        if layer_idx == self._last:
            self._note((key.sum((0, 1, 3), dtype=torch.float32) + value.sum((0, 1, 3), dtype=torch.float32)).isfinite())
        if layer_idx in self.geometry.latent:
            return self._histories(keys, key.dtype), self._histories(values, value.dtype)
        return key, value

    def _note(self, finite: torch.Tensor) -> None:
        self.finite = finite if self.finite is None else self.finite & finite.to(self.finite.device)

    def _histories(self, pool: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        rows = self._inputs(pool.device).rows
        return torch.cat([gather(pool, row.blocks, row.start + row.count, dtype) for row in rows], 1).unsqueeze(0)

    def attend(self, module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **kwargs: Any) -> torch.Tensor:
        """Attention of query [1, heads, T, dim] over the blocks: [1, T, heads, value dim]."""
        layer = self.geometry.readers[module.layer_idx]
        if layer in self.geometry.latent:
            return self._attend_by_row(module, query, key, value, kwargs)
        keys, values = self.keys[layer], self.values[layer]
        group = self.geometry.windows.index(attention.window_of(module, kwargs))
        scale = kwargs.get("scaling")
        scale = float(query.shape[3] ** -0.5 if scale is None else scale)
        softcap, sinks = kwargs.get("softcap"), kwargs.get("s_aux")
        inputs = self._inputs(query.device)
        tokens = query[0].transpose(0, 1)  # [T, heads, dim]
        parts = []
        if inputs.decode:
            singles = tokens[: inputs.decode[group].table.shape[0]]
            parts.append(self._read_singles(singles, keys, values, group, scale, softcap, sinks))
        if inputs.buckets:
            parts.append(self._read_chunks(tokens, keys, values, group, scale, softcap, sinks))
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).unsqueeze(0)

    def _attend_by_row(
        self, module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kwargs: dict[str, Any]
    ) -> torch.Tensor:
        """Every row over its own part of keys and values [1, heads, sum of lengths, size]."""
        window, scale = attention.window_of(module, kwargs), kwargs.get("scaling")
        scale = float(query.shape[3] ** -0.5 if scale is None else scale)
        outs, begin = [], 0
        for row in self._inputs(query.device).rows:
            length = row.start + row.count
            mine = query[:, :, row.first : row.first + row.count]
            mask = self._row_mask(row, window, query)
            past = slice(begin, begin + length)
            softcap, sinks = kwargs.get("softcap"), kwargs.get("s_aux")
            outs.append(attention.one_row(mine, key[:, :, past], value[:, :, past], mask, scale, softcap, sinks))
            begin += length
        return torch.cat(outs).unsqueeze(0)

    def mix(self, mixing: Mixing, *, hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """A recurrent layer over the packed row [1, T, size], a group at a time, each from and to its own states."""
        del kwargs["cache"]
        ours = [shape.key for shape in self.geometry.states if shape.layer == mixing.layer]
        result: torch.Tensor | None = None
        for group in self._inputs(hidden_states.device).states:
            chosen = hidden_states[0].index_select(0, group.tokens).view(-1, group.count, hidden_states.shape[2])
            before = {} if group.fresh else {key: self.states[key].index_select(0, group.source) for key in ours}
            cache = GroupCache(before, group.fresh)
            out = mixing.through(cache, chosen, self.geometry.one_by_one and not group.fresh, kwargs)
            for key, state in cache.states.items():
                self.states[key].index_copy_(0, group.target, state.to(self.states[key].dtype))
            flat = out.reshape(-1, out.shape[2])
            if result is None:
                result = flat.new_empty(hidden_states.shape[1], flat.shape[1])
            result.index_copy_(0, group.tokens, flat)
        assert result is not None, "a step has rows"
        if mixing.layer == self._last_mixer:
            self._note(result.sum(1, dtype=torch.float32).isfinite())
        return result.unsqueeze(0)

    # --------------------------------------------------------------------------------- the two ways to read; see `cuda/cache.py`

    def _read_singles(
        self, tokens: Tensor, keys: Tensor, values: Tensor, group: int, scale: float, softcap: float | None, sinks: Tensor | None
    ) -> Tensor:
        """Attention of the single positions, [B, heads, dim]: the first in the packed row."""
        return attention.decode(tokens, keys, values, self._inputs(tokens.device).decode[group], scale, softcap, sinks)

    def _read_chunks(
        self, tokens: Tensor, keys: Tensor, values: Tensor, group: int, scale: float, softcap: float | None, sinks: Tensor | None
    ) -> Tensor:
        """Attention of the chunks' positions, in packed order, out of all tokens [T, heads, dim]."""
        inputs = self._inputs(tokens.device)
        outs = []
        for place, bucket in enumerate(inputs.buckets):
            chunk = tokens.index_select(0, bucket.tokens).view(*bucket.positions.shape, *tokens.shape[1:])
            rows = self._block_rows(place, group, keys.shape[1], tokens.device)
            spread = self._mask(place, group, keys.shape, tokens.shape[1] // keys.shape[1], tokens)
            outs.append(attention.chunks(chunk, keys, values, rows, spread, scale, softcap, sinks))
        padded = outs[0] if len(outs) == 1 else torch.cat(outs)
        return padded.index_select(0, inputs.unpad)

    # ------------------------------------------------------------------------------- made once a step, shared by the layers

    def _row_mask(self, row: RowSpan, window: int, query: torch.Tensor) -> torch.Tensor:
        name = ("row", row.first, window, query.dtype, query.device)
        if name not in self._memo:
            positions = torch.arange(row.start, row.start + row.count, device=query.device)[None]
            self._memo[name] = attention.chunk_mask(positions, positions.new_zeros(1), row.start + row.count, window, query.dtype)
        return self._memo[name]

    def _inputs(self, device: torch.device) -> StepInputs:
        """The inputs on a layer's device: a model split over several devices needs a copy on each."""
        if device == self.inputs.ids.device:
            return self.inputs
        if ("inputs", device) not in self._memo:
            self._memo["inputs", device] = self.inputs.to(device)
        return self._memo["inputs", device]

    def _write_rows(self, heads: int, block_size: int, device: torch.device, in_slots: bool) -> torch.Tensor:
        """[T * heads] rows of the pool seen as [blocks * heads * block, size]."""
        name = ("write", heads, device, in_slots)
        if name not in self._memo:
            inputs = self._inputs(device)
            head = torch.arange(heads, device=device)
            rows = (self._places(inputs, in_slots)[:, None] * heads + head) * block_size + inputs.write_offset[:, None]
            self._memo[name] = rows.reshape(-1)
        return self._memo[name]

    @staticmethod
    def _places(inputs: StepInputs, in_slots: bool) -> torch.Tensor:
        """[T] int64, where each token's key and value go in a layer."""
        if not in_slots:
            return inputs.write_block
        assert inputs.write_slot is not None, "steps of such a model are built with slots"
        return inputs.write_slot

    def _block_rows(self, place: int, group: int, heads: int, device: torch.device) -> torch.Tensor:
        """[P, heads, W] rows of the pool seen as [blocks * heads, block * size], for one bucket and window group."""
        if ("blocks", place, group, heads, device) not in self._memo:
            blocks = self._inputs(device).buckets[place].keys[group].blocks
            rows = blocks[:, None, :] * heads + torch.arange(heads, device=device)[:, None]
            self._memo["blocks", place, group, heads, device] = rows
        return self._memo["blocks", place, group, heads, device]

    def _mask(self, place: int, group: int, pool_shape: torch.Size, heads_per_key: int, query: torch.Tensor) -> torch.Tensor:
        name = ("mask", place, group, pool_shape[1], heads_per_key, query.dtype, query.device)
        if name not in self._memo:
            bucket = self._inputs(query.device).buckets[place]
            chunk_keys = bucket.keys[group]
            length = chunk_keys.blocks.shape[1] * pool_shape[2]
            mask = attention.chunk_mask(bucket.positions, chunk_keys.first, length, self.geometry.windows[group], query.dtype)
            self._memo[name] = attention.spread_mask(mask, pool_shape[1], heads_per_key)
        return self._memo[name]
