"""Toeplix language models for transformers: causal mixers along time instead of attention.

This file needs only torch and transformers. It lies beside the weights of every checkpoint, and
`from_pretrained(..., trust_remote_code=True)` runs it where toeplix is not installed. Where toeplix is
installed, `import toeplix.hub` registers subclasses with a faster Toeplitz product and a faster cache.

A model is a stack of blocks. A block has two residual sublayers, a token mixer and an MLP. The setting
`arch` selects the token mixer of all blocks, or `blocks` names several, which are repeated:

    toeplitz   y = W_out concat_h filter_h(W_in,h x),  filter(x)[t] = sum_l kernel[l] x[t-l] + bias[t]
    lookup     y[t] = W_out norm(sum over s <= t of kernel[t-s] (q[t] . k[s]) v[s])
    attention  y[t] = W_out sum over the last w positions s of softmax(q[t] . k[s] / sqrt(c)) v[s]
    masked     y[t] = sum over s <= t of weight[t,s] x[s] + bias[t]
    hyena      y = W_out (x0 * (filter(x1 v) + skip x1 v)),  (x0, x1, v) = short_convolution(W_in x)
    linear     y[t] = q[t] S[t] / (q[t] z[t]),  S[t] = sum over s <= t of k[s]^T v[s],  z[t] of k[s]^T

The filters of toeplitz and lookup are free, with a tap for every lag below `context`, or recurrent,
`kernel[l] = free[l] + sum_j weights[j] sqrt(1 - decays[j]^2) decays[j]^l`, at every lag l.

Rows may be padded on either side. Documents packed into one row are kept apart if `position_ids` say
where they begin, as those of `DataCollatorWithFlattening` do. Beyond `context` positions, free filters
are sliding windows and biases keep their last value.

Axes: b batch, t new positions, s slots of the cache, h heads, c channels of one head, d all channels,
n taps of a filter, e key channels, f value channels, v vocabulary.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Cache, DynamicCache, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    CausalLMOutputWithPast,
    SequenceClassifierOutputWithPast,
)
from transformers.utils import logging
from transformers.utils.generic import can_return_tuple

logger = logging.get_logger(__name__)

HYBRID, LOOKUP_BLOCKS = "hybrid", ("toeplitz", "lookup", "toeplitz", "toeplitz")
DEFAULTS: dict[str, Any] = {
    "arch": "hybrid",  # or the token mixer of all blocks
    "blocks": LOOKUP_BLOCKS,  # the token mixers of a hybrid, repeated over the depth
    "vocab": 8000,
    "context": 512,  # taps of a free filter; half the slowest time constant of a recurrent one
    "dim": 512,
    "depth": 16,  # blocks
    "heads": 0,  # 0: toeplitz and masked have no projections, the others have 4 heads
    "mlp_ratio": 4,  # hidden width of the MLP, in multiples of dim
    "block_order": "mixer_first",  # or mlp_first: which sublayer comes first in a block
    "norm": "layer",  # or rms
    "final_norm": True,
    "activation": "silu",  # or gelu
    "tie_embeddings": False,  # one matrix for embedding and output
    "dropout": 0.0,
    "init": "scaled",  # or paper: how weights are initialised, see `_init_weights`
    # toeplitz and lookup
    "embedding_norm": 10.0,  # initial weight of a norm after the embedding; 0 or tie_embeddings: none
    "filter": "recurrent",  # or free
    "decays": 8,  # of a recurrent filter
    # toeplitz
    "free_taps": 16,  # first taps of a recurrent filter, independent of its decays
    "groups": 1,  # filters of a mixer without heads, each for an equal share of the channels
    "kernels": 1,  # neighbouring channels that a filter reads
    "sequential": 1,  # Toeplitz layers in one mixer, with a nonlinearity between them
    "frozen": "no",  # filters that are not trained: random or ones
    "filter_init": "decay",  # or kaiming: initial filters
    "gate": True,  # multiply the mixer's output by a gate of its input
    "gate_bias": 1.0,  # initial bias of the gate
    # lookup
    "keys": 8,  # channels of queries and keys in each head
    "short_conv": 3,  # taps of the convolution before queries, keys and values
    # attention
    "window": 128,  # positions that attention sees
    # hyena
    "filter_hidden": 64,  # hidden width of the network that computes the filters
    "filter_features": 9,  # position features it reads
    "filter_frequency": 1.0,  # of its sine activations
    # linear
    "feature_map": "elu",  # or exp: of queries and keys
    # of an architecture that transformers has itself, which is not in this file
    "state_size": 256,
}
NORMED = {"toeplitz", "lookup"}  # mixers of models whose embeddings have a norm
WRITTEN = {"vocab", "context", "dim", "depth", "norm", "init", "gate", "dropout"}  # by toeplix
OLD_NAMES = {  # of settings in toeplix 0.1.0
    "expansion": "mlp_ratio",
    "first": "block_order",
    "tied": "tie_embeddings",
    "filters": "filter_init",
    "order": "filter_hidden",
    "features": "filter_features",
    "frequency": "filter_frequency",
    "feature": "feature_map",
    "state": "state_size",
}
OLD_BLOCK_ORDERS = {"mixer": "mixer_first", "channel": "mlp_first"}
AUTO_MAP = {  # what `trust_remote_code=True` finds in this file
    "AutoConfig": "modeling_toeplix.ToeplixConfig",
    "AutoModel": "modeling_toeplix.ToeplixModel",
    "AutoModelForCausalLM": "modeling_toeplix.ToeplixForCausalLM",
    "AutoModelForSequenceClassification": "modeling_toeplix.ToeplixForSequenceClassification",
}
HOW_TO_LOAD = (
    "import toeplix.hub before the Auto classes of transformers read this directory, or pass "
    "trust_remote_code=True to them to run the code in it"
)
# what collators of packed rows give besides position_ids
PACKING = ("cu_seq_lens_q", "cu_seq_lens_k", "seq_idx")
MAX_LAYERS = 2**14  # modules take time to build, however small they are
ROTARY_BASE = 10000.0  # of attention, as in Llama
MIN_SQUARE, MIN_MEAN_SQUARE = 1e-6, 1e-2  # of lookup's unit vectors, and of its norm
KEY_NOISE = 0.1  # initial standard deviation of the newest tap of lookup's keys
MAX_DIRECT = 16  # new positions up to which filters read the past directly, without an FFT
CHUNK = 64  # positions of linear attention that are computed by one product
NORMS: dict[str, Callable[[int], nn.Module]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"silu": nn.SiLU, "gelu": nn.GELU}

SEVERAL_DOCUMENTS = (
    "position_ids have several documents in one row, which a cache does not keep apart: "
    "pass use_cache=False, or a row for each document"
)

Product = Callable[[Tensor, Tensor], Tensor]


def _alias(name: str) -> Any:
    """A property for the name by which transformers knows a setting."""
    return property(lambda self: self.model[name], lambda self, new: self.model.update({name: new}))


class ToeplixConfig(PreTrainedConfig):
    """The configuration of a model.

    Args:
        model: settings by name, see `DEFAULTS`; those that are left out have their default. Names of
            toeplix 0.1.0 are converted.
        toeplix_version: the version of toeplix that wrote the checkpoint.
        other: as in `PreTrainedConfig`.
    """

    model_type = "toeplix"
    bos_token_id = eos_token_id = pad_token_id = None  # until a tokenizer names them
    qk_head_dim = 0  # keys and values differ in size: static caches take them as they come
    vocab_size, hidden_size, num_hidden_layers = _alias("vocab"), _alias("dim"), _alias("depth")
    max_position_embeddings, tie_word_embeddings = _alias("context"), _alias("tie_embeddings")

    def __init__(self, model: Any = None, toeplix_version: str | None = None, **other: Any) -> None:
        if not isinstance(model or {}, dict):
            raise ValueError(f"model={model!r:.40} must be a record")
        given = {OLD_NAMES.get(name, name): value for name, value in (model or {}).items()}
        if twice := [old for old in (model or {}) if old in OLD_NAMES and OLD_NAMES[old] in model]:
            raise ValueError(
                f"{twice[0]} and {OLD_NAMES[twice[0]]} are one setting: give the latter"
            )
        if "gate" in given and "filter" not in given:  # written before there were recurrent filters
            given = {"arch": "toeplitz"} | given
            given |= {"filter": "free"} if given["arch"] == "toeplitz" else {}
        whole = set(given) >= WRITTEN  # a record that toeplix wrote has every field
        if (
            whole and given["gate"] and "gate_bias" not in given
        ):  # written before gates started open
            toeplitz = "toeplitz" in (given.get("arch"), *given.get("blocks", ()))
            given |= {"gate_bias": 0.0} if toeplitz else {}
        if whole and NORMED & {given.get("arch"), *given.get("blocks", ())}:
            given = {"embedding_norm": 0.0} | given  # written before embeddings had a norm
        self.model, self.toeplix_version = DEFAULTS | given, toeplix_version
        order = self.model["block_order"]
        self.model["block_order"] = OLD_BLOCK_ORDERS.get(str(order), order)
        hybrid = self.model["arch"] == HYBRID
        self.model["blocks"] = tuple(self.model["blocks"]) if hybrid else ()  # JSON knows no tuples
        unknown = sorted(set(self.model) - set(DEFAULTS))
        unknown += [str(name) for name in self.cycle if str(name) not in MIXERS]
        if unknown:
            raise ValueError(f"unknown to this version: {', '.join(unknown)}")
        super().__init__(**other)  # which may set aliases: sizes are checked after it
        for name, default in DEFAULTS.items():
            size = self.model[name]
            if type(default) is int and (type(size) is not int or not 0 <= size < 2**31):
                raise ValueError(f"{name}={size!r:.40} must be an integer in 0 .. {2**31 - 1}")
        weight = self.model["embedding_norm"]
        if type(weight) not in (int, float) or not 0 <= weight < math.inf:
            raise ValueError(f"embedding_norm={weight!r:.40} must be a number of at least 0")
        if self.model["depth"] * self.model["sequential"] > MAX_LAYERS:
            raise ValueError(f"depth={self.model['depth']} must be at most {MAX_LAYERS} layers")

    @property
    def settings(self) -> SimpleNamespace:
        """The settings as attributes."""
        return SimpleNamespace(**self.model)

    @property
    def cycle(self) -> list[str]:
        """The names of the mixers that are repeated over the depth."""
        return list(self.model["blocks"]) or [self.model["arch"]]

    @property
    def mixers(self) -> list[type["ToeplixMixer"]]:
        """The mixer of every block."""
        cycle = self.cycle
        return [MIXERS[cycle[number % len(cycle)]] for number in range(self.model["depth"])]

    @property
    def slots(self) -> list[int]:
        """The first layer of a transformers cache that each block uses, and the number of all."""
        counts = [mixer.cache_slots(self.settings) for mixer in self.mixers]
        return [sum(counts[:number]) for number in range(len(counts) + 1)]

    @property  # type: ignore[misc]
    def per_layer_config(self) -> Any:
        """One configuration for each layer of a cache: stock caches count them."""
        return [self] * self.slots[-1]

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """Write config.json, with the names of the classes that read it without toeplix."""
        self.auto_map, self.how_to_load = dict(AUTO_MAP), HOW_TO_LOAD
        super().save_pretrained(*args, **kwargs)


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Return a context without autocast, on devices that have it (meta tensors do not)."""
    kind = x.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


