"""Models whose filters are looked at: untrained, and trained on language, on copying, as autoencoders.

    untrained     as drawn
    language      the next token of text
    copy          text twice, no sign between; only the second half is scored. One tap at lag n/2 would do
    autoencoder   a text to one vector to the same text; encoder and decoder are Toeplitz models:

        e = features at the last position,  x[i] = W (e[i], e[i+1], ..., e[i + d/2 - 1]), circular

A case is trained once; the experiments `index`, `symbols` and `filters` read the same weights.
"""

import hashlib
import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toeplix.experiments import learning, models
from toeplix.experiments.rows import Row
from toeplix.experiments.scale import Scale

TASKS = ("untrained", "language", "copy", "autoencoder")
STARTS = {"paper flat": models.PAPER_FLAT, "toeplitz": {}}
LONGER = 4  # steps of an autoencoder, which learns slowly, over those of the others
SCORED = 64  # held-out rows


@dataclass(frozen=True, kw_only=True)
class Case(learning.Sized):
    """One model, trained or not."""

    task: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def cases(scale: Scale, rows: list[Row]) -> list[Case]:
    """The paper's flat model on every task, at a second width for language; and our default's start."""
    found = []
    for seed in scale.seeds:
        for name, settings in STARTS.items():
            rates = sorted(scale.rates) or [models.published_rate(settings)]
            make = partial(Case.of, scale, name, settings, seed=seed)
            text = partial(make, task="language", lr=rates[len(rates) // 2])
            twice = {"context": 2 * scale.context, "steps": 2 * scale.steps}
            found += [text(), make(task="copy", lr=rates[0], **twice)]
            if name == "paper flat":
                found += [make(task="untrained", lr=rates[0]), text(dim=scale.dim // 2)]
                found += [make(task="autoencoder", lr=rates[0], **_squeezed(scale))]
    return found


def _squeezed(scale: Scale) -> dict[str, Any]:
    """Sizes of an autoencoder; below the paper's, texts that a vector of that width can learn to hold."""
    if scale.name == "paper":
        return {}
    context = max(4, scale.dim // 4)
    batch = scale.batch * max(1, scale.context // context)
    depth = max(1, scale.depth // 2)
    return {"context": context, "batch": batch, "depth": depth, "steps": LONGER * scale.steps}


class Autoencoder(nn.Module):
    """Tokens to one vector to logits of the same tokens."""

    def __init__(self, encoder: Any, decoder: Any) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        dim = encoder.config.dim
        self.project = nn.Linear(dim // 2, dim)
        start = torch.arange(encoder.config.context)[:, None]
        self.register_buffer("window", (start + torch.arange(dim // 2)) % dim, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        kept = self.encoder.features(tokens)[:, -1]
        x = self.project(kept[:, self.window])
        for block in self.decoder.blocks:
            x = block(x)
        return self.decoder.head(self.decoder.norm(x))


def copying(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Text (b, n/2) twice, and labels of the second half only.

    7 8 9 -> inputs 7 8 9 7 8 9, labels - - 7 8 9 -
    """
    inputs = torch.cat([tokens, tokens], dim=1)
    labels = torch.full_like(inputs, -100)
    half = tokens.shape[1]
    labels[:, half - 1 : -1] = tokens
    return inputs, labels


def train(case: Case, work: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The filters by name, and how well the model does its task: trained, or read."""
    from safetensors.torch import load_file, save_file

    from toeplix.files import replace_file

    folder = work / "operators" / case.digest
    weights, scores = folder / "kernels.safetensors", folder / "scores.json"
    with learning.alone(work, f"operators-{case.digest}"):
        if not scores.exists():
            model, score = _trained(case, work)
            kept = {
                name: value.detach().contiguous()
                for name, value in model.state_dict().items()
                if name.endswith(".kernel")
            }
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(weights, lambda aside: save_file(kept, aside))
            text = json.dumps(score)
            replace_file(scores, lambda aside: aside.write_text(text))
    return load_file(weights), json.loads(scores.read_text())


def _trained(case: Case, work: Path) -> tuple[nn.Module, dict[str, Any]]:
    from toeplix import build, load
    from toeplix.train import fit

    if case.task == "language":
        fields = asdict(case) | {"timing": 0.0, "reference": case.dim}
        del fields["task"]
        run = learning.run_of(learning.Case(**fields), work)
        folder = work / "runs" / run.digest
        with learning.alone(work, f"run-{run.digest}"):
            fit(run, folder)
        from toeplix import logs

        held = [row["held_loss"] for row in logs.read(folder) if "held_loss" in row]
        return load(folder / "model"), {"loss": held[-1], "accuracy": None}
    store = learning.corpus(case, work)
    sizes = {"dim": case.dim, "depth": case.depth, "context": case.context, "vocab": store.vocab}
    config = models.model(case.settings, **sizes)
    torch.manual_seed(case.seed)
    if case.task == "untrained":
        return build(config), {"loss": None, "accuracy": None}
    model: nn.Module = build(config)
    if case.task == "autoencoder":
        model = Autoencoder(model, build(replace(config)))
    return model, _learn(model, case, store)


def _learn(model: nn.Module, case: Case, store: Any) -> dict[str, Any]:
    """AdamW with warm-up and linear decay, as everywhere; loss and accuracy on held-out text."""
    batches = _texts(case, store.train)
    optimizer = torch.optim.AdamW(model.parameters(), lr=case.lr, weight_decay=0.0)
    shape = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, case))
    for _ in range(case.steps):
        inputs, labels = _task(case, next(batches))
        loss = F.cross_entropy(model(inputs).flatten(0, 1), labels.flatten())
        if not torch.isfinite(loss):
            raise ValueError(f"{case.task}: the loss is {loss.item()}")
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        shape.step()
    losses, right = [], []
    with torch.no_grad():
        held = _texts(case, store.held)
        for _ in range(max(1, SCORED // case.batch)):
            inputs, labels = _task(case, next(held))
            logits, scored = model(inputs), labels >= 0
            losses.append(F.cross_entropy(logits[scored], labels[scored]).item())
            right.append((logits.argmax(-1) == labels)[scored].float().mean().item())
    return {"loss": statistics.fmean(losses), "accuracy": statistics.fmean(right)}


def _rate(step: int, case: Case) -> float:
    return min((step + 1) / max(1, case.warmup), (case.steps - step) / case.steps)


def _task(case: Case, tokens: Tensor) -> tuple[Tensor, Tensor]:
    return copying(tokens) if case.task == "copy" else (tokens, tokens)


def _texts(case: Case, split: Any) -> Iterator[Tensor]:
    """Batches of text for ever; a copied one is half as long as the context."""
    from toeplix.data import Packed

    length = case.context // 2 if case.task == "copy" else case.context
    epoch = 0
    while True:
        rows = Packed(split, context=length, seed=case.seed, epoch=epoch)
        if not len(rows):
            raise ValueError(f"{case.data} has no text of {length} tokens")
        for start in range(0, len(rows), case.batch):
            stop = start + case.batch
            # the end of an epoch goes on at its beginning
            texts = [rows[place % len(rows)]["tokens"] for place in range(start, stop)]
            yield torch.stack(texts)
        epoch += 1


def groups(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows by what they are, as tables and figures name it: one row a seed."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(label(row), []).append(row)
    first = {name: TASKS.index(group[0]["task"]) for name, group in found.items()}
    return dict(sorted(found.items(), key=lambda item: (first[item[0]], item[1][0]["model"])))


def label(row: Row) -> str:
    start = "" if row["model"] == "paper flat" else ", our start"
    return f"{row['task']}, d={row['dim']}{start}"


def chosen(rows: list[Row], task: str, model: str = "paper flat") -> list[Row]:
    """Rows of a task, of the widest model."""
    mine = [row for row in rows if row["task"] == task and row["model"] == model]
    widest = max((row["dim"] for row in mine), default=0)
    return [row for row in mine if row["dim"] == widest]


def rounded(kernel: Tensor, digits: int = 6) -> list[float]:
    """Taps for a row: so many significant digits."""
    return [
        float(f"{value:.{digits}g}") if math.isfinite(value) else value for value in kernel.tolist()
    ]
