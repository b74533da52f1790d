"""A corpus with an order that a tiny model learns, a store of it, and a run that takes a second."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.models import small
from toeplix.data import Recipe, Store, build
from toeplix.training.presets import changed
from toeplix.training.run import Run

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def toy_lines(file: Path, documents: int = 300) -> Path:
    """Documents that count upwards from somewhere, of uneven length."""
    chosen = random.Random(0)
    rows = []
    for number in range(documents):
        start, length = chosen.randrange(10), chosen.randrange(3, 60)
        text = " ".join(WORDS[(start + i) % 10] for i in range(length))
        rows.append(json.dumps({"text": f"{number}: {text}"}) + "\n")
    file.write_text("".join(rows))
    return file


def toy_store(folder: Path) -> Store:
    lines = toy_lines(folder / "toy.jsonl")
    return build(Recipe(sources=(str(lines),), vocab=300, val_fraction=0.1), folder / "store")


def toy_run(store: Store, **changes: Any) -> Run:
    """Nothing in it divides anything else; dropout draws random numbers in every step."""
    arch = changes.get("arch", "toeplitz")
    free = {"filter": "free"} if arch == "toeplitz" else {}
    model = small(arch, vocab=300, context=32, dim=16, depth=1, dropout=0.1, **free)
    run = Run(model=model, data=str(store.directory), steps=24, batch=4, lr=1e-2, warmup=4)
    quick = {
        "save_every": 5,
        "log_every": 3,
        "eval_every": 8,
        "sample_every": 12,
        "eval_sequences": 9,
    }
    return changed(replace(run, **quick, trackers=""), changes)