def documents_of(position_ids: Tensor, mask: Tensor | None) -> Tensor | None:
    """Return the number of the document (b, t) of every token; None if no row has more than one.

    A document begins where a position does not follow that of the token before it, as in transformers'
    own models. Padding, where `mask` (b, t) is false, belongs to the document before it,
    or at the beginning of a row to document 0.
    """
    slots = torch.arange(position_ids.shape[1], device=position_ids.device).expand_as(position_ids)
    seen = slots if mask is None else slots.masked_fill(~mask, -1).cummax(1).values
    before = F.pad(seen[:, :-1], (1, 0), value=-1)  # the last real token before each one
    follows = position_ids == position_ids.gather(1, before.clamp(min=0)) + 1
    starts = (before < 0) | ~follows
    starts = starts if mask is None else starts & mask
    return starts.cumsum(1) if bool((starts & (before >= 0)).any()) else None


class Positions:
    """Where new tokens stand: at a slot of the cache, and at a position of their own row.

    Slots count padding. Positions start at a row's first real token, or at that of its document.
    """

    def __init__(
        self, x: Tensor, mask: Tensor | None, position_ids: Tensor | None, past: int | Tensor
    ) -> None:
        time = x.shape[1]
        # a new tensor: a static cache gives its own counter, and increases it in place
        self.slots = torch.arange(time, device=x.device) + past  # (t,)
        self.is_start = isinstance(past, int) and past == 0
        self.real_slots = None if mask is None else mask.bool()  # (b, s), False at padding
        self.real: Tensor | None = None  # (b, t), False at padding
        self.of_slots: Tensor | None = None  # (b, s), the position at every slot of the mask
        self.own = self.slots[None]  # (b or 1, t)
        self.documents: Tensor | None = None  # (b, t), if rows hold several
        if mask is not None:
            if mask.ndim != 2 or (isinstance(past, int) and mask.shape[1] < past + time):
                raise ValueError(f"attention_mask {[*mask.shape]}, not (b, {past} + {time})")
            self.real = mask[:, self.slots].bool()
            self.of_slots = mask.long().cumsum(1) - 1
            self.own = self.of_slots[:, self.slots].clamp(min=0)
        if position_ids is not None and time > 1:
            position_ids = position_ids.expand(len(x), -1)
            self.documents = documents_of(position_ids, self.real)
            # under torch.compile a look at numbers would break the graph
            if not self.is_start and not torch.compiler.is_compiling():
                self.check_continues(position_ids, past)
        if self.documents is not None:
            first = F.pad(self.documents.diff(dim=1) != 0, (1, 0), value=True)
            self.own = self.slots - (self.slots * first).cummax(1).values
            self.of_slots = self.own
        self.of_bias = self.own if position_ids is None else position_ids

    def check_continues(self, position_ids: Tensor, past: int | Tensor) -> None:
        """Reject a document that begins with the first new token of a row that has earlier ones."""
        first = position_ids[:, 0] == 0
        earlier = torch.as_tensor(past, device=first.device) > 0
        if self.real is not None and self.real_slots is not None:
            slots = torch.arange(self.real_slots.shape[1], device=position_ids.device)
            earlier = (self.real_slots & (slots < past)).any(1)
            is_first = self.real & (self.real.cumsum(1) == 1)
            first = (is_first & (position_ids == 0)).any(1)
        if bool((first & earlier).any()):
            raise ValueError(SEVERAL_DOCUMENTS)

    def same_document(self) -> Tensor | None:
        """Return for which pairs (b, t, t) both stand in one document; None if all of a row do."""
        if self.documents is None:
            return None
        return self.documents[:, :, None] == self.documents[:, None]

    def zero_padding(self, x: Tensor) -> Tensor:
        """Return x (b, t, ...) with zeros at padding. A product would not do: 0 times NaN is NaN."""
        if self.real is None:
            return x
        return x.masked_fill(~self.real.view(*self.real.shape, *[1] * (x.ndim - 2)), 0)

    def bias(self, table: Tensor) -> Tensor:
        """Return the biases (b or 1, t, h, 1) of a table (h, n), whose last one stays beyond n."""
        return F.embedding(self.of_bias.clamp(0, table.shape[1] - 1), table.t())[..., None]


