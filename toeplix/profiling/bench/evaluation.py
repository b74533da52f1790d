"""Time of evaluating ARC-Easy relative to the forward passes that it needs.

    toeplix          log-likelihoods of the harness's requests, including tokenization and grouping
    forward          every request as a row of tokens, longest first, in padded batches: all logits
    forward, scored  the rows of `forward`, with logits at scored positions only

The two forward passes start from tokens and end before the softmax. Timings are interleaved.
"""

import random
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from toeplix import Model, build, save
from toeplix.data import Tokenizer
from toeplix.evaluation.formats import arc
from toeplix.evaluation.scoring import POSITIONS
from toeplix.profiling import timing
from toeplix.profiling.progress import announce

Question = tuple[str, list[str]]


def questions(root: Path | None, count: int) -> list[Question]:
    """Return ARC-Easy from its published file, or random words in as many questions of equal length."""
    if root is not None:
        rows = arc(root, "ARC-Easy").splits["test"][:count]
        return [(row["question"], row["choices"]["text"]) for row in rows]
    draw = random.Random(0)
    words = ["".join(draw.choices("aeioulnrst", k=draw.randint(2, 8))) for _ in range(3000)]

    def text(low: int, high: int) -> str:
        return " ".join(draw.choices(words, k=draw.randint(low, high)))

    return [(text(8, 40), [text(1, 8) for _ in range(4)]) for _ in range(count)]


def run(
    console: Console, root: Path | None, count: int, sizes: dict[str, Any], rounds: int
) -> dict[str, Any]:
    """Measure, print a table, and return the results as a JSON document."""
    asked = questions(root, count)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        tokenizer = Tokenizer.train((q + " " + " ".join(c) for q, c in asked), sizes["vocab"])
        tokenizer.save(folder)
        save(build(Model(**{**sizes, "vocab": tokenizer.vocab})), folder)
        report = measure(folder, asked, rounds)
    report |= {"questions": len(asked), "data": "ARC-Easy" if root else "random words", **sizes}
    console.print(table(report))
    return report


def measure(folder: Path, asked: list[Question], rounds: int) -> dict[str, Any]:
    from lm_eval.api.instance import Instance

    from toeplix.evaluation.model import Checkpoint

    where = torch.get_default_device()
    lm = Checkpoint(folder, device=where, dtype=torch.get_default_dtype())
    requests = [
        Instance(
            request_type="loglikelihood",
            doc={},
            arguments=(f"Question: {question}\nAnswer:", f" {choice}"),
            idx=place,
            metadata=("arc_easy", number, 1),
        )
        for number, (question, choices) in enumerate(asked)
        for place, choice in enumerate(choices)
    ]
    rows = []
    for request in requests:
        start, whole = lm.tok_encode(request.args[0]), lm.tok_encode("".join(request.args))
        rows.append((whole[:-1][: lm.max_length], len(whole) - len(start)))
    rows.sort(key=lambda row: -len(row[0]))
    contenders: dict[str, Callable[[], object]] = {
        "toeplix": lambda: lm.loglikelihood(requests, disable_tqdm=True),
        "forward": lambda: [lm.model(tokens) for tokens, _ in _padded(rows)],
        "forward, scored": lambda: [
            lm.model.logits(lm.model.features(tokens)[scored.to(tokens.device)][None])
            for tokens, scored in _padded(rows)
        ],
    }
    announce(f"{len(requests)} requests, {len(contenders)} contenders, {rounds + 1} rounds")
    with torch.no_grad():
        times = timing.interleaved(contenders, seconds=0, least=rounds, most=rounds)
    return {
        "requests": len(requests),
        "positions": sum(len(row) for row, _ in rows),
        "seconds": {name: round(statistics.median(taken), 3) for name, taken in times.items()},
        "toeplix_over": {
            name: round(timing.median_ratio(times["toeplix"], taken), 3)
            for name, taken in times.items()
        },
    }


def _padded(rows: list[tuple[list[int], int]]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Return right-padded batches of rows, and which positions are scored."""
    first = 0
    while first < len(rows):
        width = len(rows[first][0])
        part = rows[first : first + max(1, POSITIONS // width)]
        first += len(part)
        tokens = torch.zeros(len(part), width, dtype=torch.long, device="cpu")
        scored = torch.zeros(len(part), width, dtype=torch.bool, device="cpu")
        for place, (row, count) in enumerate(part):
            tokens[place, : len(row)] = torch.tensor(row, device="cpu")
            scored[place, len(row) - count : len(row)] = True
        yield tokens.to(torch.get_default_device()), scored


def table(report: dict[str, Any]) -> Table:
    drawn = Table(
        title=f"{report['data']}: {report['questions']} questions, {report['requests']} requests, "
        f"depth {report['depth']}, dim {report['dim']}"
    )
    for column in ("what", "seconds", "toeplix over it"):
        drawn.add_column(column, justify="left" if column == "what" else "right")
    for name, seconds in report["seconds"].items():
        drawn.add_row(name, f"{seconds:.2f}", f"{report['toeplix_over'][name]:.2f}x")
    return drawn
