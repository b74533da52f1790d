"""Decoding states that stay where they are: a captured decode step reads what the step before it wrote.

A CUDA graph replays operators on fixed addresses. A state that is a new tensor after every step would be
read where the captured step found it, and so never move on.
"""

import torch
from torch import Tensor


def writable(kept: Tensor) -> bool:
    """Whether `kept` may be changed in place: nothing is recorded, and its mode is not over.

    PyTorch rejects changes to a tensor of inference mode outside of it.
    """
    if torch.is_grad_enabled():
        return False
    return torch.is_inference_mode_enabled() or not kept.is_inference()


def replaced(kept: Tensor | None, new: Tensor) -> Tensor:
    """Return `new` in the memory of `kept`, or a copy if that has another form or is not writable.

    It is never a view: a state that is the end of a prompt would keep all of the prompt in memory.
    """
    if kept is None or (kept.shape, kept.dtype, kept.device) != (new.shape, new.dtype, new.device):
        return new.clone()
    return kept.copy_(new) if writable(kept) else new.clone()
