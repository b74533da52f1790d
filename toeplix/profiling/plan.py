"""The estimated cost of a run: parameters, FLOPs, memory, time, and the path of the operator.

Time is FLOPs divided by the throughput that the hardware reaches, `peak` times `efficiency`. The
efficiency of small models is low: the paper's own throughput on two H100 (9.30 steps per second at width
512, 5.25 at 1024) is 7% and 15% of their peak in bfloat16. On a CPU the peak is the throughput of a
float32 matmul, measured when the plan is made.
"""

from dataclasses import dataclass, replace
from typing import Any

from toeplix.architectures import ARCHITECTURES, forward_flops, parameters, state_bytes
from toeplix.ops import dispatch
from toeplix.profiling import timing
from toeplix.profiling.memory import activation_bytes
from toeplix.training.run import Run

STATE_BYTES = 16  # per parameter: weight, gradient and optimizer state of AdamW, in float32
GATHERED_BYTES = 8  # per parameter of a gathered block under fsdp: weight and gradient


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One device."""

    kind: str = "cuda"  # as PyTorch names it
    peak: dict[str, float]  # FLOP/s by precision
    memory: float  # bytes
    efficiency: float  # default fraction of the peak that training reaches


HARDWARE: dict[str, Hardware] = {
    "h100": Hardware(
        peak={"float32": 67e12, "bfloat16": 989e12, "float16": 989e12}, memory=80e9, efficiency=0.1
    ),
    "a100": Hardware(
        peak={"float32": 19.5e12, "bfloat16": 312e12, "float16": 312e12},
        memory=80e9,
        efficiency=0.2,
    ),
    "v100": Hardware(peak={"float32": 15.7e12, "float16": 125e12}, memory=32e9, efficiency=0.2),
}


def this_cpu() -> Hardware:
    """Measure the peak of this CPU; training was found to reach about 0.7 of it."""
    peak = timing.machine_limits().sgemm_gflops * 1e9
    peaks = {"float32": peak, "bfloat16": peak}
    return Hardware(kind="cpu", peak=peaks, memory=_memory(), efficiency=0.7)


def plan(run: Run, hardware: Hardware, devices: int, efficiency: float | None) -> dict[str, Any]:
    """Return the estimated cost of one run on `devices` equal devices."""
    if devices < 1:
        raise ValueError(f"devices={devices} must be at least 1")
    if run.precision not in hardware.peak:
        raise ValueError(
            f"this hardware has no {run.precision}: choose one of {', '.join(hardware.peak)}"
        )
    share = hardware.efficiency if efficiency is None else efficiency
    if not 0 < share <= 1:
        raise ValueError(f"efficiency={share} must be in (0, 1]")
    model, rows = run.model, run.batch * run.grad_accum_steps * devices
    tokens = rows * model.context
    forward = rows * forward_flops(model, model.context)
    step = forward * (4 if run.gradient_checkpointing else 3)
    weights = parameters(model) * STATE_BYTES
    if run.parallel == "fsdp":
        weights = _divided(run, devices)
    kept = activation_bytes(model, max(2, run.batch), model.context)
    if run.gradient_checkpointing:  # the inputs of blocks, and the insides of one
        inputs = 4 * run.batch * model.context * model.dim * model.depth
        kept = kept // model.depth + inputs
    if run.precision != "float32":
        kept = kept * 5 // 8  # most activations are half as large; norms and filters stay float32
    return {
        "parameters": parameters(model),
        "tokens_per_step": tokens,
        "tokens": tokens * run.steps,
        "flops_per_step": step,
        "flops": step * run.steps,
        "weight_bytes": weights,
        "activation_bytes": kept,
        "device_bytes": hardware.memory,
        "fits": weights + kept < hardware.memory,
        "seconds_per_step": step / (hardware.peak[run.precision] * share * devices),
        "seconds": step * run.steps / (hardware.peak[run.precision] * share * devices),
        "path": _path(run, hardware.kind),
        "decode_bytes": state_bytes(model, model.context),
        "decode_flops_per_token": 2 * parameters(model),
    }


def _divided(run: Run, devices: int) -> int:
    """Return the bytes of weights under fsdp: the shard of a device, and the blocks that it gathers."""
    model = run.model
    everything = gathered = parameters(model)
    if ARCHITECTURES[model.arch].sharded_by_block:  # embeddings and two blocks
        gathered = parameters(replace(model, depth=min(2, model.depth)))
    return everything * STATE_BYTES // devices + GATHERED_BYTES * gathered


def _path(run: Run, device: str) -> str:
    """Return the path of the operator on a device; a tuned rule is used for this machine's CPU only."""
    model = run.model
    heads = ARCHITECTURES[model.arch].filter_heads(model)
    if heads == 0:
        return "none: no long filters"
    columns = run.batch * model.dim // heads
    rule = dispatch.current_rule() if device == "cpu" else dispatch.RULE
    return dispatch.choose(dispatch.AUTO, device, model.context, columns, rule)


def _memory() -> float:
    import os

    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
