"""GPU kernels in Triton, an optional dependency that is imported when a kernel is first used.

    product.py product_kernels.py   the causal Toeplitz product and its gradients: the path "triton"
    recurrent.py chunk_scan.py      the product with recurrent filters and its gradients
    recurrent_step.py               one decode step with recurrent filters
    lookup.py lookup_kernels.py     lookup with recurrent filters and its gradients
    inspection.py                   registers, spills and instructions of kernels compiled for a target

Kernels run on CUDA and ROCm devices, and on CPU tensors in Triton's interpreter, which is slow and for
tests: `TRITON_INTERPRET=1` must be set before Python starts.
"""

import importlib.util
import os
from functools import cache

import torch
from torch import Tensor

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
MIN_CAPABILITY = (8, 0)  # of NVIDIA devices: tensor cores with bfloat16 and TF32
MAX_HEADS = 65535  # of a grid


@cache
def installed() -> bool:
    return importlib.util.find_spec("triton") is not None


@cache
def interpreted() -> bool:
    """Return whether kernels run in Triton's interpreter, on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y")


def supports(x: Tensor) -> bool:
    """Return whether the kernels can compute with sequences like x `(b, t, h, c)` where it is."""
    if x.dtype not in DTYPES or x.shape[2] > MAX_HEADS or not installed():
        return False
    if interpreted():
        return x.device.type == "cpu"
    return x.device.type == "cuda" and _capable(x.device)


@cache
def _capable(device: torch.device) -> bool:
    if not torch.cuda.is_available():  # a fake tensor
        return False
    return bool(torch.version.hip) or torch.cuda.get_device_capability(device) >= MIN_CAPABILITY


def require(x: Tensor) -> None:
    """Raise ValueError unless kernels run where x is."""
    if not installed():
        raise ValueError(
            "path='triton' needs Triton, which is not installed: pip install 'toeplix[gpu]', or "
            "choose another path"
        )
    wanted = "cpu" if interpreted() else "cuda"
    if x.device.type != wanted:
        hint = (
            "TRITON_INTERPRET=1 runs kernels on the CPU only: unset it, or move x to the CPU"
            if interpreted()
            else "choose another path, or set TRITON_INTERPRET=1 before Python starts to run the "
            "kernels in Triton's slow interpreter"
        )
        raise ValueError(f"path='triton' needs a {wanted} device and x is on {x.device}: {hint}")
    if wanted == "cuda" and not _capable(x.device):
        raise ValueError(
            f"path='triton' needs compute capability {'.'.join(map(str, MIN_CAPABILITY))}, and "
            f"{torch.cuda.get_device_name(x.device)} has less: choose another path"
        )
