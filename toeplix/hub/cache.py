"""A cache with which `generate()` decodes in near-linear time.

Free filters keep a decoder (`toeplix.decoder`). Recurrent filters, lookup with these and linear attention
keep sums. Lookup with free filters and attention keep the keys and values that they still read. The
Masked Mixer keeps all of its inputs.
With gradients filters keep their inputs instead, as no gradients pass through a decoder.
Padding counts as a position whose inputs are zero. Decoders drop what they no longer need, so tokens
cannot be taken back; methods that do so (assisted decoding) need a stock cache.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from toeplix.hub.modeling_toeplix import (
    Kernel,
    MixerCache,
    Positions,
    RecurrentKernel,
    remember,
    windowed_attention,
)
from toeplix.mixers.filter_bank import FilterBank, FilterState, RecurrentFilterState
from toeplix.mixers.linear import CHUNK, LinearState
from toeplix.ops import toeplitz_lookup, toeplitz_lookup_recurrent
from toeplix.ops.checks import check_rows


class NearLinearLayer(DynamicLayer):
    """One slot of the cache: a filter's state, the sums of linear attention, or all inputs (`update`)."""

    is_croppable = False

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.position, self.batch = 0, 0
        self.bank = FilterBank()
        self.filter: FilterState | RecurrentFilterState | None = None
        self.attention = LinearState()
        self.sums: Tensor | None = None  # of lookup with recurrent filters

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        self.count(key_states.shape[0], key_states.shape[2])
        return super().update(key_states, value_states, *args, **kwargs)

    def count(self, batch: int, time: int) -> None:
        """Count `time` new positions of `batch` rows."""
        self.batch, self.position = batch, self.position + time

    def get_seq_length(self) -> int:
        return self.position

    def reorder_cache(self, beam_idx: Any) -> None:
        """Keep these rows of the batch, in this order."""
        if self.position:
            beam_idx = check_rows(beam_idx, self.batch)
        self.bank.select(beam_idx)
        if (sums := self.attention.sums) is not None:
            self.attention.sums = sums.index_select(0, beam_idx.to(sums.device))
        if self.sums is not None:
            self.sums = self.sums.index_select(0, beam_idx.to(self.sums.device))
        if self.is_initialized:
            super().reorder_cache(beam_idx)
        self.batch = len(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        self.reorder_cache(torch.arange(self.batch, device=indices.device)[indices])

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.reorder_cache(torch.arange(self.batch).repeat_interleave(repeats))

    def crop(self, tokens_to_remove: int) -> None:
        if tokens_to_remove:
            raise ValueError(
                "a near-linear cache cannot take tokens back: pass past_key_values=DynamicCache()"
            )


class NearLinearCache(Cache, MixerCache):
    """A cache for inference with `toeplix.hub` models; the default of their `generate()`."""

    def __init__(self) -> None:
        super().__init__(layer_class_to_replicate=NearLinearLayer)
        self.kernels: dict[int, Tensor] = {}  # Hyena's filters, by slot

    def _layer(self, slot: int, batch: int, time: int) -> NearLinearLayer:
        while len(self.layers) <= slot:
            self.layers.append(NearLinearLayer())
        layer: Any = self.layers[slot]
        layer.count(batch, time)
        return layer

    def filtered(
        self, x: Float[Tensor, "b t h c"], kernel: Kernel, slot: int
    ) -> Float[Tensor, "b t h c"]:
        layer = self._layer(slot, *x.shape[:2])
        if isinstance(kernel, RecurrentKernel):
            layer.filter = layer.filter or layer.bank.join_recurrent()
            filters = (kernel.free, kernel.amplitudes, kernel.decays)
            return layer.bank.extend(layer.filter, x, filters)
        layer.filter = layer.filter or layer.bank.join()
        return layer.bank.extend(layer.filter, x, kernel)

    def looked_up(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b h t e"],
        v: Float[Tensor, "b h t c"],
        kernel: Kernel,
        slot: int,
    ) -> Float[Tensor, "b h t c"]:
        layer = self._layer(slot, q.shape[0], 0)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        if isinstance(kernel, RecurrentKernel):
            layer.count(q.shape[0], q.shape[1])
            filters = (kernel.amplitudes, kernel.decays)
            y, layer.sums = toeplitz_lookup_recurrent(q, k, v, *filters, state=layer.sums)
        else:
            keys, values = self._recent(layer, k, v, kernel.shape[1])
            y = toeplitz_lookup(q, keys.transpose(1, 2), values.transpose(1, 2), kernel)
        return y.transpose(1, 2)

    def windowed(
        self,
        q: Float[Tensor, "b h t c"],
        k: Float[Tensor, "b h t c"],
        v: Float[Tensor, "b h t c"],
        window: int,
        positions: Positions,
        slot: int,
    ) -> Float[Tensor, "b h t c"]:
        layer = self._layer(slot, q.shape[0], 0)
        keys, values = self._recent(layer, k.transpose(1, 2), v.transpose(1, 2), window)
        first = layer.position - keys.shape[2]
        return windowed_attention(q, keys, values, window, positions, first)

    def _recent(
        self,
        layer: NearLinearLayer,
        k: Float[Tensor, "b t h e"],
        v: Float[Tensor, "b t h c"],
        reach: int,
    ) -> tuple[Float[Tensor, "b h s e"], Float[Tensor, "b h s c"]]:
        """Append keys and values to a layer; return those that the new positions read.

        A position reads `reach` of them, its own included; what no later one reads is dropped.
        """
        keys, values = layer.update(k.transpose(1, 2), v.transpose(1, 2))
        kept = max(0, keys.shape[2] - reach + 1)
        layer.keys, layer.values = keys[:, :, kept:], values[:, :, kept:]
        return keys, values

    def attended(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b h t e"],
        v: Float[Tensor, "b h t f"],
        slot: int,
    ) -> Float[Tensor, "b h t f"]:
        state = self._layer(slot, q.shape[0], q.shape[2]).attention
        chunks = zip(q.split(CHUNK, 2), k.split(CHUNK, 2), v.split(CHUNK, 2), strict=True)
        return torch.cat([state.advance(*chunk) for chunk in chunks], 2)

    def remembered(self, x: Float[Tensor, "b t *rest"], slot: int) -> Float[Tensor, "b s *rest"]:
        return remember(self, x, slot)

    def implicit_kernel(
        self, network: Callable[..., Tensor], time: int, slot: int
    ) -> Float[Tensor, "d n"]:
        if torch.is_grad_enabled():  # filters may be trained between two calls
            return network()
        if slot not in self.kernels:
            self.kernels[slot] = network()
        return self.kernels[slot]

    def reset(self) -> None:
        super().reset()
        self.kernels.clear()  # weights may change before the next sequence
