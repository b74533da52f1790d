"""The cross-entropy loss over a vocabulary, without materialising all logits.

    loss = sum over rows of  logsumexp(W f) - (W f)[label]

Rows pass through the output layer in chunks, and gradients are computed together with each chunk:

    e = exp(W f - max),  s = sum e
    df = (W^T e) / s - W[label]          dW += e^T (f / s),  dW[label] -= f

so logits are held for one chunk at a time, and nothing is computed twice. Rows without a label are left
out. The host counts them, so labels may stay on the CPU: then it does not wait for an accelerator.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from toeplix.config import IGNORED
from toeplix.ops.paths import full_precision

CHUNK_LOGITS = 2**22  # logits per chunk: 16 MiB in float32


def vocabulary_loss(
    features: Float[Tensor, "*n d"], head: nn.Linear, labels: Int[Tensor, "*n"]
) -> tuple[Float[Tensor, ""], int]:
    """Return the sum of the cross-entropies of all scored labels, in nats, and their number.

    Logits have the dtype of the features (under autocast, the autocast dtype), sums are in float32.
    """
    features, labels = features.flatten(0, -2), labels.flatten().cpu()
    device = features.device
    scored = (labels != IGNORED).nonzero()[:, 0]
    number = len(scored)
    if number < len(labels):
        labels = labels[scored]
        features = features.index_select(0, scored.to(device, non_blocking=True))
    if number and not 0 <= int(labels.min()) <= int(labels.max()) < head.out_features:
        raise ValueError(
            f"labels {int(labels.min())} .. {int(labels.max())} do not fit "
            f"a vocabulary of {head.out_features}"
        )
    kind = device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        features = features.to(torch.get_autocast_dtype(kind))
    labels = labels.to(device, non_blocking=True)
    with full_precision(device):
        return _Loss.apply(features, head.weight, head.bias, labels), number


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor
    ) -> Tensor:
        wanted = ctx.needs_input_grad
        summing = torch.promote_types(features.dtype, torch.float32)
        used = weight.to(features.dtype)
        loss = torch.zeros((), dtype=summing, device=features.device)
        d_features = torch.empty_like(features) if wanted[0] else None
        d_weight = torch.zeros_like(weight, dtype=summing) if wanted[1] else None
        d_bias = torch.zeros_like(bias, dtype=summing) if bias is not None and wanted[2] else None
        rows = max(1, CHUNK_LOGITS // weight.shape[0])
        for first in range(0, len(labels), rows):
            part, label = features[first : first + rows], labels[first : first + rows]
            logits = torch.nn.functional.linear(part, used).to(summing)
            if bias is not None:
                logits += bias
            right = logits.gather(1, label[:, None])
            largest = logits.amax(1, keepdim=True)
            e = logits.sub_(largest).exp_()
            total = e.sum(1, keepdim=True)
            loss += (total.log() + largest - right).sum()
            scaled = (part / total).to(summing)
            if d_weight is not None:
                if d_weight.dtype == features.dtype:
                    d_weight.addmm_(e.t(), scaled)
                else:
                    d_weight += e.to(features.dtype).t() @ scaled.to(features.dtype)
                d_weight.index_add_(0, label, -part.to(summing))
            if d_bias is not None:
                d_bias += (e / total).sum(0)
                d_bias.index_add_(0, label, -torch.ones_like(total[:, 0]))
            if d_features is not None:
                back = (e.to(features.dtype) @ used).to(summing) / total
                d_features[first : first + rows] = back - used[label]
        ctx.gradients = (d_features, d_weight, d_bias)
        ctx.dtypes = (features.dtype, weight.dtype, None if bias is None else bias.dtype)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        given = zip(ctx.gradients, ctx.dtypes, strict=True)
        scaled = (None if value is None else (value * g).to(kind) for value, kind in given)
        return (*scaled, None)
