"""Toeplix models for transformers, in one file that needs nothing but torch and transformers.

It travels with every checkpoint (`trust_remote_code=True` runs it where toeplix is not installed), so it
is a second, plain implementation, tested against the first, with the same names of weights. Where toeplix
is installed, `import toeplix.hub` puts a faster `product` and a near-linear cache in place.

    toeplitz   y = W_out concat_h filter_h(W_in,h x)
    masked     y[p] = sum over q <= p of weight[p, q] x[q] + bias[p]
    hyena      y = W_out (x0 * (filter * (x1 v) + skip x1 v)),  (x0, x1, v) = short_convolution(W_in x)
    linear     y[t] = q[t] S[t] / (q[t] z[t]),  S[t] = sum over s <= t of k[s]^T v[s], z its last column

Rows may be padded on either side: what mixers remember is zero at padding, and positions count from a
row's first real token. Several documents in one row are not kept apart. The past is in a stock cache
(`cache.update`), and a step reads all of it. Beyond `context` filters are sliding windows, biases stay.

Axes: b batch, t time, s slots of the cache, h heads, c channels of one head, d all channels, n taps.
"""

import math
from collections.abc import Callable
from types import SimpleNamespace as Record
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Cache, DynamicCache, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils.generic import can_return_tuple

DEFAULTS: dict[str, Any] = (
    {"arch": "toeplitz", "vocab": 8000, "context": 512, "dim": 512, "depth": 16, "heads": 0}
    | {
        "mlp_ratio": 4,
        "block_order": "mixer_first",
        "norm": "layer",
        "final_norm": True,
        "activation": "silu",
    }
    | {"tie_embeddings": False, "dropout": 0.0, "init": "scaled", "kernels": 1, "sequential": 1}
    | {
        "frozen": "no",
        "filter_init": "decay",
        "gate": True,
        "filter_hidden": 64,
        "filter_features": 9,
    }
    | {"filter_frequency": 1.0, "feature_map": "elu", "window": 128, "state_size": 256}
)
PARTS: Any = {"layer": nn.LayerNorm, "rms": nn.RMSNorm, "silu": nn.SiLU, "gelu": nn.GELU}
MAX_LAYERS = 2**14  # as in toeplix.config
FEW = 16  # new positions up to which a past is read directly, not by spectra


def entry(name: str) -> Any:
    """An attribute that transformers looks for, kept in the record under our name."""
    return property(lambda self: self.model[name], lambda self, new: self.model.update({name: new}))


class ToeplixConfig(PreTrainedConfig):
    """`model` is the record `toeplix.Model` as a dict; fields that are left out have its defaults."""

    model_type = "toeplix"
    qk_head_dim = 0  # keys and values differ in size: static caches take them as they come
    vocab_size, hidden_size, num_hidden_layers = entry("vocab"), entry("dim"), entry("depth")
    max_position_embeddings, tie_word_embeddings = entry("context"), entry("tie_embeddings")

    def __init__(self, model: Any = None, toeplix_version: str | None = None, **other: Any) -> None:
        if not isinstance(model or {}, dict):
            raise ValueError(f"model={model!r:.40} must be a record")
        self.model, self.toeplix_version = DEFAULTS | (model or {}), toeplix_version
        if unknown := set(self.model) - set(DEFAULTS) or {self.model["arch"]} - set(MIXERS):
            raise ValueError(f"unknown to this version: {', '.join(sorted(unknown))}")
        super().__init__(**other)
        sizes = {name: self.model[name] for name, value in DEFAULTS.items() if type(value) is int}
        for name, size in sizes.items():
            if type(size) is not int or not 0 <= size < 2**31:
                raise ValueError(f"{name}={size!r:.40} must be an integer in 0 .. {2**31 - 1}")
        if sizes["depth"] * sizes["sequential"] > MAX_LAYERS:
            raise ValueError(f"depth={sizes['depth']} must be at most {MAX_LAYERS} layers")

    @property  # type: ignore[misc]
    def per_layer_config(self) -> Any:
        """One for each slot of a cache, of which a block may use several: so the stock caches count."""
        each = {"toeplitz": self.model["sequential"], "hyena": 2}.get(self.model["arch"], 1)
        return [self] * (self.model["depth"] * each)


