"""What a model costs, by formula: parameters, operations of a forward pass, memory for backward.

The formulas are those of the figures and of planning; tests hold them to what is counted on built
models. A multiply-add is two operations. Norms, activations and additions are left out; they are a
few per cent. A count is a function of the model alone: no setting of a machine or a user changes it.
"""

import math
import weakref
from dataclasses import replace

import torch

from toeplix.config import Model
from toeplix.ops import blocked, fft

MAMBA_HEADS, MAMBA_CONVOLUTION = 8, 4
# The longest sequence whose product is counted as tiles and not as transforms, for few columns and for
# many. A convention, apart from the rule by which paths are chosen (ops/choice.py): that one is measured
# anew on every machine, and "equal compute" must mean the same widths on all of them.
FEW_COLUMNS, TILES_FOR_FEW, TILES_FOR_MANY = 16, 128, 384


def parameters(config: Model) -> int:
    """Numbers that are trained or could be (frozen filters count)."""
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


def stored_numbers(config: Model) -> int:
    """Numbers in a checkpoint: the parameters, and what Hyena keeps of positions and decays."""
    fixed = config.depth * (config.context + config.dim) if config.arch == "hyena" else 0
    return parameters(config) + fixed


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
    """Operations for one sequence of `time` positions, products and transforms as they are done here.

    Attention counts the lower triangle only, as its kernels skip the rest.
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
    """The causal Toeplitz product: tiles of matmuls if it is short, Fourier transforms if it is long."""
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
    """What a model keeps from forward to backward in `encode`, in float32.

    For Toeplitz models by formula. In units of `batch time dim` numbers a block keeps the input of both
    norms and of both sublayers (4), the wide layer before and after its activation (2 expansion), of
    heads what the filters read and what the output projection reads (2), of a gate both factors (2);
    frozen filters keep nothing of their own, RMSNorm keeps its result too. For the others from what
    small ones are counted to keep: linear in the depth and in the batch (from 2 on: a single row
    needs fewer copies, and is a little overrated).
    """
    plain = config.sequential == config.kernels == 1 and not config.dropout
    if config.arch == "toeplitz" and plain:
        wide = 4 + 2 * config.mlp_ratio + (2 if config.heads else 0) + (2 if config.gate else 0)
        wide -= config.frozen != "no" and (config.heads > 0 or not config.gate)
        norm = {"layer": 2, "rms": 1 + config.dim}[config.norm]  # beside its input
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
    """Bytes that autograd keeps when `encode` is run, parameters and buffers left out."""
    from toeplix.architectures import build

    model = build(config)
    own = {value.untyped_storage().data_ptr() for value in model.state_dict().values()}
    kept: list[weakref.ref[torch.Tensor]] = []

    def keep(value: torch.Tensor) -> torch.Tensor:
        kept.append(weakref.ref(value))
        return value

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        features = model.encode(torch.zeros(batch, time, dtype=torch.long))
    # what nothing after it reads is gone by now
    alive = [value for reference in kept if (value := reference()) is not None]
    storages = {value.untyped_storage().data_ptr(): value.untyped_storage() for value in alive}
    del features
    return sum(each.nbytes() for address, each in storages.items() if address not in own)