def toeplitz_product(x: Tensor, kernel: Tensor) -> Tensor:
    """Return `y[b,t,h,c] = sum over lags l < n of kernel[h,l] x[b,t-l,h,c]`, by FFT.

    x is (b, t, h, c), kernel is (h, n). Spectra are computed in float32 at least.
    """
    time, dtype = x.shape[1], torch.promote_types(x.dtype, torch.float32)
    size = 1 << (2 * time - 1).bit_length()  # so long that the circular product does not wrap
    spectrum = torch.fft.rfft(kernel[:, :time].to(dtype), n=size).t()[:, :, None]
    y = torch.fft.irfft(torch.fft.rfft(x.to(dtype), n=size, dim=1) * spectrum, n=size, dim=1)
    return y[:, :time].to(x.dtype)


def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return `y[t] = q[t] sum over s <= t of k[s]^T v[s]`; q, k are (b, h, t, e), v is (b, h, t, f).

    Positions of one chunk contribute by a masked product, those of earlier chunks by a sum.
    """
    time = q.shape[2]
    q, k, v = (F.pad(x, (0, 0, 0, -time % CHUNK)).unflatten(2, (-1, CHUNK)) for x in (q, k, v))
    earlier = F.pad((k.mT @ v).cumsum(2), (0, 0, 0, 0, 1, -1))
    return ((q @ k.mT).tril() @ v + q @ earlier).flatten(2, 3)[:, :, :time]


def lookup_product(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kernel: Tensor,
    slots: Tensor | None = None,
    documents: Tensor | None = None,
) -> Tensor:
    """Return `y[t] = sum over s <= t of kernel[t-s] (q[t] . k[s]) v[s]` at the positions `slots`.

    q is (b, h, t, e), k (b, h, s, e), v (b, h, s, c), kernel (h, n); without slots they are 0 .. t - 1.
    Positions of other `documents` (b, t) are not read. Rows of the matrix are computed in chunks:
    without gradients one chunk is in memory at a time. With gradients autograd keeps all of them, a few
    matrices of t x s for every head, unless gradient checkpointing computes them again.
    """
    own = torch.arange(q.shape[2], device=q.device) if slots is None else slots
    source, parts = torch.arange(k.shape[2], device=q.device), []
    for part, at in zip(q.split(CHUNK, 2), own.split(CHUNK), strict=True):
        lag = at[:, None] - source
        outside = (lag < 0) | (lag >= kernel.shape[1])
        weight = kernel[:, lag.clamp(0, kernel.shape[1] - 1)].masked_fill(outside, 0)
        if documents is not None:
            others = documents[:, at, None] != documents[:, None]
            weight = weight.masked_fill(others[:, None], 0)
        parts.append((part @ k.mT * weight) @ v)
    return torch.cat(parts, 2)


def windowed_attention(
    q: Tensor, k: Tensor, v: Tensor, window: int, positions: "Positions", first: int = 0
) -> Tensor:
    """Return attention over the last `window` positions; q is (b, h, t, c), k and v are (b, h, s, c).

    Keys stand at the slots `first, first + 1, ...`. Rotary embeddings make scores depend on distances.
    Queries at padding see themselves, as a softmax over nothing is not a number.
    """
    slots = positions.slots
    source = torch.arange(k.shape[2], device=q.device) + first
    own = slots[:, None]
    seen = ((source <= own) & (source > own - window))[None]
    if positions.real_slots is not None:
        real = F.pad(positions.real_slots[:, first:], (0, max(0, k.shape[2])))[:, : k.shape[2]]
        seen = (seen & real[:, None]) | (source == own)
    if (together := positions.same_document()) is not None:
        seen = seen & together
    q, k = rotated(q, slots - slots[0]), rotated(k, source - slots[0])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None])


def rotated(x: Tensor, at: Tensor) -> Tensor:
    """Return x (b, h, t, c) with rotary embeddings of the positions `at` (t,)."""
    half = x.shape[-1] // 2
    scale = torch.arange(half, device=x.device, dtype=torch.float32) / half
    angle = at[:, None] * ROTARY_BASE**-scale
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


class RecurrentKernel:
    """Filters `kernel[l] = free[l] + sum_j weights[j] sqrt(1 - decays[j]^2) decays[j]^l` of any length.

    `free` is (h, taps), `weights` is (h, r), `decays` is (r,); `amplitudes` are the factors of powers.
    """

    def __init__(self, free: Tensor, weights: Tensor, decays: Tensor) -> None:
        self.free, self.decays = free, decays
        self.amplitudes = weights * (1 - decays.double() ** 2).sqrt().to(weights.dtype)

    def taps(self, time: int) -> Tensor:
        """Return the filters (h, time) at the lags 0 .. time - 1; powers are computed in float64."""
        lags = torch.arange(time, dtype=torch.float64, device=self.decays.device)
        tail = self.amplitudes.double() @ self.decays.double()[:, None] ** lags
        short = min(time, self.free.shape[1])
        head = F.pad(self.free[:, :short].double(), (0, time - short))
        return (tail + head).to(self.free.dtype)


Kernel = Tensor | RecurrentKernel


def taps_of(kernel: Kernel, time: int) -> Tensor:
    """Return the taps (h, n) of filters that `time` positions need."""
    return kernel.taps(time) if isinstance(kernel, RecurrentKernel) else kernel


class MixerCache(ABC):
    """How mixers read earlier positions. Every method takes new positions and remembers them.

    A slot is one layer of the cache; no two parts of a model share one. Inputs are zero at padding.
    """

    @abstractmethod
    def filtered(self, x: Tensor, kernel: Kernel, slot: int) -> Tensor:
        """Return the causal filter `kernel` (h, n) at the new positions x (b, t, h, c)."""

    @abstractmethod
    def looked_up(self, q: Tensor, k: Tensor, v: Tensor, kernel: Kernel, slot: int) -> Tensor:
        """Return `lookup_product` (b, h, t, c) at the new positions."""

    @abstractmethod
    def windowed(
        self, q: Tensor, k: Tensor, v: Tensor, window: int, positions: Positions, slot: int
    ) -> Tensor:
        """Return `windowed_attention` (b, h, t, c) at the new positions."""

    @abstractmethod
    def attended(self, q: Tensor, k: Tensor, v: Tensor, slot: int) -> Tensor:
        """Return linear attention (b, h, t, f) at the new positions, without the normaliser."""

    @abstractmethod
    def remembered(self, x: Tensor, slot: int) -> Tensor:
        """Return all positions (b, s, ...), of which x (b, t, ...) are the newest."""

    @abstractmethod
    def implicit_kernel(self, network: Callable[..., Tensor], time: int, slot: int) -> Tensor:
        """Return filters (d, n) computed by `network(taps)`; without taps, those of the context."""

    def convolved(self, x: Tensor, convolution: nn.Conv1d, slot: int) -> Tensor:
        """Return a short depthwise convolution of x (b, t, d). It is a filter of few taps."""
        kernel, bias = convolution.weight[:, 0].flip(-1), convolution.bias
        y = self.filtered(x[..., None], kernel.to(x.dtype), slot)[..., 0]
        return y if bias is None else y + bias


class WholeSequence(MixerCache):
    """No cache: there are no earlier positions, and nothing is remembered."""

    def __init__(self, product: Product) -> None:
        self.product = product

    def filtered(self, x: Tensor, kernel: Kernel, slot: int) -> Tensor:
        return self.product(x, taps_of(kernel, x.shape[1]))

    def looked_up(self, q: Tensor, k: Tensor, v: Tensor, kernel: Kernel, slot: int) -> Tensor:
        return lookup_product(q, k, v, taps_of(kernel, q.shape[2]))

    def windowed(
        self, q: Tensor, k: Tensor, v: Tensor, window: int, positions: Positions, slot: int
    ) -> Tensor:
        return windowed_attention(q, k, v, window, positions)

    def attended(self, q: Tensor, k: Tensor, v: Tensor, slot: int) -> Tensor:
        return linear_attention(q, k, v)

    def remembered(self, x: Tensor, slot: int) -> Tensor:
        return x

    def implicit_kernel(self, network: Callable[..., Tensor], time: int, slot: int) -> Tensor:
        return network(time)

    def convolved(self, x: Tensor, convolution: nn.Conv1d, slot: int) -> Tensor:
        padded = F.pad(x, (0, 0, convolution.kernel_size[0] - 1, 0)).mT
        weight, bias = convolution.weight.to(x.dtype), convolution.bias
        return F.conv1d(padded, weight, bias, groups=convolution.groups).mT


class PackedDocuments(WholeSequence):
    """No cache, and rows of several documents, which do not read each other.

    Filters and linear attention take the documents as rows of their own, padded on the right. Those of
    similar length go together, so that at most half of what is computed is padding.
    """

    def __init__(self, product: Product, positions: Positions, documents: Tensor) -> None:
        super().__init__(product)
        self.positions, self.documents = positions, documents
        rows, time = documents.shape
        number = documents + time * torch.arange(rows, device=documents.device)[:, None]
        lengths = number.flatten().unique_consecutive(return_counts=True)[1]
        begins = lengths.cumsum(0) - lengths
        sizes = torch.tensor([(n - 1).bit_length() for n in lengths.tolist()], device=number.device)
        self.groups = []  # of documents: where in the rows they are (n, l), and what of that is padding
        for size in sizes.unique():
            begin, length = begins[sizes == size], lengths[sizes == size]
            place = torch.arange(int(length.max()), device=number.device)
            real = place < length[:, None]
            self.groups.append(((begin[:, None] + place).where(real, begin[:, None]), real))
        self.order = torch.cat([index[real] for index, real in self.groups]).argsort()

    def by_document(self, compute: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """Apply a causal map to each document; inputs and the result are (b, t, ...)."""
        flat, parts = [x.flatten(0, 1) for x in inputs], []
        for index, real in self.groups:
            parts.append(compute(*(x[index] for x in flat))[real])
        return torch.cat(parts)[self.order].unflatten(0, self.documents.shape)

    def filtered(self, x: Tensor, kernel: Kernel, slot: int) -> Tensor:
        taps = taps_of(kernel, x.shape[1])
        return self.by_document(lambda part: self.product(part, taps), x)

    def looked_up(self, q: Tensor, k: Tensor, v: Tensor, kernel: Kernel, slot: int) -> Tensor:
        return lookup_product(q, k, v, taps_of(kernel, q.shape[2]), documents=self.documents)

    def attended(self, q: Tensor, k: Tensor, v: Tensor, slot: int) -> Tensor:
        def attention(*parts: Tensor) -> Tensor:
            return linear_attention(*(part.transpose(1, 2) for part in parts)).transpose(1, 2)

        return self.by_document(attention, *(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)

    def convolved(self, x: Tensor, convolution: nn.Conv1d, slot: int) -> Tensor:
        return self.by_document(
            lambda part: super(PackedDocuments, self).convolved(part, convolution, slot), x
        )


class StockCache(MixerCache):
    """A cache of transformers, dynamic or static. It keeps all inputs, and a step reads all of them."""

    # Hyena's filters, as long as their cache lives: stock caches have no place for them
    kernels: ClassVar[WeakKeyDictionary[Cache, dict[int, Tensor]]] = WeakKeyDictionary()

    def __init__(self, cache: Cache, positions: Positions, product: Product) -> None:
        self.cache, self.positions, self.product = cache, positions, product

    def filtered(self, x: Tensor, kernel: Kernel, slot: int) -> Tensor:
        past, slots = self.remembered(x, slot), self.positions.slots
        if self.positions.is_start:
            return self.product(x, taps_of(kernel, x.shape[1]))
        kernel = taps_of(kernel, past.shape[1])
        if x.shape[1] > MAX_DIRECT:
            return self.product(past, kernel)[:, slots]
        taps = kernel.shape[1]
        read = torch.arange(1 - min(taps, past.shape[1]), x.shape[1], device=x.device) + slots[0]
        lag = slots[:, None] - read
        outside = (lag < 0) | (lag >= taps) | (read < 0)
        weight = kernel[:, lag.clamp(0, taps - 1)].masked_fill(outside, 0)
        past, dtype = past[:, read.clamp(min=0)], torch.promote_types(x.dtype, torch.float32)
        with without_autocast(x):
            return torch.einsum("hts,bshc->bthc", weight.to(dtype), past.to(dtype)).to(x.dtype)

    def looked_up(self, q: Tensor, k: Tensor, v: Tensor, kernel: Kernel, slot: int) -> Tensor:
        keys, values = self.cache.update(k, v, slot)
        taps = taps_of(kernel, keys.shape[2]).to(q.dtype)
        return lookup_product(q, keys, values, taps, self.positions.slots)

    def windowed(
        self, q: Tensor, k: Tensor, v: Tensor, window: int, positions: Positions, slot: int
    ) -> Tensor:
        keys, values = self.cache.update(k, v, slot)
        return windowed_attention(q, keys, values, window, positions)

    def attended(self, q: Tensor, k: Tensor, v: Tensor, slot: int) -> Tensor:
        keys, values = self.cache.update(k, v, slot)
        if self.positions.is_start:
            return linear_attention(q, k, v)
        future = torch.arange(keys.shape[2], device=q.device) > self.positions.slots[:, None]
        return (q @ keys.mT).masked_fill(future, 0) @ values

    def remembered(self, x: Tensor, slot: int) -> Tensor:
        return remember(self.cache, x, slot)

    def implicit_kernel(self, network: Callable[..., Tensor], time: int, slot: int) -> Tensor:
        if torch.is_grad_enabled():  # filters may be trained between two calls
            return network()
        known = self.kernels.setdefault(self.cache, {})
        if self.positions.is_start or slot not in known:
            known[slot] = network()
        return known[slot]


def remember(cache: Cache, x: Tensor, slot: int) -> Tensor:
    """Append x (b, t, ...) to a layer of a cache as keys, with values of width 0; return (b, s, ...)."""
    keys = x.flatten(2)[:, None]
    return cache.update(keys, keys[..., :0], slot)[0][:, 0].unflatten(-1, x.shape[2:])


class ResidualOutput(nn.Linear):
    """A linear layer that writes to the residual stream: initially smaller in deep models."""


class Gate(nn.Linear):
    """The linear layer whose result multiplies that of the filters."""


class OutputHead(nn.Linear):
    """The linear layer from features to logits."""


class PlainLinear(nn.Linear):
    """A linear layer that is initialised as PyTorch does, whatever the rule of the model."""


class ToeplixMixer(nn.Module):
    """A token mixer: `forward(x, positions, past)`, from (b, t, d) to (b, t, d)."""

    # the rule by which `init` initialises the linear layers of the whole model, see `_init_weights`
    initialisation: ClassVar = {"scaled": "scaled", "paper": "pytorch"}

    def __init__(self, config: ToeplixConfig, slot: int) -> None:
        super().__init__()
        self.settings, self.slot = config.settings, slot

    @classmethod
    def cache_slots(cls, settings: SimpleNamespace) -> int:
        """How many layers of a cache one mixer uses."""
        return 1

    def reset(self) -> None:
        """Initialise the weights that belong to no layer of the mixer: here there are none."""


class ToeplixFilter(nn.Module):
    """A layer of causal filters, which read k neighbouring channels.

        y[b,t,h,c] = sum over i < k, l < n of kernel[h,i,l] x[b,t-l,h,c+i-(k-1)] + bias[h,t]

    `kernel` is (h, k, n), `bias` is (h, n). Frozen ones are buffers.
    """

    def __init__(self, config: ToeplixConfig, slot: int) -> None:
        super().__init__()
        settings = self.settings = config.settings
        self.slot = slot
        heads, kind = filter_heads(settings), nn.Parameter if settings.frozen == "no" else nn.Buffer
        self.kernel = kind(torch.empty(heads, settings.kernels, settings.context))
        self.bias = kind(torch.empty(heads, settings.context))

    def reset(self) -> None:
        """Initialise as noise, as ones, or as decays over 1/2 to 16 positions."""
        heads, kernels, context = self.kernel.shape
        frozen = {"random": "kaiming", "ones": "ones"}
        start = frozen.get(self.settings.frozen, self.settings.filter_init)
        init.zeros_(self.bias)
        if start == "kaiming":
            init.normal_(self.kernel, std=math.sqrt(2 / context))
        elif start == "ones":
            init.ones_(self.kernel)
        else:
            curve = decaying(heads, context)
            init.copy_(self.kernel, F.pad(curve[:, None], (0, 0, kernels - 1, 0)))

    def forward(self, x: Tensor, positions: Positions, past: MixerCache) -> Tensor:
        heads, kernels, _ = self.kernel.shape
        channels = x.shape[-1]
        x = F.pad(positions.zero_padding(x), (kernels - 1, 0))
        # the k shifts of the channels become heads: (b, t, h k, c)
        x = torch.stack([x[..., i : i + channels] for i in range(kernels)], 3).flatten(2, 3)
        y = past.filtered(x, self.kernel.flatten(0, 1), self.slot)
        y = y.unflatten(2, (heads, kernels)).sum(3)
        return y + positions.bias(self.bias).to(y.dtype)


def filter_heads(settings: SimpleNamespace) -> int:
    """Return how many filters a Toeplitz mixer has."""
    return settings.heads or settings.groups


def decaying(heads: int, taps: int) -> Tensor:
    """Return filters (h, taps) of norm 1 that decay over 2 positions, of several heads over 1/2 to 16."""
    scale = 2.0 ** torch.linspace(*((1, 1) if heads == 1 else (-1, 4)), heads)
    return F.normalize(torch.exp(-torch.arange(taps) / scale[:, None]))


def decay_grid(settings: SimpleNamespace) -> Tensor:
    """Return decays (r,) whose time constants are a logarithmic grid from 2 to twice the context."""
    step = math.log(settings.context) / max(1, settings.decays - 1)
    constants = 2.0 * torch.exp(step * torch.arange(settings.decays, dtype=torch.float64))
    return torch.exp(-1.0 / constants).float()


class HasDecays(nn.Module):
    """A module whose buffer `decays` stays in float32 at least: in half precision 0.998 is 1."""

    decays: Tensor

    def add_decays(self, settings: SimpleNamespace) -> None:
        """Add the buffer, which `reset` fills."""
        dtype = torch.promote_types(torch.get_default_dtype(), torch.float32)
        self.decays = nn.Buffer(torch.empty(settings.decays, dtype=dtype))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "HasDecays":
        before = self._buffers.get("decays")
        super()._apply(fn, recurse)
        if before is not None and self.decays.dtype.itemsize < 4:
            self.decays = before.to(self.decays.device)
        return self


class ToeplixRecurrentFilter(HasDecays):
    """A layer of recurrent filters: `free` is (h, taps), `weights` is (h, r). It has no bias."""

    def __init__(self, config: ToeplixConfig, slot: int) -> None:
        super().__init__()
        settings = self.settings = config.settings
        heads, self.slot = filter_heads(settings), slot
        self.add_decays(settings)
        self.free = nn.Parameter(torch.empty(heads, settings.free_taps))
        self.weights = nn.Parameter(torch.empty(heads, settings.decays))

    def reset(self) -> None:
        """Initialise the free taps as decays over 1/2 to 16 positions, without slow parts."""
        init.copy_(self.decays, decay_grid(self.settings).to(self.decays.dtype))
        init.copy_(self.free, decaying(*self.free.shape))
        init.zeros_(self.weights)

    def forward(self, x: Tensor, positions: Positions, past: MixerCache) -> Tensor:
        kernel = RecurrentKernel(self.free, self.weights, self.decays)
        return past.filtered(positions.zero_padding(x), kernel, self.slot)


class ToeplixToeplitzMixer(ToeplixMixer):
    """Filters between two projections, times a gate: `y = W_out (filter(W_in x) * W_gate x)`."""

    initialisation: ClassVar = {"scaled": "scaled", "paper": "kaiming"}

    def __init__(self, config: ToeplixConfig, slot: int) -> None:
        super().__init__(config, slot)
        settings, dim = config.settings, config.hidden_size
        self.heads, flat = filter_heads(settings), settings.heads == 0
        self.project_in = nn.Identity() if flat else nn.Linear(dim, dim)
        self.project_out = nn.Identity() if flat else ResidualOutput(dim, dim)
        self.gate = Gate(dim, dim) if settings.gate else None
        kinds = {"free": ToeplixFilter, "recurrent": ToeplixRecurrentFilter}
        self.filters = nn.ModuleList(
            kinds[settings.filter](config, slot + i) for i in range(settings.sequential)
        )
        activation, dropout = ACTIVATIONS[settings.activation](), nn.Dropout(settings.dropout)
        self.between = nn.Sequential(activation, dropout)

    @classmethod
    def cache_slots(cls, settings: SimpleNamespace) -> int:
        return settings.sequential

    def forward(self, x: Tensor, positions: Positions, past: MixerCache) -> Tensor:
        y = self.project_in(x).unflatten(-1, (self.heads, -1))
        for index, layer in enumerate(self.filters):
            y = layer(self.between(y) if index else y, positions, past)
        y = y.flatten(2)
        return self.project_out(y if self.gate is None else y * self.gate(x))


class ToeplixLookupMixer(ToeplixMixer, HasDecays):
    """Linear attention under a Toeplitz mask, behind a short convolution of queries, keys and values.

    y[t] = norm( sum over s <= t of kernel_h[t-s] (q[t] . k[s]) v[s] )       per head h
    """

    def __init__(self, config: ToeplixConfig, slot: int) -> None:
        super().__init__(config, slot)
        settings, dim = config.settings, config.hidden_size
        self.heads, taps = settings.heads or 4, settings.short_conv
        self.sizes = (self.heads * settings.keys, self.heads * settings.keys, dim)
        wide = sum(self.sizes)
        self.project_in = nn.Linear(dim, wide)
        convolution = nn.Conv1d(wide, wide, taps, groups=wide, bias=False) if taps > 1 else None
        self.short = nn.Identity() if convolution is None else convolution
        self.project_out = ResidualOutput(dim, dim)
        if settings.filter == "recurrent":
            self.weights = nn.Parameter(torch.empty(self.heads, settings.decays))
            self.add_decays(settings)
        else:
            self.kernel = nn.Parameter(torch.empty(self.heads, settings.context))

    @classmethod
    def cache_slots(cls, settings: SimpleNamespace) -> int:
        return 2 if settings.short_conv > 1 else 1  # keys and values, the short convolution

    def reset(self) -> None:
        """Start near linear attention, with keys shifted by one position, plus noise in the newest tap.

        Filters are the slowest decay, or constant, and 1 at lag 0.
        """
        if isinstance(self.short, nn.Conv1d):
            taps = torch.zeros(self.short.weight.shape)
            q, k, v = taps.split(self.sizes)
            q[..., -1] = k[..., -2] = v[..., -1] = 1
            k[..., -1].normal_(0, KEY_NOISE)
            init.copy_(self.short.weight, taps)
        if self.settings.filter == "free":
            init.ones_(self.kernel)
            return
        init.copy_(self.decays, decay_grid(self.settings).to(self.decays.dtype))
        start = torch.zeros(self.weights.shape)
        start[:, -1] = (1 - decay_grid(self.settings)[-1].double() ** 2).rsqrt()
        init.copy_(self.weights, start)

    def forward(self, x: Tensor, positions: Positions, past: MixerCache) -> Tensor:
        wide = positions.zero_padding(self.project_in(x))
        with without_autocast(x):  # long sums need float32 at least
            wide = wide.to(torch.promote_types(wide.dtype, torch.float32))
            if isinstance(self.short, nn.Conv1d):
                wide = positions.zero_padding(past.convolved(wide, self.short, self.slot + 1))
            parts = [part.unflatten(-1, (self.heads, -1)) for part in wide.split(self.sizes, -1)]
            q, k, v = (part.transpose(1, 2) for part in parts)
            q, k = (
                part * (part.square().sum(-1, keepdim=True) + MIN_SQUARE).rsqrt() for part in (q, k)
            )
            y = past.looked_up(q, k, v, self.filters(wide.dtype), self.slot)
            y = F.rms_norm(y, y.shape[-1:], eps=MIN_MEAN_SQUARE)
        return self.project_out(y.transpose(1, 2).flatten(2).to(x.dtype))

    def filters(self, dtype: torch.dtype) -> Kernel:
        """Return the filters of all heads."""
        if self.settings.filter == "free":
            return self.kernel.to(dtype)
        weights = self.weights.to(dtype)
        return RecurrentKernel(weights[:, :0], weights, self.decays)


class ToeplixAttentionMixer(ToeplixMixer):
    """Softmax attention over the last `window` positions, with rotary embeddings."""

    def __init__(self, config: ToeplixConfig, slot: int) -> None:
        super().__init__(config, slot)
        self.heads, dim = config.settings.heads or 4, config.hidden_size
        self.project_in = nn.Linear(dim, 3 * dim, bias=False)
        self.project_out = ResidualOutput(dim, dim, bias=False)

    def forward(self, x: Tensor, positions: Positions, past: MixerCache) -> Tensor:
        parts = positions.zero_padding(self.project_in(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = (part.transpose(1, 2) for part in parts.unbind(2))
        y = past.windowed(q, k, v, self.settings.window, positions, self.slot)
        return self.project_out(y.transpose(1, 2).flatten(2))


class ToeplixMaskedMixer(ToeplixMixer):
    """A weight for every pair of positions: `y[t] = sum over s <= t of weight[t,s] x[s] + bias[t]`."""

    def __init__(self, config: ToeplixConfig, slot: int) -> None:
        super().__init__(config, slot)
        settings, dim = config.settings, config.hidden_size
        self.heads, flat = settings.heads or 1, settings.heads == 0
        self.project_in = nn.Identity() if flat else nn.Linear(dim, dim)
        self.project_out = nn.Identity() if flat else ResidualOutput(dim, dim)
        self.weight = nn.Parameter(torch.empty(self.heads, settings.context, settings.context))
        self.bias = nn.Parameter(torch.empty(self.heads, settings.context))

    def reset(self) -> None:
        """Initialise as a convolution's default (`paper`), or as decaying averages with small noise."""
        context, weight = self.settings.context, torch.empty(self.weight.shape)
        if self.settings.init == "paper":
            bound = context**-0.5
            init.copy_(self.weight, weight.uniform_(-bound, bound).tril())
            init.uniform_(self.bias, -bound, bound)
        else:
            lag = torch.arange(context)[:, None] - torch.arange(context)
            decay = torch.exp(-lag.clamp(min=0) / 4)
            init.copy_(self.weight, weight.normal_(std=0.02).add_(decay).tril())
            init.zeros_(self.bias)

    def forward(self, x: Tensor, positions: Positions, past: MixerCache) -> Tensor:
        new = positions.zero_padding(self.project_in(x).unflatten(-1, (self.heads, -1)))
        inputs = past.remembered(new, self.slot)
        slots = inputs.shape[1]
        source = torch.arange(slots, device=x.device)[None]  # (b or 1, s), positions of the inputs
        if positions.of_slots is not None:  # slots after the mask hold zeros: any position will do
            source = F.pad(positions.of_slots, (0, slots - positions.of_slots.shape[1]))
        # positions from the context on use the last row of weights as a sliding window
        own, last = positions.own[..., None], self.settings.context - 1
        row = own.clamp(max=last)
        column = source[:, None] - (own - row)
        weight = self.weight[:, row, column.clamp(0, last)]  # (h, b or 1, t, s)
        unread = (column < 0) | (column > row)
        if (together := positions.same_document()) is not None:
            unread = unread | ~together
        weight = weight.masked_fill(unread, 0).expand(-1, len(x), -1, -1)
        y = torch.einsum("hbts,bshc->bthc", weight, inputs) + positions.bias(self.bias)
        return self.project_out(y.flatten(2))


