"""Where a model runs, and in which precision: names that a user gives, checked before work starts.

choose_device("auto")                the first of cuda and mps that is there, else cpu
choose_dtype("bfloat16", device)     None for "auto": as weights are stored
named_device("cuda:1")               the same without a look at the hardware, which may be elsewhere
named_dtype("bfloat16")
"""

import torch

AUTO = "auto"
DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


def choose_device(name: str = AUTO) -> torch.device:
    """Return the device of this name; raise ValueError if there is no such device here."""
    device = named_device(name)
    if device is None:
        return torch.device(_automatic())
    if device.type == "cpu":
        return device
    count = _count(device.type)
    if count == 0:
        raise ValueError(
            f"device {name!r} is not there: leave it out, or choose cpu (torch {torch.__version__})"
        )
    if device.index is not None and device.index >= count:
        raise ValueError(f"device {name!r} is not there: there are {count}, numbered from 0")
    return device


def named_device(name: str) -> torch.device | None:
    """Return the device of this name, None for `auto`; raise ValueError if PyTorch knows no such name."""
    if name == AUTO:
        return None
    try:
        device = torch.device(name)
    except RuntimeError as problem:
        known = "auto, cpu, cuda, cuda:1, mps, ..."
        raise ValueError(f"device {name!r:.40} is unknown: {known}") from problem
    if device.type == "meta":
        raise ValueError("device 'meta' computes no values: choose cpu, cuda or mps")
    return torch.device("cpu") if device.type == "cpu" else device  # CPUs have no numbers


def choose_dtype(name: str, device: torch.device) -> torch.dtype | None:
    """Return the dtype of this name, None for `auto`; raise ValueError if the device has no such type."""
    dtype = named_dtype(name)
    if dtype is None:
        return None
    try:
        torch.ones((), dtype=dtype, device=device)
    except (RuntimeError, TypeError) as problem:
        raise ValueError(
            f"dtype {name!r} is not supported on {device}: choose float32"
        ) from problem
    return dtype


def named_dtype(name: str) -> torch.dtype | None:
    """Return the dtype of this name, None for `auto`; raise ValueError for any other name."""
    if name == AUTO:
        return None
    if name not in DTYPES:
        raise ValueError(f"dtype {name!r:.40} is unknown: auto, {', '.join(DTYPES)}")
    return DTYPES[name]


def automatic_notice(device: torch.device, option: str) -> str:
    """Return in one line which device was chosen automatically; `option` is what names another."""
    found = "no CUDA or MPS device was found" if device.type == "cpu" else f"{option} auto"
    return f"using {described(device)}: {found}"


def described(device: torch.device) -> str:
    """Return the device, with the name of the hardware if PyTorch tells it."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return str(device)


def _automatic() -> str:
    for kind in ("cuda", "mps"):
        if _count(kind):
            return kind
    return "cpu"


def _count(kind: str) -> int:
    """Return how many devices of this type PyTorch can use."""
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    module = getattr(torch, kind, None)
    if module is None or not hasattr(module, "device_count") or not module.is_available():
        return 0
    return int(module.device_count())
