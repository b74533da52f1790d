"""Started by torchrun: `toeplix train` in several ways, in every process. See test_distributed.py."""

import sys

import torch

from toeplix import Model, build
from toeplix.cli.main import main
from toeplix.training.distributed import part, share, whole, whole_model
from toeplix.training.objective import Objective
from toeplix.training.processes import joined

WAYS = {
    "packed": [],
    "rows": ["--protocol", "padded"],
    "packed-fsdp": ["--parallel", "fsdp", "--grad-accum-steps", "2", "--heads", "4"],
    "rows-fsdp": ["--parallel", "fsdp", "--protocol", "padded", "--gradient-checkpointing"],
    "llama-fsdp": ["--parallel", "fsdp", "--arch", "llama", "--precision", "bfloat16"],
    "tied-fsdp": [
        "--parallel",
        "fsdp",
        "--tie-embeddings",
        *("--frozen", "random", "--arch", "toeplitz", "--filter", "free"),
        "--precision",
        "float16",
    ],
}


def check_parts(config: Model) -> None:
    """Every process holds its part, and wholes come back."""
    torch.manual_seed(0)
    model = build(config)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    with joined() as processes:
        share(Objective(model), "fsdp", processes)
        held = sum(weight.to_local().numel() for weight in model.parameters())
        for weight in model.parameters():
            assert torch.equal(part(whole(weight.detach()), weight).to_local(), weight.to_local())
        total = sum(weight.numel() for weight in before.values())
        assert held < 0.55 * total, f"{held} of {total} numbers in one process"
        again = dict(whole_model(model, processes).named_parameters())
        if processes.first:
            assert all(torch.equal(again[name], value) for name, value in before.items())


if __name__ == "__main__":
    torch.set_num_threads(1)
    out, *arguments = sys.argv[1:]
    with joined():  # once: processes that parted do not meet again
        for name, way in WAYS.items():
            sys.argv = ["toeplix", "train", *arguments, *way, "--out", f"{out}/{name}"]
            main()
        check_parts(Model(vocab=300, context=32, dim=16, depth=2, heads=4))