def spectral_product(x: Tensor, kernel: Tensor) -> Tensor:
    """`y[b,t,h,c] = sum over lags l < n of kernel[h,l] x[b,t-l,h,c]`, at least float32 inside."""
    time, work = x.shape[1], torch.promote_types(x.dtype, torch.float32)
    size = 1 << (2 * time - 1).bit_length()  # a circular product that does not wrap
    spectrum = torch.fft.rfft(kernel[:, :time].to(work), n=size).t()[:, :, None]
    y = torch.fft.irfft(torch.fft.rfft(x.to(work), n=size, dim=1) * spectrum, n=size, dim=1)
    return y[:, :time].to(x.dtype)


product: Callable[[Tensor, Tensor], Tensor] = spectral_product  # toeplix.hub puts a faster one here


class Rows:
    """Where new positions stand: their slots in the cache, their own positions, which are real."""

    def __init__(self, x: Tensor, mask: Tensor | None, at: Tensor | None, past: Any) -> None:
        self.slots = torch.arange(x.shape[1], device=x.device) + past  # a copy: some count in place
        self.first = isinstance(past, int) and past == 0
        self.real, self.counted, self.own = None, None, self.slots[None]
        if mask is not None:
            if mask.ndim != 2 or (isinstance(past, int) and mask.shape[1] < past + x.shape[1]):
                raise ValueError(f"attention_mask {[*mask.shape]}, not (b, {past} + {x.shape[1]})")
            self.real, self.counted = mask[:, self.slots].bool(), mask.long().cumsum(1) - 1
            self.own = self.counted[:, self.slots].clamp(min=0)
        self.at = self.own if at is None else at  # the positions of biases

    def blank(self, x: Tensor) -> Tensor:
        """Zeros at padding."""
        real = self.real
        return x if real is None else x.masked_fill(~real.view(*real.shape, *[1] * (x.ndim - 2)), 0)

    def biases(self, bias: Tensor) -> Tensor:
        """(h, n) to (b or 1, t, h, 1); beyond n the last one stays."""
        return F.embedding(self.at.clamp(0, bias.shape[1] - 1), bias.t())[..., None]


def remember(x: Tensor, cache: Cache, slot: int) -> Tensor:
    """Put (b, t, ...) into the cache; (b, s, ...), the past with it, comes back."""
    flat = x.flatten(2)[:, None]
    return cache.update(flat, flat[..., :0], slot)[0][:, 0].unflatten(-1, x.shape[2:])


def filtered(x: Tensor, kernel: Tensor, rows: Rows, cache: Any, slot: int) -> Tensor:
    """The product of x (b, t, h, c), and what is before it in the cache, with kernel (h, n)."""
    if hasattr(cache, "filtered"):  # a near-linear cache
        return cache.filtered(x, kernel, slot)
    past, taps = x if cache is None else remember(x, cache, slot), kernel.shape[1]
    if rows.first or cache is None:
        return product(x, kernel)
    if x.shape[1] > FEW:
        return product(past, kernel)[:, rows.slots]
    at = rows.slots[0] + torch.arange(1 - min(taps, past.shape[1]), x.shape[1], device=x.device)
    lag, past = rows.slots[:, None] - at, past[:, at.clamp(min=0)]
    weight = kernel[:, lag.clamp(0, taps - 1)].masked_fill((lag < 0) | (lag >= taps) | (at < 0), 0)
    work = torch.promote_types(x.dtype, torch.float32)
    with torch.autocast(x.device.type, enabled=False):
        return torch.einsum("hts,bshc->bthc", weight.to(work), past.to(work)).to(x.dtype)


class Writer(nn.Linear): ...  # to the residual stream: starts smaller in deep models


class Mixer(nn.Module):
    def __init__(self, m: Record, slot: int) -> None:
        super().__init__()
        self.m, self.slot = m, slot
        self.heads = m.heads or (4 if m.arch == "linear" else 1)
        wide = m.dim * (3 if m.arch in ("hyena", "linear") else 1)
        self.project_in: nn.Module = nn.Linear(m.dim, wide, bias=m.arch != "linear")
        self.project_out: nn.Module = Writer(m.dim, m.dim)
        if m.heads == 0 and m.arch in ("toeplitz", "masked"):
            self.project_in, self.project_out = nn.Identity(), nn.Identity()


