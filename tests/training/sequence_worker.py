"""Started by torchrun: divided sequences in every process. See test_sequence_parallel.py.

Every process computes the losses and gradients of all rows as one process does, in float64, and compares
them with the sums over processes of what the divided objective computes.
"""

import sys
from dataclasses import replace

import torch
import torch.distributed as dist

from tests.models import FREE
from toeplix import Model, build
from toeplix.architectures import ARCHITECTURES
from toeplix.training.distributed import share, whole
from toeplix.training.objective import Objective, prepare
from toeplix.training.processes import joined
from toeplix.training.run import Run
from toeplix.training.sequence_parallel import divided_processes, objective_of

SIZES = {"vocab": 30, "context": 24, "dim": 12, "depth": 2, "mlp_ratio": 1}
MODELS = {
    "flat": Model(**FREE, **SIZES),
    "heads": Model(**FREE, **SIZES, heads=3),
    "layers": Model(**FREE, **SIZES, heads=4, sequential=2, kernels=2),
    "recurrent": Model(**SIZES, arch="toeplitz", groups=3, free_taps=8, decays=3),
    "hybrid": Model(**SIZES, blocks=("toeplitz", "linear"), filter="recurrent", free_taps=1),
    "lookup": Model(**SIZES, arch="lookup", filter="free", heads=4, keys=2),
    "lookups": Model(**SIZES, arch="lookup", heads=2, filter="recurrent", decays=3, short_conv=9),
    "default": Model(**SIZES, blocks=("toeplitz", "lookup"), free_taps=4, decays=3, keys=2),
    "hyena": Model(**SIZES, arch="hyena"),
    "linear": Model(**SIZES, arch="linear", heads=2),
}
WAYS = {
    "four": ["--parallel", "sequence"],
    "pairs-fsdp": ["--parallel", "sequence+fsdp", "--sequence-processes", "2", "--heads", "4"],
    "padded": ["--parallel", "sequence", "--protocol", "padded", "--gradient-checkpointing"],
}


def batches(rows):
    """Return three kinds of batches of `rows` rows: whole, padded, and packed with short documents."""
    context = SIZES["context"]
    tokens, labels = torch.randint(30, (2, rows, context))
    yield {"tokens": tokens, "labels": labels}
    mask = torch.arange(context) < torch.randint(1, context, (rows, 1))
    yield {"tokens": tokens, "labels": labels.masked_fill(~mask, -100), "mask": mask}
    offsets = torch.tensor([0, 1, 3, 20, *range(24, 24 * rows + 1, 24)])
    packed = {"tokens": tokens.view(1, -1), "labels": labels.view(1, -1)}
    yield {**packed, "offsets": offsets}


def gradients(model):
    return {
        name: torch.zeros(()) if weight.grad is None else whole(weight.grad)
        for name, weight in model.named_parameters()
    }


def check(config, processes, run):
    """Compare losses and gradients of all processes with those of one."""
    torch.manual_seed(0)
    alone, divided = build(config).double(), build(config).double()
    divided.load_state_dict(alone.state_dict())
    prepare(divided, run)
    processes = divided_processes(run, processes)
    objective = objective_of(divided, run, processes)
    shared = share(objective, run.parallel, processes)
    for batch in batches(2):
        alone.zero_grad()
        divided.zero_grad()
        # every group has rows of its own: here the same ones, in another order
        turned = {**batch}
        if "offsets" not in batch:
            turned = {name: value.roll(processes.data_rank, 0) for name, value in batch.items()}
        expected = processes.data_count * Objective(alone)(**batch)
        expected.backward()
        loss = shared(**turned)
        (loss * processes.count).backward()  # gradients are averaged
        total = loss.detach().clone()
        dist.all_reduce(total)
        torch.testing.assert_close(total, expected.detach())
        known, found = gradients(alone), gradients(divided)
        assert known.keys() == found.keys()
        for name, value in known.items():
            torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-11, msg=name)
    return objective


def check_bytes(name, config, processes):
    """The bytes that all processes send are those of the formula, forward and backward."""
    run = Run(model=config, data="-", parallel="sequence")
    processes = divided_processes(run, processes)
    torch.manual_seed(0)
    objective = objective_of(build(config), run, processes)
    tokens = torch.randint(30, (1, config.context))
    objective(tokens, tokens).backward()
    (sent,) = processes.total(objective.exchange.sent)
    arch = ARCHITECTURES[config.arch]
    formula = arch.exchanged_numbers(config, config.context, processes.count)
    assert sent == 2 * 4 * formula, f"{name}: {sent} bytes instead of {2 * 4 * formula}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    out, *arguments = sys.argv[1:]
    with joined() as processes:
        for name, config in MODELS.items():
            run = Run(model=config, data="-", parallel="sequence")
            check(config, processes, run)
            check(config, processes, replace(run, sequence_processes=2))
            check_bytes(name, config, processes)
        run = Run(model=MODELS["heads"], data="-", parallel="sequence+fsdp")
        check(run.model, processes, replace(run, gradient_checkpointing=True))
        check(run.model, processes, replace(run, sequence_processes=2))
        run = Run(model=MODELS["default"], data="-", parallel="sequence+fsdp")
        check(run.model, processes, replace(run, gradient_checkpointing=True))
        check(MODELS["lookup"], processes, run)
        for name, way in WAYS.items() if arguments else ():
            from toeplix.cli.main import main

            sys.argv = ["toeplix", "train", *arguments, *way, "--out", f"{out}/{name}"]
            main()
