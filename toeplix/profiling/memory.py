"""Memory that autograd keeps from the forward to the backward pass, by formula or counted.

Where an architecture has no formula (`saved_activations`), small models are built and counted:
what is kept is linear in the depth and in the batch from two sequences on (a single one needs fewer
copies, so its estimate is a little high).
"""

import weakref
from dataclasses import replace

import torch

from toeplix.architectures import ARCHITECTURES, build
from toeplix.config import Model


def activation_bytes(config: Model, batch: int, time: int) -> int:
    """Return the bytes that `encode` keeps for the backward pass, in float32."""
    known = ARCHITECTURES[config.arch].saved_activations(config)
    if known is not None:
        return batch * time * (4 * known + 8)  # and the tokens, in int64
    cycle = max(1, len(config.blocks))  # blocks of a hybrid are counted by whole cycles
    shallow = (config.depth - 1) % cycle + 1
    (few, few_deeper), (more, more_deeper) = (
        [
            count_saved_bytes(replace(config, depth=d), size, time)
            for d in (shallow, shallow + cycle)
        ]
        for size in (2, 3)
    )
    deeper, larger = (config.depth - shallow) // cycle, batch - 2
    cross = more_deeper - more - few_deeper + few
    return few + deeper * (few_deeper - few) + larger * (more - few) + deeper * larger * cross


def count_saved_bytes(config: Model, batch: int, time: int) -> int:
    """Return the bytes that autograd keeps when `encode` runs, parameters and buffers left out."""
    model = build(config)
    own = {value.untyped_storage().data_ptr() for value in model.state_dict().values()}
    kept: list[weakref.ref[torch.Tensor]] = []

    def keep(value: torch.Tensor) -> torch.Tensor:
        kept.append(weakref.ref(value))
        return value

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        features = model.encode(torch.zeros(batch, time, dtype=torch.long))
    # what nothing after it reads is gone by now
    alive = [value for reference in kept if (value := reference()) is not None]
    storages = {value.untyped_storage().data_ptr(): value.untyped_storage() for value in alive}
    del features
    return sum(each.nbytes() for address, each in storages.items() if address not in own)
