"""Sequence parallelism in numbers: what devices exchange, and the longest row that they hold.

    exchanged_bytes    what S processes send per layer and token of a sequence, forward and backward
    attention_bytes    what attention of the same width would send
    longest_contexts   the longest sequence by number of devices

All in float32: the sum over all processes, divided by the positions of the sequence. Attention of width d
sends per token, in numbers:

    ring          2 d (S - 1) forward: every process reads the keys and values of all others;
                  4 d (S - 1) backward: the same again, and their gradients
    all-to-all    4 d (S - 1) / S forward (queries, keys, values, outputs, divided by heads), and backward

Free filters send 2 d (S - 1) / S forward and backward. The states of recurrent filters do not grow with
the sequence, so per token they send less the longer it is.
"""

from collections.abc import Callable
from dataclasses import replace

from toeplix.architectures import ARCHITECTURES
from toeplix.config import Model
from toeplix.training.run import Run

BYTES = 4
MIN_CONTEXT, MAX_CONTEXT = 2**8, 2**30  # between which the longest context is searched


def exchanged_bytes(config: Model, processes: int) -> float | None:
    """Return the bytes sent per layer and token, forward and backward; None: it cannot be divided."""
    arch = ARCHITECTURES[config.arch]
    sent = arch.exchanged_numbers(config, config.context, processes)
    return None if sent is None else 2 * BYTES * sent / config.context / config.depth


def attention_bytes(dim: int, processes: int) -> dict[str, float]:
    """Return the bytes that attention sends per layer and token, forward and backward, by method."""
    others = processes - 1
    return {
        "ring": BYTES * 6.0 * dim * others,
        "all_to_all": BYTES * 8.0 * dim * others / processes,
    }


def longest_contexts(
    run: Run, memory: float, devices: int, used: Callable[[Run, int], float]
) -> dict[int, int]:
    """Return the longest row, a power of two, that 1, 2, 4, ... devices hold; 0: none was found.

    Args:
        run: whose rows are divided among all devices, one row at a time.
        memory: bytes of a device.
        devices: the largest number of devices.
        used: the bytes that a run takes of each of so many devices.
    """
    counts = [1 << i for i in range(devices.bit_length()) if 1 << i < devices]
    single = replace(run, batch=1, sequence_processes=0)
    found = {}
    for count in (*counts, devices):
        context, longest = MIN_CONTEXT, 0
        while context <= MAX_CONTEXT:
            longer = replace(single, model=replace(run.model, context=context))
            if used(longer, count) >= memory:
                break
            longest, context = context, 2 * context
        found[count] = longest
    return found
