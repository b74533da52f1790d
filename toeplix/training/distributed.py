"""How several processes share one model: `ddp`, each the whole of it, or `fsdp`, each a part.

    ddp    weights, gradients and moments in every process; gradients are averaged once a step
    fsdp   every process keeps a part of each weight, of its gradient and of its moments (FSDP2); a block
           is gathered while it computes, forward and backward, and its gradients are divided after it

Under fsdp a weight is a DTensor. `whole` and `part` lead from parts to wholes and back, so checkpoints
are the same files for both. Hugging Face's backbones are gathered in one piece,
for as long as a batch takes.
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
    """The objective on its device, with gradients averaged over processes."""
    if processes.count == 1:
        return objective.to(processes.device)
    return WAYS[how](objective, processes)


def copied(objective: Objective, processes: Processes) -> nn.Module:
    # a filter of one head has a free stride, which is no fault
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
    device = processes.device
    here = [device.index or 0] if device.type == "cuda" else None
    return DistributedDataParallel(objective.to(device), device_ids=here)


def divided(objective: Objective, processes: Processes) -> nn.Module:
    """In place, block by block, so that no more than one of them is ever whole on a device."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(processes.device.type, (processes.count,))
    for block in objective.model.sharded():
        fully_shard(block, mesh=mesh)
        # Processes have different documents, and must gather a block equally often: once for all groups
        # of documents. Inside, `forward`, as a call would gather again for each.
        setattr(block, "each", _each(block))  # noqa: B010 - for mypy
        register_fsdp_forward_method(block, "each")
    fully_shard(objective, mesh=mesh, reshard_after_forward=True)
    return objective


def _each(block: Block) -> Callable[[list[Tensor]], list[Tensor]]:
    return lambda batches: [block.forward(x) for x in batches]


WAYS: dict[str, Callable[[Objective, Processes], nn.Module]] = {"ddp": copied, "fsdp": divided}


def unexchanged(shared: nn.Module) -> contextlib.AbstractContextManager[None]:
    """Gradients wait for the last part of a step, unless they are divided: wholes might not fit."""
    if isinstance(shared, DistributedDataParallel):
        return shared.no_sync()
    return contextlib.nullcontext()


def clip(weights: list[nn.Parameter], most: float) -> float:
    """Shorten the gradient of all weights together to `most` (0: never); its norm before that."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    norm = whole(torch.nn.utils.get_total_norm(gradients))
    torch.nn.utils.clip_grads_with_norm_(weights, most or math.inf, norm)
    return float(norm)


def whole(value: Tensor) -> Tensor:
    """All of it; if it is divided, every process has to ask."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def part(value: Tensor, weight: Tensor) -> Tensor:
    """What this process keeps of a value that belongs to a weight."""
    if not isinstance(weight, DTensor):
        return value.to(weight.device)
    kept = torch.empty_like(weight, requires_grad=False)  # which holds on to nothing else
    places = weight.placements
    return kept.copy_(distribute_tensor(value, weight.device_mesh, places, src_data_rank=None))


def gathered(values: Iterable[tuple[str, Tensor]], processes: Processes) -> dict[str, Tensor]:
    """Wholes by name, on the first process only, one after another; every process has to ask."""
    found = {}
    for name, value in values:
        full = whole(value)
        if processes.first:
            found[name] = full if full is value else full.cpu()
    return found


def whole_model(model: LanguageModel, processes: Processes) -> LanguageModel:
    """The model itself; if it is divided, on the first process a copy on the CPU."""
    if not any(isinstance(weight, DTensor) for weight in model.parameters()):
        return model
    weights = gathered(own(model).items(), processes)
    if not processes.first:
        return model
    copy = build(model.config)
    fill(copy, weights, "the model")
    return copy
