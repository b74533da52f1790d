"""What is checked before a run writes anything: settings and data (its directory: run_directory.py).

A run that fails here leaves nothing behind: directories are made last, and removed if they stay empty.
"""

import os

from toeplix.architectures import ARCHITECTURES, stored_numbers
from toeplix.data import Store
from toeplix.training.logs import check_trackers
from toeplix.training.run import Run


def check_run(run: Run) -> None:
    """What can be said before the data are there: trackers, division, memory."""
    check_trackers(run.trackers)
    check_division(run)
    weights = 4 * stored_numbers(run.model)
    batch = 8 * run.batch * run.grad_accum_steps * run.model.context
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on this system
        return
    if weights + batch > memory:
        raise ValueError(
            f"the weights take {weights / 1e9:,.1f} GB and the tokens of a step {batch / 1e9:,.1f} GB, "
            f"this machine has {memory / 1e9:,.1f} GB: choose a smaller model or batch"
        )


def check_division(run: Run) -> None:
    """Raise an error if the processes cannot divide the sequences of this model."""
    if not run.divides_sequences:
        return
    config = run.model

    def able(arch: str) -> bool:
        return ARCHITECTURES[arch].exchanged_numbers(config, config.context, 2) is not None

    if not able(config.arch):
        unable = sorted({name for name in config.mixers if not able(name)})
        raise ValueError(
            f"parallel={run.parallel!r} is not supported by {', '.join(unable)}, whose positions read "
            "all earlier ones in one process: choose parallel='ddp' or 'fsdp', or another architecture"
        )


def check_store(run: Run, store: Store) -> None:
    if store.vocab > run.model.vocab:
        raise ValueError(
            f"{run.data} has {store.vocab} tokens, the last of them {store.vocab - 1}: "
            f"vocab={run.model.vocab} is too small for them"
        )
    if run.eval_every and not store.has_validation:
        share = store.manifest["recipe"].get("val_fraction")
        raise ValueError(
            f"{run.data} has no validation documents (it was built with val_fraction={share}): build the "
            "store again with a larger --val-fraction, or train with --eval-every 0"
        )
