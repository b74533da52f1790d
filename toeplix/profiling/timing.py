"""Measuring time and memory on a noisy machine.

Times are compared within one run, interleaved, and reported as medians and ratios, so that load on the
machine slows all contenders.
"""

import gc
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

Contender = Callable[[], object]
# seconds of a call up to which a contender gets a warmup call in every round
QUICK_CALL_SECONDS = 0.2
QUICK_CALLS_PER_ROUND = 3  # timed calls of a quick contender per round


def interleaved(
    contenders: Mapping[str, Contender], *, seconds: float = 1.0, least: int = 5, most: int = 60
) -> dict[str, list[float]]:
    """Time contenders in rounds; return the seconds of a call, one number per round and contender.

    Each contender runs until it has used about `seconds`. In a round a quick contender makes one warmup
    call and three timed calls, of which the median is taken: otherwise its time would include refilling
    the caches and the memory that the contender before it used, which does not happen in real use. A slow
    contender stops after `least` rounds while the others continue.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    last = {name: seconds_of(call) for name, call in contenders.items()}
    spent = dict.fromkeys(contenders, 0.0)
    running = dict(contenders)
    while running:
        for name, call in list(running.items()):
            quick = last[name] < QUICK_CALL_SECONDS
            if quick:
                call()
            burst = [seconds_of(call) for _ in range(QUICK_CALLS_PER_ROUND if quick else 1)]
            last[name] = statistics.median(burst)
            taken = times[name]
            taken.append(last[name])
            spent[name] += sum(burst)
            if len(taken) >= most or (len(taken) >= least and spent[name] >= seconds):
                del running[name]
    return times


def seconds_of(call: Contender) -> float:
    """Return the wall time of a call, with all that it leaves for the device to do."""
    synchronize()
    start = time.perf_counter()
    call()
    synchronize()
    return time.perf_counter() - start


def median_ratio(times: list[float], reference: list[float]) -> float:
    """Return the median over rounds of the ratio of `times` to `reference` in the same round."""
    return statistics.median(slow / fast for slow, fast in zip(times, reference, strict=False))


def round_ratios(times: list[float], reference: list[float]) -> list[float]:
    """Return the ratio of `times` to `reference` in every round that both have, with five digits."""
    pairs = zip(times, reference, strict=False)
    return [float(f"{slow / fast:.5g}") for slow, fast in pairs]


class Limits(NamedTuple):
    """Measured peak throughput of the machine: float32 matmul and memory copy."""

    sgemm_gflops: float
    copy_gbytes: float


def machine_limits(device: str | None = None, size: int = 1536) -> Limits:
    """Measure float32 matmul, and copying memory that does not fit into a cache; the best of several."""
    made: dict[str, Any] = {"device": device, "dtype": torch.float32}
    a, b = (torch.randn(size, size, **made) for _ in range(2))
    source = torch.randn(2**25, **made)
    target = torch.empty_like(source)
    times = interleaved({"gemm": lambda: a @ b, "copy": lambda: target.copy_(source)}, seconds=0.5)
    return Limits(
        sgemm_gflops=2 * size**3 / min(times["gemm"]) / 1e9,
        copy_gbytes=2 * source.nbytes / min(times["copy"]) / 1e9,
    )


class Cost(NamedTuple):
    """What one call took, in a process of its own."""

    seconds: float
    cpu_seconds: float  # of all threads: comparable on a machine that does other work too
    peak_bytes: int | None  # beyond the memory in use before; None where it is not counted


def cost_apart(function: Callable[..., Contender], *arguments: Any) -> Cost:
    """Return the cost of one call in a new process; arguments are those of `peak_extra_bytes`.

    The default device and dtype of this process are those of the new one.
    """
    context = multiprocessing.get_context("spawn")
    defaults = torch.get_default_dtype(), torch.get_default_device()
    with context.Pool(1) as pool:
        return pool.apply(_cost, (function, arguments, *defaults))


def peak_extra_bytes(function: Callable[..., Contender], *arguments: Any) -> int | None:
    """Return the peak memory of a call beyond the memory in use before it, measured in a new process.

    `function(*arguments)` prepares the inputs and returns the callable that is measured, so that inputs
    are not counted. On CUDA it is what PyTorch's allocator counts, in this process. The result is None on
    systems other than Linux, and on other devices.
    """
    device = torch.get_default_device().type
    if device == "cuda":
        return _peak_on_cuda(function(*arguments))
    if device != "cpu" or not sys.platform.startswith("linux"):
        return None
    return cost_apart(function, *arguments).peak_bytes


def _peak_on_cuda(call: Contender) -> int:
    synchronize()
    before = _reset_peak("cuda") or 0
    kept = call()
    synchronize()
    peak = _peak("cuda")
    del kept
    return max(0, peak - before)


def _cost(
    function: Callable[..., Contender],
    arguments: tuple[Any, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> Cost:
    torch.set_default_dtype(dtype)
    if device.type != "cpu":  # the default takes time in every call
        torch.set_default_device(device)
    call = function(*arguments)
    gc.collect()
    synchronize()
    before = _reset_peak(device.type)
    cpu, start = time.process_time(), time.perf_counter()
    kept = call()
    synchronize()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    peak = None if before is None else max(0, _peak(device.type) - before)
    del kept
    return Cost(seconds, cpu_seconds, peak)


def _reset_peak(kind: str) -> int | None:
    """Reset the high-water mark of memory, and return the bytes in use; None where none are counted."""
    if kind == "cuda":
        device = torch.get_default_device()
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    if kind != "cpu" or not sys.platform.startswith("linux"):
        return None
    with open("/proc/self/clear_refs", "w") as control:
        control.write("5")  # of resident memory
    return _status("VmRSS")


def _peak(kind: str) -> int:
    if kind == "cuda":
        return torch.cuda.max_memory_allocated(torch.get_default_device())
    return _status("VmHWM")


def _status(field: str) -> int:
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def synchronize() -> None:
    """Wait until the default device, or else the current accelerator, has done all its work."""
    if torch.accelerator.is_available():
        device = torch.get_default_device()
        torch.accelerator.synchronize(None if device.type == "cpu" else device)


def describe_machine(device: torch.device | None = None) -> dict[str, object]:
    """Return device, threads, PyTorch version and CPU capability, to be stored with measurements.

    None: the device that tensors are made on by default.
    """
    device = device or torch.get_default_device()
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def randn(*shape: int, seed: int = 0) -> Tensor:
    """Return noise that depends on the seed only, on the default device and in the default dtype."""
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(*shape, generator=generator, device="cpu", dtype=torch.float32)
    return made.to(torch.get_default_device(), torch.get_default_dtype())
