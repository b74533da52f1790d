"""Data parallelism: `ddp`, with replicated weights, or `fsdp`, with sharded weights.

    ddp    weights, gradients and optimizer state in every process; gradients are averaged once per step
    fsdp   every process keeps a shard of each weight, its gradient and its optimizer state (FSDP2); a
           block is gathered while it is computed, forward and backward, and its gradients are sharded

Either is combined with dividing the positions of a row among processes (sequence_parallel.py).

Under fsdp a weight is a DTensor. `whole` gathers a value and `part` shards it, so checkpoints are the
same files for both. The backbones of Hugging Face are gathered as one unit for the duration of a batch.
"""

import contextlib
import math
import warnings
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from toeplix.architectures import build
from toeplix.checkpoint import fill, own
from toeplix.model import Block, LanguageModel
from toeplix.training.objective import Objective
from toeplix.training.processes import Processes


def share(objective: Objective, how: str, processes: Processes) -> nn.Module:
    """Move the objective to its device and average its gradients over processes."""
    if processes.count == 1:
        return objective.to(processes.device)
    return PARALLELISMS[how](objective, processes)


def copied(objective: Objective, processes: Processes) -> nn.Module:
    # the filter of a single head has an arbitrary stride, which is harmless
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
    # without device_ids, lest it moves labels and masks to the device, which the host reads
    return DistributedDataParallel(objective.to(processes.device))


def divided(objective: Objective, processes: Processes) -> nn.Module:
    """Shard the objective in place, block by block, so that a device holds at most one whole block."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(processes.device.type, (processes.count,))
    for block in objective.model.sharded():
        fully_shard(block, mesh=mesh)
        # Processes have different documents but must gather a block equally often: once for all groups
        # of documents. Inside, `forward` is called directly, as a module call would gather again.
        setattr(block, "each", _each(block))  # noqa: B010 - for mypy
        register_fsdp_forward_method(block, "each")
    fully_shard(objective, mesh=mesh, reshard_after_forward=True)
    return objective


def _each(block: Block) -> Callable[[list[Tensor]], list[Tensor]]:
    return lambda batches: [block.forward(x) for x in batches]


PARALLELISMS: dict[str, Callable[[Objective, Processes], nn.Module]] = {
    "ddp": copied,
    "fsdp": divided,
    "sequence": copied,
    "sequence+fsdp": divided,
}


def unexchanged(shared: nn.Module) -> contextlib.AbstractContextManager[None]:
    """Postpone gradient averaging to the last gradient accumulation step.

    Not under fsdp: unsharded gradients might not fit into memory.
    """
    if isinstance(shared, DistributedDataParallel):
        return shared.no_sync()
    return contextlib.nullcontext()


def clip(weights: list[nn.Parameter], most: float) -> Tensor:
    """Clip the gradient norm of all weights at `most` (0: never); return the norm before clipping."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    norm = whole(torch.nn.utils.get_total_norm(gradients))
    torch.nn.utils.clip_grads_with_norm_(weights, most or math.inf, norm)
    return norm


def finite(weights: list[nn.Parameter]) -> bool:
    """Return whether all numbers that this process holds of the weights are finite."""
    held = [each.to_local() if isinstance(each, DTensor) else each.detach() for each in weights]
    largest = torch.nn.utils.get_total_norm([each for each in held if each.numel()], math.inf)
    return bool(torch.isfinite(largest))


def whole(value: Tensor) -> Tensor:
    """Return the unsharded value; if it is sharded, every process has to call this."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def part(value: Tensor, weight: Tensor) -> Tensor:
    """Return this process's shard of a value that has the shape of a weight."""
    if not isinstance(weight, DTensor):
        return value.to(weight.device)
    kept = torch.empty_like(weight, requires_grad=False)  # a copy that does not keep `value` alive
    places = weight.placements
    return kept.copy_(distribute_tensor(value, weight.device_mesh, places, src_data_rank=None))


def gathered(values: Iterable[tuple[str, Tensor]], processes: Processes) -> dict[str, Tensor]:
    """Gather values by name, one after another, on the first process; all processes have to call this."""
    found = {}
    for name, value in values:
        full = whole(value)
        if processes.first:
            found[name] = full if full is value else full.cpu()
    return found


def whole_model(model: LanguageModel, processes: Processes) -> LanguageModel:
    """Return the model; if it is sharded, the first process gets an unsharded copy on the CPU."""
    if not any(isinstance(weight, DTensor) for weight in model.parameters()):
        return model
    weights = gathered(own(model).items(), processes)
    if not processes.first:
        return model
    copy = build(model.config)
    fill(copy, weights, "the model")
    return copy