class Filter(nn.Module):
    """`kernel` (h, k, n) and `bias` (h, n), of k neighbouring channels. Frozen ones are buffers."""

    def __init__(self, m: Record, slot: int) -> None:
        super().__init__()
        self.slot, heads, hold = slot, m.heads or 1, nn.Parameter if m.frozen == "no" else nn.Buffer
        self.kernel = hold(torch.empty(heads, m.kernels, m.context))
        self.bias = hold(torch.empty(heads, m.context))

    def reset(self, m: Record) -> None:
        heads, kernels, context = self.kernel.shape
        kind = {"no": m.filter_init, "random": "kaiming", "ones": "ones"}[m.frozen]
        init.zeros_(self.bias)
        if kind == "decay":
            reach = 2.0 ** torch.linspace(*((1, 1) if heads == 1 else (-1, 4)), heads)
            curve = F.normalize(torch.exp(-torch.arange(context) / reach[:, None]))
            init.copy_(self.kernel, F.pad(curve[:, None], (0, 0, kernels - 1, 0)))
        else:
            init.normal_(self.kernel, *((1, 0) if kind == "ones" else (0, math.sqrt(2 / context))))

    def forward(self, x: Tensor, rows: Rows, cache: Cache | None) -> Tensor:
        (heads, kernels, _), channels = self.kernel.shape, x.shape[-1]
        x = F.pad(rows.blank(x), (kernels - 1, 0))
        x = torch.stack([x[..., i : i + channels] for i in range(kernels)], 3).flatten(2, 3)
        y = filtered(x, self.kernel.flatten(0, 1), rows, cache, self.slot)
        return y.unflatten(2, (heads, kernels)).sum(3) + rows.biases(self.bias).to(y.dtype)


class Toeplitz(Mixer):
    def __init__(self, m: Record, slot: int) -> None:
        super().__init__(m, slot)
        self.gate = nn.Linear(m.dim, m.dim) if m.gate else None
        self.filters = nn.ModuleList(Filter(m, slot + i) for i in range(m.sequential))
        self.between = nn.Sequential(PARTS[m.activation](), nn.Dropout(m.dropout))

    def forward(self, x: Tensor, rows: Rows, cache: Cache | None) -> Tensor:
        y = self.project_in(x).unflatten(-1, (self.heads, -1))
        for index, layer in enumerate(self.filters):
            y = layer(self.between(y) if index else y, rows, cache)
        y = y.flatten(2)
        return self.project_out(y if self.gate is None else y * self.gate(x))


class Masked(Mixer):
    def __init__(self, m: Record, slot: int) -> None:
        super().__init__(m, slot)
        self.weight = nn.Parameter(torch.empty(self.heads, m.context, m.context))
        self.bias = nn.Parameter(torch.empty(self.heads, m.context))

    def reset(self, m: Record) -> None:
        time, bound = torch.arange(m.context), m.context**-0.5 if m.init == "paper" else 0.0
        start = torch.empty(self.weight.shape).uniform_(-bound, bound)
        if m.init == "scaled":
            start.normal_(std=0.02).add_(torch.exp(-(time[:, None] - time).clamp(min=0) / 4))
        init.copy_(self.weight, start.tril())
        init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor, rows: Rows, cache: Cache | None) -> Tensor:
        new = rows.blank(self.project_in(x).unflatten(-1, (self.heads, -1)))
        past = new if cache is None else remember(new, cache, self.slot)
        source = torch.arange(past.shape[1], device=x.device)[None]
        if rows.counted is not None:  # slots to come hold zeros, and may have any position
            source = F.pad(rows.counted, (0, past.shape[1] - rows.counted.shape[1]))
        own, last = rows.own[..., None], self.m.context - 1
        row = own.clamp(max=last)
        column = source[:, None] - (own - row)
        weight = self.weight[:, row, column.clamp(0, last)]  # h, b or 1, t, s
        weight = weight.masked_fill((column < 0) | (column > row), 0).expand(-1, len(x), -1, -1)
        y = torch.einsum("hbts,bshc->bthc", weight, past)
        return self.project_out((y + rows.biases(self.bias)).flatten(2))


