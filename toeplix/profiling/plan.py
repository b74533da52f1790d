"""What a run will need, before it runs: parameters, operations, memory, time, and which path is taken.

Times are operations over what the hardware reaches: `peak` times `efficiency`. On small models the
share is small: the paper's own rates on two H100 (9.30 steps a second at width 512, 5.25 at 1024) are 7%
and 15% of their peak in bfloat16. On a CPU the peak is that of a float32 matmul, measured now.
"""

from dataclasses import dataclass, replace
from typing import Any

from toeplix.architectures import ARCHITECTURES, forward_flops, parameters, state_bytes
from toeplix.ops import dispatch
from toeplix.profiling import timing
from toeplix.profiling.memory import activation_bytes
from toeplix.training.run import Run

STATE_BYTES = 16  # a parameter: weight, gradient, two moments of AdamW, in float32
GATHERED_BYTES = 8  # weight and gradient, whole for a moment where they are divided otherwise


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One device."""

    kind: str = "cuda"  # as PyTorch names it
    peak: dict[str, float]  # operations a second, by precision
    memory: float  # bytes
    efficiency: float  # share of the peak that training reaches, unless told otherwise


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
    """Measured; training reaches about 0.7 of a matmul here."""
    peak = timing.machine_limits().sgemm_gflops * 1e9
    peaks = {"float32": peak, "bfloat16": peak}
    return Hardware(kind="cpu", peak=peaks, memory=_memory(), efficiency=0.7)


def plan(run: Run, hardware: Hardware, devices: int, efficiency: float | None) -> dict[str, Any]:
    """All of it as numbers, for one run on `devices` equal devices."""
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
        kept = kept * 5 // 8  # most is half as large; norms and filters stay
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
    """What a device keeps of everything, and what it gathers."""
    model = run.model
    everything = gathered = parameters(model)
    if ARCHITECTURES[model.arch].sharded_by_block:  # embeddings and two blocks
        gathered = parameters(replace(model, depth=min(2, model.depth)))
    return everything * STATE_BYTES // devices + GATHERED_BYTES * gathered


def _path(run: Run, device: str) -> str:
    """What the operator does there: a rule that was tuned holds for the machine it was tuned on."""
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
