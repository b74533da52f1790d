"""A cache for `generate()` that decodes in near-linear time, where the stock ones read all of the past.

    NearLinearCache   a transformers cache; each mixer's share of it is a layer
    prepare_cache     which cache `generate()` gets

Filters keep a decoder (`toeplix.decoder`), linear attention its sums, the Masked Mixer its past, since
nothing less will do. All in slots: rows that are padded on the left have zeros there. Decoders forget
what they no longer need, so tokens cannot be taken back; where that is needed, stock caches serve.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import Cache, GenerationMixin
from transformers.cache_utils import DynamicLayer

from toeplix.mixers.filter import FilterBank
from toeplix.mixers.linear import CHUNK, LinearState
from toeplix.ops.checks import check_rows

FORWARD_ONLY = ("greedy_search", "sample", "beam_search", "beam_sample")  # no token is taken back


class NearLinearLayer(DynamicLayer):
    """What is remembered in one slot: a filter's state, sums, or, by `update`, everything."""

    is_croppable = False

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        """As new."""
        super().reset()
        self.position, self.batch = 0, 0
        self.bank = FilterBank()
        self.filter = self.bank.join()
        self.attention = LinearState()

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        self.count(key_states.shape[0], key_states.shape[2])
        return super().update(key_states, value_states, *args, **kwargs)

    def count(self, batch: int, time: int) -> None:
        """Note that so many positions of so many rows have come."""
        self.batch, self.position = batch, self.position + time

    def get_seq_length(self) -> int:
        return self.position

    def reorder_cache(self, beam_idx: Any) -> None:
        """Go on with these rows, in this order."""
        if self.position:
            beam_idx = check_rows(beam_idx, self.batch)
        self.bank.select(beam_idx)
        if (sums := self.attention.sums) is not None:
            self.attention.sums = sums.index_select(0, beam_idx.to(sums.device))
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


class NearLinearCache(Cache):
    """For inference with `toeplix.hub` models, `generate()`'s own choice unless tokens are taken back."""

    def __init__(self) -> None:
        super().__init__(layer_class_to_replicate=NearLinearLayer)

    def _layer(self, slot: int, batch: int, time: int) -> NearLinearLayer:
        while len(self.layers) <= slot:
            self.layers.append(NearLinearLayer())
        layer: Any = self.layers[slot]
        layer.count(batch, time)
        return layer

    def filtered(
        self, x: Float[Tensor, "b t h c"], kernel: Float[Tensor, "h n"], slot: int
    ) -> Float[Tensor, "b t h c"]:
        """Outputs of a filter at the positions after those it has seen."""
        layer = self._layer(slot, *x.shape[:2])
        return layer.bank.extend(layer.filter, x, kernel)

    def attended(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b h t e"],
        v: Float[Tensor, "b h t f"],
        slot: int,
    ) -> Float[Tensor, "b h t f"]:
        """Linear attention, not yet normalised, at the positions after those it has seen."""
        state = self._layer(slot, q.shape[0], q.shape[2]).attention
        chunks = zip(q.split(CHUNK, 2), k.split(CHUNK, 2), v.split(CHUNK, 2), strict=True)
        return torch.cat([state.advance(*chunk) for chunk in chunks], 2)

    def reset(self) -> None:
        super().reset()
        vars(self).pop("kernels", None)  # Hyena's filters, made from weights that may change


def prepare_cache(model: Any, how: Any, inputs: dict[str, Any], mode: Any, *sizes: int) -> None:
    """Ours for whoever names no other; a stock one where a method takes tokens back, or on request."""
    given = inputs.get("past_key_values") is not None or how.cache_implementation is not None
    unused = how.use_cache is False or how.is_assistant or mode not in FORWARD_ONLY
    if given or unused:
        GenerationMixin._prepare_cache_for_generation(model, how, inputs, mode, *sizes)
    else:
        inputs["past_key_values"] = NearLinearCache()