class ToeplixSine(nn.Module):
    """`sin(frequency * x)`, the activation of Hyena's filter network; all its layers share one."""

    def __init__(self, config: ToeplixConfig, dtype: torch.dtype) -> None:
        super().__init__()
        self.settings = config.settings
        self.frequency = nn.Parameter(torch.empty(self.settings.filter_hidden, dtype=dtype))

    def reset(self) -> None:
        init.constant_(self.frequency, self.settings.filter_frequency)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.frequency * x)


class ToeplixImplicitFilter(nn.Module):
    """Hyena's filters (d, n): `filter[c, t] = exp(-decay[c] time[t]) network(waves[t])[c]`."""

    def __init__(self, config: ToeplixConfig) -> None:
        super().__init__()
        settings, dim, context = config.settings, config.hidden_size, config.settings.context
        dtype = torch.promote_types(torch.get_default_dtype(), torch.float32)
        width, features = settings.filter_hidden, settings.filter_features
        self.waves = nn.Parameter(torch.empty(context, features, dtype=dtype))
        self.time = nn.Buffer(torch.empty(context, dtype=dtype))
        self.decay = nn.Buffer(torch.empty(dim, dtype=dtype))
        # named as in a sequence of layers, in which every second one is the sine
        self.network = nn.ModuleDict(
            {
                "0": PlainLinear(features, width, dtype=dtype),
                "1": ToeplixSine(config, dtype),
                "2": PlainLinear(width, width, dtype=dtype),
                "4": PlainLinear(width, width, dtype=dtype),
                "6": PlainLinear(width, dim, bias=False, dtype=dtype),
            }
        )

    def reset(self) -> None:
        """Initialise features as waves of the position, and decays to 1% in 1.5 to 0.3 of the context."""
        context, features = self.waves.shape
        bands, time = (features - 1) // 2, torch.linspace(0, 1, context)
        wave = 2 * math.pi * torch.arange(context) / context
        angle = wave[:, None] * torch.linspace(1e-4, max(bands - 1, 1e-4), bands)
        init.copy_(self.waves, torch.cat([time[:, None], angle.cos(), -angle.sin()], 1))
        init.copy_(self.time, time)
        init.copy_(self.decay, math.log(100) * torch.linspace(1 / 1.5, 1 / 0.3, len(self.decay)))

    def forward(self, taps: int | None = None) -> Tensor:
        with without_autocast(self.decay):
            x = self.waves[:taps]
            for layer in ("0", "2", "4"):
                x = self.network["1"](self.network[layer](x))
            return self.network["6"](x).t() * torch.exp(-self.decay[:, None] * self.time[:taps])

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> "ToeplixImplicitFilter":
        """Move with the model but stay in float32: half precision is too inaccurate for large angles."""

        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype.itemsize >= 4 else tensor.to(moved.device)

        return super()._apply(move, recurse)


