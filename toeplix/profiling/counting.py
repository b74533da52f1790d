"""The cost of a model by formula: parameters, FLOPs of a forward pass, memory of activations.

Figures and `toeplix plan` use these formulas; tests compare them with counts on built models. A
multiply-add is two FLOPs. Norms, activation functions and additions are left out; they are a few per
cent. A count is a function of the model alone and does not depend on settings of the machine or the
user.
"""

import math
import weakref
from dataclasses import replace

import torch

from toeplix.config import Model
from toeplix.ops import blocked, fft

MAMBA_HEADS, MAMBA_CONVOLUTION = 8, 4
# The longest sequence whose product is counted as tiles and not as transforms, for few columns and for
# many. This is a convention, independent of the rule that selects paths (ops/dispatch.py): that rule is
# measured on every machine, while "equal compute" must mean the same widths on all of them.
FEW_COLUMNS, TILES_FOR_FEW, TILES_FOR_MANY = 16, 128, 384


def parameters(config: Model) -> int:
    """Return the number of parameters, including frozen filters."""
    d, v = config.dim, config.vocab
    norm = {"layer": 2 * d, "rms": d}[config.norm]
    head = 0 if config.tie_embeddings else d * v
    if config.arch in ("llama", "window"):
        block = 4 * d * d + 3 * config.mlp_ratio * d * d + 2 * d
        return d * v + config.depth * block + d + head
    if config.arch == "mamba2":
        wide = 2 * d + 2 * MAMBA_HEADS * config.state_size  # channels of the short convolution
        block = d * (2 * d + wide + MAMBA_HEADS) + wide * (MAMBA_CONVOLUTION + 1)
        block += 3 * MAMBA_HEADS + 2 * d + 2 * d * d + d
        return d * v + config.depth * block + d + head + v
    channel = 2 * config.mlp_ratio * d * d + (config.mlp_ratio + 1) * d
    block = _mixer_parameters(config) + channel + 2 * norm
    return d * v + config.depth * block + (norm if config.final_norm else 0) + head


def _mixer_parameters(config: Model) -> int:
    d, n, heads = config.dim, config.context, config.heads or 1
    projections = 2 * (d * d + d) if config.heads else 0
    if config.arch == "toeplitz":
        filters = config.sequential * heads * (config.kernels + 1) * n
        return projections + filters + (d * d + d if config.gate else 0)
    if config.arch == "masked":
        return projections + heads * (n * n + n)
    if config.arch == "linear":
        return 4 * d * d + d
    width, features = config.filter_hidden, config.filter_features
    network = (features + 1) * width + 2 * (width + 1) * width + width * d + width
    short = 3 * d * 4
    return 3 * (d * d + d) + short + d * d + d + d + n * features + network


def forward_flops(config: Model, time: int) -> float:
    """Return the FLOPs of a forward pass for one sequence of `time` positions, as implemented here.

    Of attention only the lower triangle is counted, as its kernels skip the rest.
    """
    d, t = config.dim, time
    head = 2.0 * t * d * config.vocab
    if config.arch in ("llama", "window"):
        seen = t * (t + 1) / 2
        if config.arch == "window" and t > config.window:
            seen -= (t - config.window) * (t - config.window + 1) / 2
        matrices = 2.0 * t * (4 + 3 * config.mlp_ratio) * d * d
        return config.depth * (matrices + 4.0 * d * seen) + head
    if config.arch == "mamba2":
        wide = 2 * d + 2 * MAMBA_HEADS * config.state_size
        matrices = 2.0 * t * (d * (2 * d + wide + MAMBA_HEADS) + 2 * d * d)
        short = 2.0 * t * wide * MAMBA_CONVOLUTION
        recurrence = 6.0 * t * 2 * d * config.state_size  # decay, write and read of every state
        return config.depth * (matrices + short + recurrence) + head
    channel = 4.0 * t * config.mlp_ratio * d * d
    return config.depth * (_mixer_flops(config, t) + channel) + head