class ImplicitFilter(nn.Module):
    """Filters (d, n): a network of sines of the position, falling to 1% in 1.5 to 0.3 of the context."""

    def __init__(self, m: Record) -> None:
        super().__init__()
        wide: Any = {"dtype": torch.promote_types(torch.get_default_dtype(), torch.float32)}
        self.waves = nn.Parameter(torch.empty(m.context, m.filter_features, **wide))
        self.time, self.decay = (nn.Buffer(torch.empty(n, **wide)) for n in (m.context, m.dim))
        sizes = ("0", m.filter_features), ("2", m.filter_hidden), ("4", m.filter_hidden)
        self.network: Any = nn.ModuleDict(
            {i: nn.Linear(n, m.filter_hidden, **wide) for i, n in sizes}
        )
        self.network["6"] = nn.Linear(m.filter_hidden, m.dim, bias=False, **wide)
        self.network["1"] = nn.ParameterDict({"frequency": torch.empty(m.filter_hidden, **wide)})

    def reset(self, m: Record) -> None:
        bands, time = (m.filter_features - 1) // 2, torch.linspace(0, 1, m.context)
        wave = 2 * math.pi * torch.arange(m.context) / m.context
        angle = wave[:, None] * torch.linspace(1e-4, max(bands - 1, 1e-4), bands)
        init.copy_(self.waves, torch.cat([time[:, None], angle.cos(), -angle.sin()], 1))
        init.copy_(self.time, time)
        init.copy_(self.decay, math.log(100) * torch.linspace(1 / 1.5, 1 / 0.3, m.dim))
        for name in ("0", "2", "4", "6"):
            self.network[name].reset_parameters()

    def forward(self, taps: int) -> Tensor:
        with torch.autocast(self.decay.device.type, enabled=False):
            x = self.waves[:taps]
            for name in ("0", "2", "4"):
                x = torch.sin(self.network["1"]["frequency"] * self.network[name](x))
            return self.network["6"](x).t() * torch.exp(-self.decay[:, None] * self.time[:taps])

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "ImplicitFilter":
        """Never below float32: sines of large angles lose half precision."""
        wide = lambda x: new if (new := fn(x)).dtype.itemsize >= 4 else x.to(new.device)  # noqa: E731
        return super()._apply(wide, recurse)


class Hyena(Mixer):
    def __init__(self, m: Record, slot: int) -> None:
        super().__init__(m, slot)
        self.short: Any = nn.Conv1d(3 * m.dim, 3 * m.dim, 3, groups=3 * m.dim)
        self.filter = ImplicitFilter(m)
        self.skip = nn.Parameter(torch.empty(m.dim))

    def forward(self, x: Tensor, rows: Rows, cache: Cache | None) -> Tensor:
        wide = rows.blank(self.project_in(x))
        memory: dict[int, Tensor] = {}
        if cache is None:
            wide = self.short(F.pad(wide, (0, 0, 2, 0)).mT).mT
        else:  # the same as a filter, which remembers
            kernel, bias = self.short.weight[:, 0].flip(-1), self.short.bias
            wide = filtered(wide[..., None], kernel, rows, cache, self.slot)[..., 0] + bias
            memory = {} if torch.is_grad_enabled() else vars(cache).setdefault("kernels", {})
        if self.slot not in memory:  # long filters are made once for a cache, if nothing is trained
            memory[self.slot] = self.filter(x.shape[1] if cache is None else self.m.context)
        gate, other, value = wide.chunk(3, -1)
        value = rows.blank(other * value)  # the short convolution has a bias, at padding too
        long = filtered(value[..., None], memory[self.slot], rows, cache, self.slot + 1)[..., 0]
        return self.project_out(gate * (long + self.skip * value))


def sums(q: Tensor, k: Tensor, v: Tensor, chunk: int = 64) -> Tensor:
    """`y[t] = q[t] sum over s <= t of k[s]^T v[s]`, within chunks and before them."""
    time = q.shape[2]
    q, k, v = (F.pad(x, (0, 0, 0, -time % chunk)).unflatten(2, (-1, chunk)) for x in (q, k, v))
    before = F.pad((k.mT @ v).cumsum(2), (0, 0, 0, 0, 1, -1))
    return ((q @ k.mT).tril() @ v + q @ before).flatten(2, 3)[:, :, :time]


class Linear(Mixer):
    def forward(self, x: Tensor, rows: Rows, cache: Any) -> Tensor:
        parts = self.project_in(x).unflatten(-1, (3, self.heads, -1))
        with torch.autocast(x.device.type, enabled=False):  # long sums need the full precision
            q, k, v = parts.to(torch.promote_types(x.dtype, torch.float32)).unbind(2)
            if self.m.feature_map == "elu":
                least, q, k = 1e-6, F.elu(q) + 1, F.elu(k) + 1
            else:
                least, q, k = 1e-3, q.softmax(-1) * q.shape[-1] ** -0.5, k.exp()
            k, v = rows.blank(k), F.pad(rows.blank(v), (0, 1), value=1.0)  # 0 times NaN is NaN
            q, k, v = (p.transpose(1, 2) for p in (q, k, v))
            if hasattr(cache, "attended"):  # a near-linear cache
                y = cache.attended(q, k, v, self.slot)
            else:
                keys, values = (k, v) if cache is None else cache.update(k, v, self.slot)
                late = torch.arange(keys.shape[2], device=x.device) > rows.slots[:, None]
                y = sums(q, k, v) if rows.first else (q @ keys.mT).masked_fill(late, 0) @ values
            y = y[..., :-1] / y[..., -1:].clamp(min=least)
        return self.project_out(y.transpose(1, 2).flatten(2).to(x.dtype))


