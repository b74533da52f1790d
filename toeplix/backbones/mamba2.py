"""Mamba 2's mixer on a CPU: Hugging Face's weights and equations, laid out for matrix products.

    (z, u, dt) = W_in x                                     gate, convolved channels, a step per head
    (v, B, C) = silu(short_convolution(u))                  per head v: [p], B and C: [n]
    S[t] = exp(A dt[t]) S[t-1] + dt[t] B[t] v[t]^T          [n, p]
    y[t] = C[t]^T S[t] + D v[t]
    W_out norm(y silu(z))

In a chunk of positions y is a triangular matrix of scores times v; states pass from chunk to chunk.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad, silu, softplus
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

from toeplix.mixers.short_convolution import short_convolution

CPU_CHUNK = 32  # positions; training steps take 4 to 20% more time with 64
KERNEL_CHUNK = 256  # Hugging Face's default, for which the kernels are made


class CpuMixer(Mamba2Mixer):
    """Hugging Face's mixer, with a faster scan of whole rows on a CPU in float32.

    A head is its own group. Everything else (a cache, a mask, other devices and dtypes) is left to
    Hugging Face, which has kernels for CUDA.
    """

    @property
    def chunk_size(self) -> int:  # type: ignore[override]  # nothing assigns it here
        """The positions of a chunk, which change the speed and not the result."""
        return CPU_CHUNK if self.A_log.device.type == "cpu" else KERNEL_CHUNK

    def forward(
        self, hidden_states: Float[Tensor, "b t d"], **other: Any
    ) -> Float[Tensor, "b t d"]:
        kind, dtype = hidden_states.device.type, hidden_states.dtype
        asked = any(value is not None for value in other.values())
        if asked or kind != "cpu" or dtype != torch.float32 or torch.is_autocast_enabled(kind):
            return super().forward(hidden_states, **other)
        heads, states = self.num_heads, self.num_heads * self.ssm_state_size
        z, u, dt = self.in_proj(hidden_states).split(
            [self.intermediate_size, self.conv_dim, heads], -1
        )
        padded = pad(u, (0, 0, self.conv_kernel_size - 1, 0))
        mixed = silu(short_convolution(padded, self.conv1d.weight, self.conv1d.bias))
        v, keys, queries = (
            part.unflatten(-1, (heads, -1))
            for part in mixed.split([self.intermediate_size, states, states], -1)
        )
        dt = softplus(dt + self.dt_bias).clamp(*self.time_step_limit)
        decay = dt * -self.A_log.exp()
        y = scan(dt[..., None] * v, decay, keys, queries, min(self.chunk_size, len(v[0])))
        y = (y + self.D[:, None] * v).flatten(2)
        return self.out_proj(self.norm(y, z))


def scan(
    v: Float[Tensor, "b t h p"],
    decay: Float[Tensor, "b t h"],
    keys: Float[Tensor, "b t h n"],
    queries: Float[Tensor, "b t h n"],
    chunk: int,
) -> Float[Tensor, "b t h p"]:
    """Return `y[t] = queries[t]^T S[t]` of `S[t] = exp(decay[t]) S[t-1] + keys[t] v[t]^T`."""
    time = v.shape[1]
    v, decay, keys, queries = (
        _chunks(each, chunk) for each in (v, decay[..., None], keys, queries)
    )  # [b, h, chunks, chunk, _]
    total = decay[..., 0].cumsum(-1)  # log of the decay from the chunk's begin
    scores = queries @ keys.transpose(-1, -2) * _decays(total, total)
    y = scores @ v
    if v.shape[2] > 1:
        rest = (total[..., -1:] - total).exp()  # what is left at the chunk's end
        written = (keys * rest[..., None]).transpose(-1, -2) @ v  # [b, h, chunks, n, p]
        ends = total[..., -1].cumsum(-1)
        before = pad(ends, (1, 0))[..., :-1]
        passed = _decays(before, ends, diagonal=-1) @ written.flatten(-2)
        y = y + (queries * total.exp()[..., None]) @ passed.unflatten(-1, written.shape[-2:])
    return y.permute(0, 2, 3, 1, 4).flatten(1, 2)[:, :time]


def _chunks(x: Float[Tensor, "b t h _"], chunk: int) -> Float[Tensor, "b h chunks chunk _"]:
    x = pad(x, (0, 0, 0, 0, 0, -x.shape[1] % chunk))
    return x.unflatten(1, (-1, chunk)).permute(0, 3, 1, 2, 4)


def _decays(
    here: Float[Tensor, "*batch t"], there: Float[Tensor, "*batch t"], diagonal: int = 0
) -> Float[Tensor, "*batch t t"]:
    """Return exp(here[i] - there[j]) for positions j up to i, and zeros."""
    later = torch.ones(here.shape[-1], there.shape[-1], dtype=torch.bool, device=here.device)
    difference = here[..., :, None] - there[..., None, :]
    return difference.masked_fill(later.tril(diagonal).logical_not(), -torch.inf).exp()