class ToeplixHyenaMixer(ToeplixMixer):
    """Hyena of order 2: gates that depend on the input, around a long filter for every channel."""

    initialisation: ClassVar = {"scaled": "output", "paper": "pytorch"}

    def __init__(self, config: ToeplixConfig, slot: int) -> None:
        super().__init__(config, slot)
        dim = config.hidden_size
        self.project_in = nn.Linear(dim, 3 * dim)
        self.short = nn.Conv1d(3 * dim, 3 * dim, 3, groups=3 * dim)
        self.filter = ToeplixImplicitFilter(config)
        self.skip = nn.Parameter(torch.empty(dim))
        self.project_out = ResidualOutput(dim, dim)

    @classmethod
    def cache_slots(cls, settings: SimpleNamespace) -> int:
        return 2  # the short convolution, the long filter

    def reset(self) -> None:
        init.normal_(self.skip)

    def forward(self, x: Tensor, positions: Positions, past: MixerCache) -> Tensor:
        wide = past.convolved(positions.zero_padding(self.project_in(x)), self.short, self.slot)
        gate, other, value = wide.chunk(3, -1)
        value = positions.zero_padding(other * value)  # the convolution has a bias, at padding too
        kernel = past.implicit_kernel(self.filter, x.shape[1], self.slot + 1)
        long = past.filtered(value[..., None], kernel, self.slot + 1)[..., 0]
        return self.project_out(gate * (long + self.skip * value))


