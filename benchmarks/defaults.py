"""Which Toeplitz mixer learns most in equal time: the evidence behind the defaults of `Model`.

    python benchmarks/defaults.py run TEXTS... --rows results/defaults/laptop.jsonl
    python benchmarks/defaults.py figure --rows results/defaults/laptop.jsonl

TEXTS are .txt files (documents parted by two blank lines) or .jsonl(.xz) with a field "text". A
byte-level BPE of 2000 is trained on them; every tenth document is held out. Every case trains on the
same rows in the same order, on one thread, for as many steps as fit the same time at its own measured
speed, and is scored by the held-out loss in nats per token. One row of JSON a run; finished runs are
not repeated. About 1.6 minutes a run.
"""

import argparse
import hashlib
import json
import lzma
import statistics
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from toeplix import Model, build

VOCAB, CONTEXT, BATCH = 2000, 128, 16
BASE = Model(vocab=VOCAB, context=CONTEXT, dim=96, depth=4, heads=4)
FLAT = replace(BASE, heads=0)
GATED = replace(BASE, gate=True)
CASES: dict[str, Model] = {
    "hyena": replace(BASE, arch="hyena"),
    "llama": replace(BASE, arch="llama"),
    "paper, flat": Model.paper(heads=0, dim=96, depth=4, context=CONTEXT, vocab=VOCAB),
    "paper, 4 heads": Model.paper(heads=4, dim=96, depth=4, context=CONTEXT, vocab=VOCAB),
    "flat": FLAT,
    "flat, gate": replace(FLAT, gate=True),
    "flat, 1.33 wide": replace(FLAT, dim=128),
    "flat, Kaiming filter": replace(FLAT, filters="kaiming"),
    "flat, channel first": replace(FLAT, first="channel"),
    "4 heads": BASE,
    "4 heads, RMSNorm": replace(BASE, norm="rms"),
    "4 heads, tied": replace(BASE, tied=True),
    "16 heads": replace(BASE, heads=16),
    "4 heads, gate": GATED,
    "16 heads, gate": replace(GATED, heads=16),
    "48 heads, gate": replace(GATED, heads=48),
    "16 heads, gate, 1.33 wide": replace(GATED, heads=16, dim=128),
    "16 heads, gate, 6 deep": replace(GATED, heads=16, depth=6),
}


def documents(files: list[Path]) -> list[str]:
    texts: list[str] = []
    for file in files:
        with lzma.open(file, "rt") if file.suffix == ".xz" else file.open() as opened:
            if ".jsonl" in file.suffixes:
                texts += [json.loads(line)["text"] for line in opened]
            else:
                texts += [part for part in opened.read().split("\n\n\n") if part.strip()]
    return texts


def token_rows(texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Training and held-out rows of CONTEXT + 1 tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts[:2000], trainer)
    rows = []
    for held_out in (False, True):
        part = [text for index, text in enumerate(texts) if (index % 10 == 9) == held_out]
        ids = [token for coded in tokenizer.encode_batch_fast(part) for token in coded.ids]
        usable = len(ids) // (CONTEXT + 1) * (CONTEXT + 1)
        rows.append(torch.tensor(ids[:usable]).view(-1, CONTEXT + 1))
    order = torch.randperm(len(rows[0]), generator=torch.Generator().manual_seed(0))
    return rows[0][order], rows[1][:256]


def measure(
    config: Model, lr: float, seed: int, seconds: float, train: torch.Tensor, held: torch.Tensor
) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = build(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0, fused=True)

    def loss(rows: torch.Tensor) -> torch.Tensor:
        return cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    def step(index: int, rate: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = rate
        first = index * BATCH % (len(train) - BATCH)
        value = loss(train[first : first + BATCH])
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    speeds = []
    for index in range(12):  # at rate 0 nothing is learned
        start = time.perf_counter()
        step(index, 0.0)
        speeds.append(time.perf_counter() - start)
    optimizer.state.clear()
    steps = int(seconds / statistics.median(speeds[2:]))
    began = time.perf_counter()
    for index in range(steps):
        warm, left = min(1.0, (index + 1) / 40), 1 - index / steps
        step(index, lr * warm * left)
    taken = time.perf_counter() - began
    model.eval()
    with torch.no_grad():
        scores = [loss(part).item() for part in held.split(64)]
    return {
        "loss": round(statistics.mean(scores), 4),
        "steps": steps,
        "seconds": round(taken, 1),
        "milliseconds_per_step": round(statistics.median(speeds[2:]) * 1e3, 2),
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def run(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    texts = documents(options.texts)[: options.documents]
    corpus = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
    train, held = token_rows(texts)
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    wanted = options.case or list(CASES)
    for name in wanted[options.part :: options.parts]:
        case = {
            "case": name,
            "lr": options.lr,
            "seed": options.seed,
            "budget": options.seconds,
            "corpus": corpus,
            "model": CASES[name].digest,
        }
        done = options.rows.read_text().splitlines() if options.rows.exists() else []
        if any(case.items() <= json.loads(line).items() for line in done):
            continue
        found = measure(CASES[name], options.lr, options.seed, options.seconds, train, held)
        version = {"torch": torch.__version__, "config": asdict(CASES[name])}
        with options.rows.open("a") as file:
            file.write(json.dumps(case | found | version) + "\n")
        print(f"{name}: {found}", flush=True)


def figure(options: argparse.Namespace) -> None:
    """Held-out loss of every case, best learning rate, a dot a seed."""
    from matplotlib.figure import Figure

    rows = [json.loads(line) for line in options.rows.read_text().splitlines()]
    best: dict[str, list[float]] = {}
    for name in {row["case"] for row in rows}:
        by_rate: dict[float, list[float]] = {}
        for row in rows:
            if row["case"] == name:
                by_rate.setdefault(row["lr"], []).append(row["loss"])
        best[name] = min(by_rate.values(), key=statistics.mean)
    names = sorted(best, key=lambda name: -statistics.mean(best[name]))
    drawing = Figure(figsize=(7, 0.35 * len(names) + 1), layout="constrained")
    axes = drawing.subplots()
    for place, name in enumerate(names):
        axes.plot(best[name], [place] * len(best[name]), "o", color="C0" if "," in name else "C1")
        axes.plot(statistics.mean(best[name]), place, "|", color="black", markersize=14)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel(f"held-out loss after {rows[0]['budget']:.0f} s on one thread (nats per token)")
    axes.grid(axis="x", alpha=0.3)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(options.out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run", help="train what is missing")
    running.add_argument("texts", nargs="+", type=Path)
    running.add_argument("--case", action="append", choices=list(CASES))
    running.add_argument("--documents", type=int, default=800, help="how many are read")
    running.add_argument("--lr", type=float, default=4e-3)
    running.add_argument("--seed", type=int, default=0)
    running.add_argument("--seconds", type=float, default=80.0)
    running.add_argument("--part", type=int, default=0, help="this process's share of the cases")
    running.add_argument("--parts", type=int, default=1)
    running.set_defaults(command=run)
    drawing = commands.add_parser("figure", help="draw the rows")
    drawing.add_argument("--out", type=Path, default=Path("figures/defaults.svg"))
    drawing.set_defaults(command=figure)
    for command in (running, drawing):
        command.add_argument("--rows", type=Path, default=Path("results/defaults/laptop.jsonl"))
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
