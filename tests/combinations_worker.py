"""Started by torchrun: short runs in combinations of settings. See training/test_combinations.py."""

import json
import sys
from functools import partial
from pathlib import Path

import torch

from tests.models import OURS, used
from tests.toy import toy_run
from toeplix.data import Store
from toeplix.training.logs import read
from toeplix.training.loop import fit
from toeplix.training.processes import joined

STEPS = 2
# every pair of values of two settings occurs, and everything at once; compiling takes most of the time
COMBINATIONS = [  # parallel, precision, gradient checkpointing, compiled
    ("fsdp", "float32", True, True),
    ("fsdp", "float16", False, True),
    ("fsdp", "bfloat16", True, False),
    ("ddp", "float16", True, False),
    ("ddp", "bfloat16", False, True),
    ("fsdp", "bfloat16", True, True),
    ("fsdp", "float16", True, False),
]
# architectures take turns
CASES = {
    f"{number}-{OURS[number % len(OURS)]}-{parallel}-{precision}": {
        "arch": OURS[number % len(OURS)],
        "parallel": parallel,
        "precision": precision,
        "gradient_checkpointing": checkpointed,
        "compile": compiled,
    }
    for number, (parallel, precision, checkpointed, compiled) in enumerate(COMBINATIONS)
}
# both processes divide the same four rows: a step has as many as that of a plain run
CASES["lookup-sequence-fsdp"] = {
    "arch": "lookup",
    "parallel": "sequence+fsdp",
    "precision": "float32",
    "gradient_checkpointing": False,
    "compile": True,
    "batch": 4,
}
PLAIN = {f"{case['arch']}-plain": {"arch": case["arch"]} for case in CASES.values()}


def losses(store: Store, folder: Path, settings: dict) -> list[float]:
    from torch._dynamo.utils import counters  # late: the tests import this file for its cases

    small = {"steps": STEPS, "warmup": 1, "batch": 2, "log_every": 1, "save_every": STEPS}
    never = {"eval_every": 0, "sample_every": 0} | used(settings["arch"], dropout=0.0)
    torch.compiler.reset()  # one class in many configurations: each is compiled afresh
    counters.clear()
    fit(toy_run(store, **(small | never | settings)), folder)
    assert bool(counters["stats"]["unique_graphs"]) == settings.get("compile", False), settings
    return [row["loss"] for row in read(folder) if "loss" in row]


if __name__ == "__main__":
    torch.set_num_threads(1)
    # what the compiler traces is tested, not the code that its last stage generates
    torch.compile = partial(torch.compile, backend="aot_eager")
    directory = Path(sys.argv[1])
    found, chosen = {}, Store.open(sys.argv[2])
    with joined() as processes:  # once: processes that parted do not meet again
        for name, settings in (PLAIN | CASES).items():
            found[name] = losses(chosen, directory / name, settings)
    if processes.first:
        (directory / "losses.json").write_text(json.dumps(found))