class ToeplixLinearMixer(ToeplixMixer):
    """Linear attention: `y[t] = q[t] S[t] / (q[t] z[t])`, with a feature map of queries and keys."""

    initialisation: ClassVar = {"scaled": "output", "paper": "pytorch"}

    def __init__(self, config: ToeplixConfig, slot: int) -> None:
        super().__init__(config, slot)
        self.heads, dim = config.settings.heads or 4, config.hidden_size
        self.project_in = nn.Linear(dim, 3 * dim, bias=False)
        self.project_out = ResidualOutput(dim, dim)

    def forward(self, x: Tensor, positions: Positions, past: MixerCache) -> Tensor:
        parts = self.project_in(x).unflatten(-1, (3, self.heads, -1))
        with without_autocast(x):  # long sums need float32 at least
            q, k, v = parts.to(torch.promote_types(x.dtype, torch.float32)).unbind(2)
            if self.settings.feature_map == "elu":
                q, k, minimum = F.elu(q) + 1, F.elu(k) + 1, 1e-6
            else:
                q, k, minimum = q.softmax(-1) * q.shape[-1] ** -0.5, k.exp(), 1e-3
            k = positions.zero_padding(k)
            v = F.pad(positions.zero_padding(v), (0, 1), value=1.0)  # its last column sums z
            q, k, v = (part.transpose(1, 2) for part in (q, k, v))
            y = past.attended(q, k, v, self.slot)
            y = y[..., :-1] / y[..., -1:].clamp(min=minimum)
        return self.project_out(y.transpose(1, 2).flatten(2).to(x.dtype))