def _mixer_flops(config: Model, t: int) -> float:
    d, heads = config.dim, config.heads or 1
    projections = 4.0 * t * d * d if config.heads else 0.0
    if config.arch == "toeplitz":
        each = product_flops(t, heads * config.kernels, d // heads)
        return projections + config.sequential * each + (2.0 * t * d * d if config.gate else 0.0)
    if config.arch == "masked":
        return projections + 2.0 * t * t * d
    if config.arch == "linear":
        heads = config.attention_heads
        size = d // heads
        return 8.0 * t * d * d + heads * 2.0 * t * size * (size + 1) * 2
    width = config.filter_hidden
    network = 2.0 * t * (config.filter_features * width + 2 * width * width + width * d)
    return 8.0 * t * d * d + 2.0 * t * 3 * d * 3 + network + product_flops(t, d, 1)


def product_flops(time: int, heads: int, channels: int, batch: int = 1) -> float:
    """Return the FLOPs of a causal Toeplitz product: matmul tiles if it is short, FFTs if it is long."""
    columns = heads * channels * batch
    if time > (TILES_FOR_FEW if batch * channels <= FEW_COLUMNS else TILES_FOR_MANY):
        length = fft.good_length(2 * time - 1)
        lanes = columns / 2 if channels % 2 == 0 else columns
        transforms = 2 * 5.0 * length * math.log2(length) * (1 if channels % 2 == 0 else 0.5)
        return lanes * (transforms + 6.0 * length)
    return (
        2.0
        * columns
        * sum(
            (last - first) * last
            for first, last in blocked.block_rows(time, blocked.tile_size(time))
        )
    )


def activation_bytes(config: Model, batch: int, time: int) -> int:
    """Return the bytes of activations that `encode` keeps for the backward pass, in float32.

    For Toeplitz models this is a formula. In units of `batch time dim` numbers a block keeps the inputs
    of both norms and both sublayers (4), the hidden layer before and after its activation function (2
    mlp_ratio), with heads the inputs of the filters and of the output projection (2), and with a gate
    both factors (2); frozen filters keep nothing, and RMSNorm also keeps its result. For other
    architectures the bytes are counted on small models and extrapolated, linearly in depth and batch
    size (from 2 on: a single sequence needs fewer copies and is slightly overestimated).
    """
    plain = config.sequential == config.kernels == 1 and not config.dropout
    if config.arch == "toeplitz" and plain:
        wide = 4 + 2 * config.mlp_ratio + (2 if config.heads else 0) + (2 if config.gate else 0)
        wide -= config.frozen != "no" and (config.heads > 0 or not config.gate)
        norm = {"layer": 2, "rms": 1 + config.dim}[config.norm]  # in addition to its input
        numbers = config.depth * (wide * config.dim + 2 * norm)
        numbers += (config.dim + norm) if config.final_norm else 0
        return batch * time * (4 * numbers + 8)  # and the tokens
    (few, few_deeper), (more, more_deeper) = (
        [count_saved_bytes(replace(config, depth=depth), rows, time) for depth in (1, 2)]
        for rows in (2, 3)
    )
    deeper, rows = config.depth - 1, batch - 2
    cross = more_deeper - more - few_deeper + few
    return few + deeper * (few_deeper - few) + rows * (more - few) + deeper * rows * cross


def count_saved_bytes(config: Model, batch: int, time: int) -> int:
    """Run `encode` and return the bytes that autograd keeps, without parameters and buffers."""
    from toeplix.architectures import build

    model = build(config)
    own = {value.untyped_storage().data_ptr() for value in model.state_dict().values()}
    kept: list[weakref.ref[torch.Tensor]] = []

    def keep(value: torch.Tensor) -> torch.Tensor:
        kept.append(weakref.ref(value))
        return value

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        features = model.encode(torch.zeros(batch, time, dtype=torch.long))
    # tensors that the backward pass does not need are freed by now
    alive = [value for reference in kept if (value := reference()) is not None]
    storages = {value.untyped_storage().data_ptr(): value.untyped_storage() for value in alive}
    del features
    return sum(each.nbytes() for address, each in storages.items() if address not in own)