MIXERS = {"toeplitz": Toeplitz, "masked": Masked, "hyena": Hyena, "linear": Linear}


class Block(GradientCheckpointingLayer):
    def __init__(self, m: Record, slot: int) -> None:
        super().__init__()
        self.m, self.token_mixer = m, MIXERS[m.arch](m, slot)
        self.token_norm, self.channel_norm = PARTS[m.norm](m.dim), PARTS[m.norm](m.dim)
        act, drop, wide = PARTS[m.activation](), nn.Dropout(m.dropout), m.mlp_ratio * m.dim
        self.channel_mixer = nn.Sequential(nn.Linear(m.dim, wide), act, drop, Writer(wide, m.dim))

    def forward(self, x: Tensor, rows: Rows, past_key_values: Cache | None = None) -> Tensor:
        if self.m.block_order == "mlp_first":
            x = x + self.channel_mixer(self.channel_norm(x))
        x = x + self.token_mixer(self.token_norm(x), rows, past_key_values)
        return (
            x + self.channel_mixer(self.channel_norm(x))
            if self.m.block_order == "mixer_first"
            else x
        )


class ToeplixForCausalLM(PreTrainedModel, GenerationMixin):
    config: ToeplixConfig
    supports_gradient_checkpointing = True
    _no_split_modules = ["Block"]  # noqa: RUF012
    _tied_weights_keys = {"head.weight": "embedding.weight"}  # noqa: RUF012
    _input_embed_layer = "embedding"
    create_masks_for_generate = staticmethod(lambda attention_mask, **_: attention_mask)  # (b, t)

    def __init__(self, config: ToeplixConfig) -> None:
        super().__init__(config)
        m, each = Record(**config.model), len(config.per_layer_config) // config.num_hidden_layers
        self.embedding = nn.Embedding(m.vocab, m.dim)
        self.blocks = nn.ModuleList(Block(m, i * each) for i in range(m.depth))
        self.norm = PARTS[m.norm](m.dim) if m.final_norm else nn.Identity()
        self.head: Any = nn.Linear(m.dim, m.vocab, bias=False)
        if m.tie_embeddings:
            self.head.weight = self.embedding.weight
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """As `toeplix.model.reset`, by functions that leave alone what has been loaded."""
        m, scaled = Record(**self.config.model), self.config.model["init"] == "scaled"
        ours = scaled and m.arch != "hyena"
        if isinstance(module, Filter | Masked | ImplicitFilter):
            module.reset(m)
        elif isinstance(module, Hyena):
            init.normal_(module.skip)
        elif isinstance(module, nn.ParameterDict):
            init.constant_(module["frequency"], m.filter_frequency)
        elif isinstance(module, nn.Embedding) or (scaled and module is self.head):
            init.normal_(module.weight, std=0.02 if ours or module is self.head else 1.0)
        elif isinstance(module, nn.Linear) and (ours or m.arch == "toeplitz"):
            gain = 1 / (2 * m.depth) if isinstance(module, Writer) else 1
            init.normal_(module.weight, std=math.sqrt((gain if scaled else 2) / module.in_features))
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Linear | nn.Conv1d | nn.LayerNorm | nn.RMSNorm):
            module.reset_parameters()

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
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Logits, with `labels` the loss. The mask (b, t) marks real tokens, the past included."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give input_ids or inputs_embeds, one of them")
        x: Any = self.embedding(input_ids) if inputs_embeds is None else inputs_embeds
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        rows, seen = Rows(x, attention_mask, position_ids, past), []
        shown = kwargs.pop("output_hidden_states", None) or self.config.output_hidden_states
        for block in self.blocks:
            seen += [x] if shown else []
            x = block(x, rows, past_key_values=past_key_values)
        x = self.norm(x)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits, loss = self.head(x[:, kept]), None
        if labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(loss, logits, past_key_values, (*seen, x) if shown else None)

    def get_output_embeddings(self) -> Any:
        return self.head

    def set_output_embeddings(self, new_embeddings: Any) -> None:
        self.head = new_embeddings