MIXERS: dict[str, type[ToeplixMixer]] = {
    "toeplitz": ToeplixToeplitzMixer,
    "lookup": ToeplixLookupMixer,
    "attention": ToeplixAttentionMixer,
    "masked": ToeplixMaskedMixer,
    "hyena": ToeplixHyenaMixer,
    "linear": ToeplixLinearMixer,
}


# modules with weights that belong to no layer of PyTorch
OWN_RESET = (
    ToeplixMixer,
    ToeplixFilter,
    ToeplixRecurrentFilter,
    ToeplixImplicitFilter,
    ToeplixSine,
)


class ToeplixBlock(GradientCheckpointingLayer):
    """Two residual sublayers, each behind a norm: the token mixer and the MLP."""

    def __init__(self, config: ToeplixConfig, mixer: type[ToeplixMixer], slot: int) -> None:
        super().__init__()
        settings, dim = config.settings, config.hidden_size
        self.mixer_first = settings.block_order == "mixer_first"
        self.token_norm = NORMS[settings.norm](dim)
        self.token_mixer = mixer(config, slot)
        self.channel_norm = NORMS[settings.norm](dim)
        self.channel_mixer = nn.Sequential(
            nn.Linear(dim, settings.mlp_ratio * dim),
            ACTIVATIONS[settings.activation](),
            nn.Dropout(settings.dropout),
            ResidualOutput(settings.mlp_ratio * dim, dim),
        )

    def forward(self, x: Tensor, positions: Positions, past: MixerCache) -> Tensor:
        if not self.mixer_first:
            x = x + self.channel_mixer(self.channel_norm(x))
        x = x + self.token_mixer(self.token_norm(x), positions, past)
        if self.mixer_first:
            x = x + self.channel_mixer(self.channel_norm(x))
        return x


