"""The estimated cost of a run: parameters, FLOPs, memory, time, and the path of the operator.

Time is FLOPs divided by the throughput that the hardware reaches, `peak` times `efficiency`. `HARDWARE`
is the only place of the assumed efficiencies, and a plan says which one it used. The efficiency of small
models in half precision is low: the paper's own throughput on two H100 (9.30 steps per second at width
512, 5.25 at 1024) is 7% and 15% of their peak in bfloat16. In float32, whose peak is 15 times lower, the
share of the roofline (`roofline.py`) is assumed. On a CPU the peak is the throughput of a float32 matmul,
measured when the plan is made.

Paths of the operators and their dtype are those of `operator_plan.py`; for GPUs with a roofline
(`roofline.py`) the kernels of one layer of each kind are estimated, too.
"""

import functools
from dataclasses import dataclass, replace
from typing import Any

from toeplix.architectures import ARCHITECTURES, forward_flops, parameters, state_bytes
from toeplix.config import Model
from toeplix.profiling import operator_plan, roofline, timing
from toeplix.profiling.memory import activation_bytes
from toeplix.profiling.sequence_plan import attention_bytes, exchanged_bytes, longest_contexts
from toeplix.training.preflight import check_division
from toeplix.training.run import Run

STATE_BYTES = 16  # per parameter: weight, gradient and optimizer state of AdamW, in float32
COUNTED_POSITIONS = 512  # of a divided sequence whose activations are counted
GATHERED_BYTES = 8  # per parameter of a gathered block under fsdp: weight and gradient


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One device."""

    kind: str = "cuda"  # as PyTorch names it
    peak: dict[str, float]  # FLOP/s by precision
    memory: float  # bytes
    efficiency: dict[str, float]  # by precision: assumed fraction of the peak that training reaches
    basis: dict[str, str]  # by precision: what the assumed efficiency rests on
    gpu: roofline.GPU | None = None  # for estimates of the operator

    @property
    def kernels(self) -> bool:
        """Whether the Triton kernels run there: those with a roofline have compute capability 8.0."""
        return self.kind == "cuda" and self.gpu is not None


GUESS = "a guess"
PAPER = "from the paper's throughput"
ROOFLINE = "assumed, as in the roofline"


def _gpu(name: str, half: float, basis: str) -> Hardware:
    """Return a GPU with a roofline, and its assumed efficiency in half precision."""
    gpu = roofline.GPUS[name]
    precisions = dict.fromkeys(gpu.peak, half) | {"float32": roofline.ATTAINED_COMPUTE}
    bases = dict.fromkeys(gpu.peak, basis) | {"float32": ROOFLINE}
    return Hardware(peak=gpu.peak, memory=80e9, efficiency=precisions, basis=bases, gpu=gpu)


HARDWARE: dict[str, Hardware] = {
    "h100": _gpu("h100", 0.07, PAPER),
    "a100": _gpu("a100", 0.1, GUESS),
    "v100": Hardware(
        peak={"float32": 15.7e12, "float16": 125e12},
        memory=32e9,
        efficiency={"float32": roofline.ATTAINED_COMPUTE, "float16": 0.1},
        basis={"float32": ROOFLINE, "float16": GUESS},
    ),
}


def this_cpu() -> Hardware:
    """Measure the peak of this CPU; training was found to reach about 0.7 of it."""
    peak = timing.machine_limits().sgemm_gflops * 1e9
    precisions = ("float32", "bfloat16")
    return Hardware(
        kind="cpu",
        peak=dict.fromkeys(precisions, peak),
        memory=_memory(),
        efficiency=dict.fromkeys(precisions, 0.7),
        basis=dict.fromkeys(precisions, "assumed; the peak is measured"),
    )


def plan(run: Run, hardware: Hardware, devices: int, efficiency: float | None) -> dict[str, Any]:
    """Return the estimated cost of one run on `devices` equal devices."""
    if devices < 1:
        raise ValueError(f"devices={devices} must be at least 1")
    if run.precision not in hardware.peak:
        raise ValueError(
            f"this hardware has no {run.precision}: choose one of {', '.join(hardware.peak)}"
        )
    assumed = efficiency is None
    share = hardware.efficiency[run.precision] if efficiency is None else efficiency
    if not 0 < share <= 1:
        raise ValueError(f"efficiency={share} must be in (0, 1]")
    model, sequence = run.model, _sequence_devices(run, devices)
    rows = run.batch * run.grad_accum_steps * devices // sequence
    tokens = rows * model.context
    # every device computes the filters that its rows share, for every part of a batch
    passes = run.grad_accum_steps * devices // sequence
    forward = passes * forward_flops(model, model.context, run.batch)
    step = forward * (4 if run.gradient_checkpointing else 3)
    weights, kept = _weights(run, devices), _activations(run, sequence)
    found = {
        "parameters": parameters(model),
        "tokens_per_step": tokens,
        "tokens": tokens * run.steps,
        "flops_per_step": step,
        "flops": step * run.steps,
        "weight_bytes": weights,
        "activation_bytes": kept,
        "device_bytes": hardware.memory,
        "fits": weights + kept < hardware.memory,
        "efficiency": share,
        "efficiency_basis": hardware.basis[run.precision] if assumed else "given",
        "peak_flops_per_second": hardware.peak[run.precision],
        "seconds_per_step": step / (hardware.peak[run.precision] * share * devices),
        "seconds": step * run.steps / (hardware.peak[run.precision] * share * devices),
        "path": _spelled(operator_plan.paths(run, hardware.kind, kernels=hardware.kernels)),
        "operator_precision": _spelled(
            {kind: each.precision for kind, each in operator_plan.operators(run).items()}
        ),
        "operator_estimates": [
            dict(vars(each))
            for each in ([] if hardware.gpu is None else operator_plan.estimates(run, hardware.gpu))
        ],
        "decode_bytes": state_bytes(model, model.context),
        "decode_flops_per_token": 2 * parameters(model),
    }
    return found | _division(run, hardware, devices, sequence) if sequence > 1 else found


def _sequence_devices(run: Run, devices: int) -> int:
    """Return how many devices divide a sequence."""
    check_division(run)
    sequence = (run.sequence_processes or devices) if run.divides_sequences else 1
    if devices % sequence:
        raise ValueError(
            f"sequence_processes={sequence} does not divide devices={devices}: choose a divisor"
        )
    return sequence


def _division(run: Run, hardware: Hardware, devices: int, sequence: int) -> dict[str, Any]:
    """Return what dividing sequences costs and allows."""

    def used(run: Run, count: int) -> float:
        return _weights(run, count) + _activations(run, count)

    return {
        "sequence_devices": sequence,
        "exchanged_bytes": exchanged_bytes(run.model, sequence),
        "attention_exchanged_bytes": attention_bytes(run.model.dim, sequence),
        "longest_contexts": longest_contexts(run, hardware.memory, sequence, used),
    }


def _weights(run: Run, devices: int) -> int:
    if run.parallel.endswith("fsdp"):
        return _divided(run, devices)
    return parameters(run.model) * STATE_BYTES


def _activations(run: Run, sequence: int) -> int:
    """Return the bytes that a device keeps for the backward pass of its positions."""
    model, time = run.model, -(-run.model.context // sequence)
    if sequence == 1 and not run.divides_sequences:
        kept = activation_bytes(model, max(2, run.batch), time)
    else:  # linear in the positions, which may be too many to count on a model
        counted = min(time, COUNTED_POSITIONS)
        kept = _counted(replace(model, context=counted), run.batch) * time // counted
    if run.gradient_checkpointing:  # the inputs of blocks, and the insides of one
        inputs = 4 * run.batch * time * model.dim * model.depth
        kept = kept // model.depth + inputs
    if run.precision != "float32":
        kept = kept * 5 // 8  # most activations are half as large; norms and filters stay float32
    return kept


@functools.lru_cache(maxsize=64)
def _counted(model: Model, batch: int) -> int:
    return activation_bytes(model, batch, model.context)


def _divided(run: Run, devices: int) -> int:
    """Return the bytes of weights under fsdp: the shard of a device, and the blocks that it gathers."""
    model = run.model
    gathered = ARCHITECTURES[model.arch].gathered_parameters(model)
    return parameters(model) * STATE_BYTES // devices + GATHERED_BYTES * gathered


def _spelled(by_kind: dict[str, str]) -> str:
    """Return what operators have in common; where they differ, each with the kind of its block."""
    if not by_kind:
        return "none: no long filters"
    if len(set(by_kind.values())) == 1:
        return next(iter(by_kind.values()))
    return ", ".join(f"{kind}: {value}" for kind, value in by_kind.items())


def _memory() -> float:
    import os

    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
