"""Which Toeplitz mixer learns most in equal time: the evidence behind the defaults of `Model`.

    python benchmarks/defaults.py speeds                       # on a quiet machine, some minutes
    python benchmarks/defaults.py run TEXTS...                 # about a minute a run
    python benchmarks/defaults.py figure

TEXTS are .txt files (documents parted by two blank lines) or .jsonl(.xz) with a field "text". A
byte-level BPE of 2000 is trained on them; every tenth document is held out. `speeds` times a training
step of every case, taking turns, on one thread; `run` trains each for as many steps as the same budget
of seconds allows at that speed, so that a busy machine cannot change a result. Every case sees the same
rows in the same order and is scored by the held-out loss in nats per token. One row of JSON a run;
finished runs are not repeated.
"""

import argparse
import hashlib
import json
import lzma
import statistics
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from toeplix import Model, build
from toeplix.profiling import timing

VOCAB, CONTEXT, BATCH = 2000, 128, 16
FREE = {"arch": "toeplitz", "filter": "free", "embedding_norm": 0.0}
BASE = Model(**FREE, vocab=VOCAB, context=CONTEXT, dim=96, depth=4, heads=4, gate=False)
FLAT = replace(BASE, heads=0)
FLAT_GATED = replace(FLAT, gate=True, gate_bias=0.0)
HYENA = Model.paper(arch="hyena", dim=96, depth=4, context=CONTEXT, vocab=VOCAB)
CASES: dict[str, Model] = {
    "hyena, 33 features, frequency 14": replace(HYENA, filter_features=33, filter_frequency=14.0),
    "hyena, 9 features, frequency 10": replace(HYENA, filter_features=9, filter_frequency=10.0),
    "hyena, 9 features, frequency 1": replace(HYENA, filter_features=9),
    "hyena, paper": HYENA,
    "hyena, paper, final norm": replace(HYENA, final_norm=True),
    "llama": Model(arch="llama", vocab=VOCAB, context=CONTEXT, dim=96, depth=4, heads=4),
    "paper, flat": Model.paper(heads=0, dim=96, depth=4, context=CONTEXT, vocab=VOCAB),
    "paper, 4 heads": Model.paper(heads=4, dim=96, depth=4, context=CONTEXT, vocab=VOCAB),
    "flat": FLAT,
    "flat, Kaiming filter": replace(FLAT, filter_init="kaiming"),
    "flat, channel first": replace(FLAT, block_order="mlp_first"),
    "flat, gate": FLAT_GATED,
    "flat, gate, tied": replace(FLAT_GATED, tie_embeddings=True),
    "flat, gate, RMSNorm": replace(FLAT_GATED, norm="rms"),
    "flat, gate, 1.33 wide": replace(FLAT_GATED, dim=128),
    "flat, gate, 6 deep": replace(FLAT_GATED, depth=6),
    "4 heads": BASE,
    "4 heads, gate": replace(BASE, gate=True),
    "16 heads, gate": replace(BASE, heads=16, gate=True),
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
    """Return training and validation sequences of CONTEXT + 1 tokens."""
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


def training_step(config: Model, seed: int, train: torch.Tensor) -> tuple[Any, Any]:
    """A fresh model, and a function that takes its step number `index` at a learning rate."""
    torch.manual_seed(seed)
    model = build(config)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0, fused=True)

    def step(index: int, rate: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = rate
        first = index * BATCH % (len(train) - BATCH)
        value = loss(model, train[first : first + BATCH])
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return model, step


def loss(model: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
    return cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def speeds(options: argparse.Namespace) -> None:
    """Milliseconds of a training step, the median of rounds in which all cases take their turn."""
    torch.set_num_threads(1)
    train = torch.randint(VOCAB, (10 * BATCH, CONTEXT + 1))
    steps = {name: training_step(config, 0, train)[1] for name, config in CASES.items()}
    times = timing.interleaved(
        {name: partial(step, 0, 0.0) for name, step in steps.items()},
        seconds=options.seconds,
        least=9,
    )
    found = {name: round(statistics.median(taken) * 1e3, 2) for name, taken in times.items()}
    options.speeds.parent.mkdir(parents=True, exist_ok=True)
    options.speeds.write_text(json.dumps(found, indent=1) + "\n")
    for name, milliseconds in sorted(found.items(), key=lambda pair: pair[1]):
        print(f"{milliseconds:8.1f} ms  {name}")


def measure(
    config: Model, lr: float, seed: int, steps: int, train: torch.Tensor, held: torch.Tensor
) -> dict[str, Any]:
    """Warm-up of 40 steps, linear decay, clipping; then the held-out loss."""
    model, step = training_step(config, seed, train)
    for index in range(steps):
        step(index, lr * min(1.0, (index + 1) / 40) * (1 - index / steps))
    model.eval()
    with torch.no_grad():
        scores = [loss(model, part).item() for part in held.split(64)]
    counted = sum(p.numel() for p in model.parameters())
    return {"loss": round(statistics.mean(scores), 4), "parameters": counted}


def run(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    texts = documents(options.texts)[: options.documents]
    corpus = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
    train, held = token_rows(texts)
    milliseconds = json.loads(options.speeds.read_text())
    wanted = options.case or list(CASES)
    for name in wanted[options.part :: options.parts]:
        case = {
            "case": name,
            "lr": options.lr,
            "seed": options.seed,
            "budget": options.seconds,
            "steps": int(options.seconds / milliseconds[name] * 1e3),
            "corpus": corpus,
            "model": CASES[name].digest,
        }
        done = options.rows.read_text().splitlines() if options.rows.exists() else []
        if any(case.items() <= json.loads(line).items() for line in done):
            continue
        found = measure(CASES[name], options.lr, options.seed, case["steps"], train, held)
        version = {"torch": torch.__version__, "config": asdict(CASES[name])}
        with options.rows.open("a") as file:
            file.write(json.dumps(case | found | version) + "\n")
        print(f"{name}, lr {options.lr}, seed {options.seed}: {found['loss']}", flush=True)


def figure(options: argparse.Namespace) -> None:
    """Held-out loss of every case at its best learning rate: mean with interval, and a dot a seed."""
    from toeplix.experiments.engine import intervals, style

    rows = [json.loads(line) for line in options.rows.read_text().splitlines()]
    best: dict[str, list[float]] = {}
    for name in {row["case"] for row in rows}:
        by_rate: dict[float, list[float]] = {}
        for row in rows:
            if row["case"] == name:
                by_rate.setdefault(row["lr"], []).append(row["loss"])
        best[name] = min(by_rate.values(), key=statistics.mean)
    names = sorted(best, key=lambda name: statistics.mean(best[name]))
    drawing, (axes,) = style.panels(width=6.6, height=0.26 * len(names) + 0.6)
    for place, name in enumerate(names):
        mean = intervals.mean(best[name])
        own = style.look(name.replace(",", ""), linestyle="none")
        own["color"] = (
            own["color"] if name.split(",")[0] in ("hyena", "llama", "paper") else "#0072b2"
        )
        axes.plot(
            best[name], [place + 0.28] * len(best[name]), ".", color=own["color"], markersize=3
        )
        axes.plot(mean.value, place, markersize=5, **own)
        if len(best[name]) >= style.MIN_SEEDS:
            axes.plot([mean.low, mean.high], [place] * 2, color=own["color"], linewidth=1.4)
    every = [loss for losses in best.values() for loss in losses]
    axes.set_xlim(min(every) - 0.05, max(every) + 0.05)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    style.finish(axes, x="validation loss (nats per token)", y="")
    caption = (
        f"Loss after {rows[0]['budget']:.0f} s of one thread, each case at its best learning rate; small "
        "dots are seeds, large markers their means, bars 95% t intervals from three seeds on."
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(style.svg(style.compose(drawing, caption)), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run", help="train what is missing")
    running.add_argument("texts", nargs="+", type=Path)
    running.add_argument("--case", action="append", choices=list(CASES))
    running.add_argument("--documents", type=int, default=800, help="how many are read")
    running.add_argument("--lr", type=float, default=4e-3)
    running.add_argument("--seed", type=int, default=0)
    running.add_argument("--seconds", type=float, default=60.0)
    running.add_argument("--part", type=int, default=0, help="this process's share of the cases")
    running.add_argument("--parts", type=int, default=1)
    running.set_defaults(command=run)
    timed = commands.add_parser("speeds", help="time a step of every case")
    timed.add_argument("--seconds", type=float, default=6.0, help="for each case")
    timed.set_defaults(command=speeds)
    drawing = commands.add_parser("figure", help="draw the rows")
    drawing.add_argument("--out", type=Path, default=Path("figures/defaults.svg"))
    drawing.set_defaults(command=figure)
    here = Path("results/defaults")
    for command in (running, timed, drawing):
        command.add_argument("--rows", type=Path, default=here / "laptop.jsonl")
        command.add_argument("--speeds", type=Path, default=here / "speeds.json")
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