class ToeplixPreTrainedModel(PreTrainedModel):
    """Loading, saving and initialisation of weights."""

    config: ToeplixConfig
    embedding_norm: nn.Module
    supports_gradient_checkpointing = True
    _no_split_modules = ["ToeplixBlock"]  # noqa: RUF012
    _input_embed_layer = "embedding"

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialise one module, by functions that leave alone what has been loaded.

        Rules of linear layers, which a mixer chooses by the setting `init`:

            scaled    N(0, 1/fan_in), residual outputs divided by sqrt(2 depth), biases 0;
                      embedding and head N(0, 0.02^2): the first loss is ln(vocab)
            kaiming   N(0, 2/fan_in), biases 0
            output    PyTorch's defaults, but the head N(0, 0.02^2)
            pytorch   PyTorch's defaults

        Norms start with weights of 1, that of embeddings with the setting `embedding_norm`.
        """
        settings = self.config.settings
        rule = MIXERS[self.config.cycle[0]].initialisation[settings.init]
        if isinstance(module, OWN_RESET):
            module.reset()
        elif isinstance(module, PlainLinear):
            module.reset_parameters()
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=0.02 if rule == "scaled" else 1.0)
        elif isinstance(module, OutputHead) and rule in ("scaled", "output"):
            init.normal_(module.weight, std=0.02)
        elif isinstance(module, nn.Linear) and rule in ("scaled", "kaiming"):
            gain = 2.0 if rule == "kaiming" else 1.0
            if rule == "scaled" and isinstance(module, ResidualOutput):
                gain = 1 / (2 * settings.depth)
            init.normal_(module.weight, std=math.sqrt(gain / module.in_features))
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Linear | nn.Conv1d | nn.LayerNorm | nn.RMSNorm):
            module.reset_parameters()
        if module is self.embedding_norm and isinstance(module, nn.LayerNorm | nn.RMSNorm):
            init.constant_(module.weight, settings.embedding_norm)
        if isinstance(module, Gate):  # whatever the rule of the other layers
            init.constant_(module.bias, settings.gate_bias)


class ToeplixModel(ToeplixPreTrainedModel):
    """The backbone, from tokens to features: embedding, blocks, and norms before and after them."""

    def __init__(self, config: ToeplixConfig) -> None:
        super().__init__(config)
        settings = config.settings
        self.embedding = nn.Embedding(settings.vocab, settings.dim)
        normed = settings.embedding_norm > 0 and NORMED & set(config.cycle)
        normed = normed and not settings.tie_embeddings
        self.embedding_norm = NORMS[settings.norm](settings.dim) if normed else nn.Identity()
        self.blocks = nn.ModuleList(
            ToeplixBlock(config, mixer, slot)
            for mixer, slot in zip(config.mixers, config.slots[:-1], strict=True)
        )
        self.norm = NORMS[settings.norm](settings.dim) if settings.final_norm else nn.Identity()
        self.add_head()
        self.post_init()

    def add_head(self) -> None:
        """Add what follows the backbone, before weights are initialised: here nothing."""

    def check_supported(self, position_ids: Tensor | None, options: dict[str, Any]) -> None:
        """Reject options whose result would be silently wrong."""
        wanted = options.get("output_attentions")
        if self.config.output_attentions if wanted is None else wanted:
            raise ValueError(
                "output_attentions=True is not supported: a Toeplix model has no attention weights to "
                "return; output_hidden_states=True works, as do the filters in its state_dict()"
            )
        given = [name for name in PACKING if options.get(name) is not None]
        if given and position_ids is None:
            raise ValueError(
                f"{given[0]} without position_ids: documents packed into one row are told apart by "
                "position_ids that start again, such as DataCollatorWithFlattening() gives"
            )

    def product(self, x: Tensor, kernel: Tensor) -> Tensor:
        """Return the causal Toeplitz product of x (b, t, h, c) and kernel (h, n)."""
        return toeplitz_product(x, kernel)

    def mixer_cache(self, cache: Cache | None, positions: Positions) -> MixerCache:
        """Return what mixers read the past from."""
        if positions.documents is not None:
            if cache is not None:
                raise ValueError(SEVERAL_DOCUMENTS)
            return PackedDocuments(self.product, positions, positions.documents)
        if cache is None:
            return WholeSequence(self.product)
        if isinstance(cache, MixerCache):
            return cache
        return StockCache(cache, positions, self.product)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """Return the features (b, t, d) of tokens `input_ids` (b, t), or of their embeddings.

        Args:
            input_ids: the new tokens.
            attention_mask: (b, past + t), 1 at real tokens and 0 at padding.
            position_ids: (b, t), the positions of biases if not those counted from the mask. Where one
                does not follow the one before it, a document begins, which reads nothing before it. With
                a cache this is an error, also where several new tokens after earlier ones start at 0.
            past_key_values: a cache of earlier positions, which is changed in place.
            inputs_embeds: (b, t, d), instead of `input_ids`.
            use_cache: make a cache if none is given.
            output_hidden_states: return the inputs of all blocks too, and the features after them.
            kwargs: are ignored, but for what the model cannot give (`check_supported`).
        """
        self.check_supported(position_ids, kwargs)
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give input_ids or inputs_embeds, one of them")
        x: Any = self.embedding(input_ids) if inputs_embeds is None else inputs_embeds
        x = self.embedding_norm(x)
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        if past_key_values is not None and self.training and self.is_gradient_checkpointing:
            past_key_values = None  # blocks that are computed again would fill it twice
            logger.warning_once(
                "no cache is used, as gradient checkpointing is enabled in training"
            )
        seen = 0 if past_key_values is None else past_key_values.get_seq_length()
        positions = Positions(x, attention_mask, position_ids, seen)
        past = self.mixer_cache(past_key_values, positions)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        hidden_states: list[Tensor] = []
        for block in self.blocks:
            hidden_states += [x] if output_hidden_states else []
            x = block(x, positions, past)
        x = self.norm(x)
        shown = (*hidden_states, x) if output_hidden_states else None
        return BaseModelOutputWithPast(x, past_key_values, shown)


class ToeplixForCausalLM(ToeplixModel, GenerationMixin):
    """A language model: the backbone and an output layer.

    It is a backbone and does not hold one, so that weights have the same names as in toeplix: embedding,
    embedding_norm, blocks, norm, head.
    """

    _tied_weights_keys = {"head.weight": "embedding.weight"}  # noqa: RUF012

    def add_head(self) -> None:
        settings = self.config.settings
        self.head: nn.Linear = OutputHead(settings.dim, settings.vocab, bias=False)
        if settings.tie_embeddings:
            self.head.weight = self.embedding.weight

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Return logits (b, t, v), and the loss if there are labels.

        Args:
            input_ids ... output_hidden_states: as in `ToeplixModel`.
            labels: (b, t), the tokens themselves, which are shifted here; -100 is not scored.
            logits_to_keep: logits of so many last positions only (0: all), or of these indices.
            kwargs: go to the loss, such as `num_items_in_batch`.
        """
        self.check_supported(position_ids, kwargs)
        inputs = (input_ids, attention_mask, position_ids, past_key_values, inputs_embeds)
        outputs = super().forward(*inputs, use_cache, output_hidden_states, return_dict=True)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits, loss = self.head(outputs.last_hidden_state[:, kept]), None
        if labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(loss, logits, outputs.past_key_values, outputs.hidden_states)

    @staticmethod
    def create_masks_for_generate(attention_mask: Tensor | None, **_: Any) -> Tensor | None:
        """Return the mask (b, s) as it is: mixers need no matrix of pairs."""
        return attention_mask

    def get_output_embeddings(self) -> nn.Linear:
        return self.head

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.head = new_embeddings


class ToeplixForSequenceClassification(ToeplixModel):
    """A classifier of texts: the backbone, and an output layer that reads the last token of each row."""

    def add_head(self) -> None:
        self.score = OutputHead(self.config.hidden_size, self.config.num_labels or 2, bias=False)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutputWithPast:
        """Return logits (b, labels), and the loss if there are labels.

        Args:
            input_ids ... output_hidden_states: as in `ToeplixModel`. Without a mask, the last token of
                a row is the last one that is not `config.pad_token_id`.
            labels: (b,), classes, or numbers if `config.num_labels` is 1.
            kwargs: go to the loss.
        """
        self.check_supported(position_ids, kwargs)
        inputs = (input_ids, attention_mask, position_ids, past_key_values, inputs_embeds)
        outputs = super().forward(*inputs, use_cache, output_hidden_states, return_dict=True)
        features = outputs.last_hidden_state
        last = self.last_token(input_ids, attention_mask, features)
        logits, loss = self.score(features[torch.arange(len(last), device=last.device), last]), None
        if labels is not None:
            loss = self.loss_function(
                logits=logits, labels=labels, pooled_logits=logits, config=self.config, **kwargs
            )
        return SequenceClassifierOutputWithPast(
            loss, logits, outputs.past_key_values, outputs.hidden_states
        )

    def last_token(self, input_ids: Tensor | None, mask: Tensor | None, features: Tensor) -> Tensor:
        """Return the index (b,) of the last real token of each row."""
        rows, time = features.shape[:2]
        pad = getattr(self.config, "pad_token_id", None)
        if mask is not None:
            real = mask[:, -time:].bool()
        elif pad is not None and input_ids is not None:
            real = input_ids != pad
        elif rows == 1 or input_ids is None:
            real = torch.ones(rows, time, dtype=torch.bool, device=features.device)
        else:
            raise ValueError(
                f"a batch of {rows} rows without attention_mask or config.pad_token_id: where their "
                "texts end is unknown; pass the mask that the tokenizer returns"
            )
        place = torch.arange(time, device=features.device)
        return (place * real).amax(1)
