"""Retention (Figures 4a, c): how much of a text can be recovered from the hidden state of its last token.

An encoder is frozen (untrained, trained on the next token, or trained on copying), and a decoder is
trained to reconstruct the text from one hidden state. Matched protocol: all architectures have the same
decoder, token position, embedding (the encoder's own) and recipe, and hidden states are normalised to one
size. As published: token position, embedding, decoder, batch size and learning rate differ between
architectures. Controls: no hidden state, the hidden state of another text, and that of an encoder which
was trained together with a decoder: decoders that cannot read it decide nothing. "Bits kept" is the loss
of a decoder without the hidden state minus the loss of a decoder with it, in bits per token. Encoders are
trained at their own best learning rate, which the part "encoder" chooses by their loss on language. At
scale desk the learning rates of decoders are tuned too, for every encoder on other validation text, and
there is what decides the claim: Hyena, Mamba 2 and that of the paper's two models whose encoder has the
lower loss, untrained and trained on language, under the matched protocol, and the controls without a
hidden state and with that of an autoencoder.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from toeplix.experiments.engine import (
    accuracies,
    encoders,
    intervals,
    models,
    retention_verdicts,
    style,
    task_training,
    task_tuning,
    tuning,
)
from toeplix.experiments.engine.encoders import AUTOENCODER, ENCODER, Case
from toeplix.experiments.engine.models import MODELS, Settings
from toeplix.experiments.engine.retention_verdicts import (
    COMPARED_TRAININGS,
    MORE,
    RAISES,
    RIVALS,
    TMM,
    RetentionRow,
    alike,
    best_tmm,
    chosen,
    control_losses,
    decoders,
)
from toeplix.experiments.engine.rows import Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Axes, Figure

CLAIMS, MEASURES_TIME = ("C9",), False
COST = "15 minutes on two cores with --jobs 2; at scale desk 100 minutes"
NAMES = ("toeplitz", "paper flat", "paper 4 heads", "masked", "hyena", "mamba2", "llama", "window")
COMPARED = {name: MODELS[name] for name in NAMES}
TRAININGS = (*COMPARED_TRAININGS, "copy")
SIGNALS = ("none", "shuffled")  # of controls
DECODER_RATES = {"desk": (1.6e-3, 4e-3, 1e-2)}  # other scales have the one of SIZES
DECODER: dict[str, Any] = {"arch": "masked", "heads": 4}
MATCHED: dict[str, Any] = {"token": -1, "norm": True, "embedding": "own", "signal": "state"}
# the settings of the authors' scripts; learning rate and batch size relative to those of the first
PUBLISHED: dict[str, Settings] = {
    "paper 4 heads": {"token": -2, "embedding": "new", "decoder": DECODER},
    "hyena": {"embedding": "new", "decoder": MODELS["hyena"], "rate": 0.4, "batch": 2},
    "mamba2": {"decoder": MODELS["mamba2"], "rate": 0.2},
}
SIZES: task_training.Sizes = {
    "paper": {
        "vocab": 8000, "dim": 512, "depth": 16, "context": 512, "batch": 128, "steps": 200_000,
        "warmup": 500, "eval_sequences": 50_000, "lr": 5e-4, "learned": 200_000,
    },
    "desk": {
        "vocab": 500, "dim": 64, "depth": 4, "context": 32, "batch": 32, "steps": 2000,
        "warmup": 100, "eval_sequences": 512, "lr": 4e-3, "learned": 2000,
    },
    "laptop": {
        "vocab": 500, "dim": 64, "depth": 2, "context": 16, "batch": 32, "steps": 1000,
        "warmup": 20, "eval_sequences": 256, "lr": 1e-2, "learned": 300,
    },
    "smoke": {
        "vocab": 500, "dim": 16, "depth": 1, "context": 4, "batch": 2, "steps": 2,
        "warmup": 1, "eval_sequences": 2, "lr": 4e-3, "learned": 2,
    },
}  # fmt: skip


def cases(scale: Scale, rows: list[RetentionRow]) -> list[Case]:
    """Return the runs that tune encoders, and the decoders of encoders whose rate is known."""
    found, rates = [], {}
    first = scale.seeds[0]
    desk = scale.name == "desk"
    if desk:
        scale = replace(
            scale, all_seeds=False
        )  # decoders are many: more seeds where three are too few
    trainings, signals = (COMPARED_TRAININGS, SIGNALS[:1]) if desk else (TRAININGS, SIGNALS)
    for name in (*TMM, *RIVALS) if desk else COMPARED:
        tried = encoder_rates(rows, name, first)
        grid = scale.rates or (models.published_rate(COMPARED[name]),)
        found += [
            _case(scale, name, seed=first, training="language", part=ENCODER, encoder_lr=lr)
            for lr in tuning.rates(grid, tried)
        ]
        rates[name] = tuning.best(grid, tried)
    known = {name: rate for name, rate in rates.items() if rate is not None}
    control = "toeplitz"  # the encoder of the decoders without a state, and the autoencoder's
    if desk:
        better = best_tmm(rows)
        if better is None or len(known) < len(rates):
            return found
        control = better
        known = {name: rate for name, rate in known.items() if name in (control, *RIVALS)}
    more = _unsettled(scale, rows)
    for name, rate in known.items():
        make = partial(_case, scale, name, seed=first, encoder_lr=rate)
        several = [make(training=training) for training in trainings]
        if name == control:
            probes = [MATCHED | {"signal": signal} for signal in signals]
            several += [make(training="language", part="control", probe=each) for each in probes]
            trained = {"training": AUTOENCODER, "encoder_lr": SIZES[scale.name]["lr"]}
            several.append(make(part="control", **trained))
        for case in several:
            found += _tuned(case, scale, rows, tuning.seeds(scale, name in more))
        if name in PUBLISHED and not desk:
            found += [_published(scale, name, seed, rate) for seed in scale.seeds]
    return found


def _tuned(case: Case, scale: Scale, rows: list[RetentionRow], seeds: Sequence[int]) -> list[Case]:
    """Return a decoder at all learning rates with its seed, and at the best with all seeds."""
    grid = DECODER_RATES.get(scale.name, (case.lr,))
    group = alike(rows, case.model, case.training, case.part, case.probe["signal"])
    group = [row for row in group if row["encoder_lr"] == case.encoder_lr]
    tried = {row["lr"]: tuning.level(row) for row in group if row["seed"] == case.seed}
    # a rate at which another seed diverged is given up for the next best
    tried |= {row["lr"]: math.inf for row in group if tuning.level(row) == math.inf}
    found = [replace(case, lr=lr) for lr in tuning.rates(grid, tried)]
    best = tuning.best(grid, tried)
    if best is not None:
        # what is measured stays a case of the experiment
        measured = sorted(row["seed"] for row in group if row["lr"] == best)
        every = dict.fromkeys((*seeds, *measured))
        found += [replace(case, lr=best, seed=seed) for seed in every if seed != case.seed]
    return found


def encoder_rates(rows: Sequence[RetentionRow], name: str, seed: int) -> dict[float, float]:
    """Return the tuning loss of a model's encoders by learning rate; infinite if the run diverged."""
    return {
        row["encoder_lr"]: tuning.level(row)
        for row in rows
        if (row["part"], row["model"], row["seed"]) == (ENCODER, name, seed)
    }


def _unsettled(scale: Scale, rows: list[RetentionRow]) -> set[str]:
    """Return the models of the parts of the claim that the scale's seeds leave undecided."""
    best = best_tmm(rows) or ""
    groups = [chosen(rows, name, kind) for name in (best, *RIVALS) for kind in COMPARED_TRAININGS]
    if not all(set(scale.seeds) <= {row["seed"] for row in group} for group in groups):
        return set()
    first = [row for row in rows if row["seed"] in scale.seeds]
    open_parts = [part for part, said in holds(first).items() if said.kind == "undecided"]
    compared = {part: {name or best} for part, name in RAISES.items()}
    compared |= {part: {best, other} for part, other in MORE.items()}
    return {name for part in open_parts for name in compared[part]}


def _case(scale: Scale, name: str, **other: Any) -> Case:
    settings = COMPARED[name]
    common: dict[str, Any] = {
        "encoder_batch": SIZES[scale.name]["batch"],
        "decoder": DECODER,
        "probe": MATCHED,
    }
    return Case.of(scale, name, settings, **(common | dict(SIZES[scale.name]) | other))


def _published(scale: Scale, name: str, seed: int, rate: float) -> Case:
    theirs: dict[str, Any] = {"token": -1, "embedding": "own", "rate": 1.0, "batch": 1} | PUBLISHED[
        name
    ]
    case = _case(scale, name, seed=seed, training="language", part="as published", encoder_lr=rate)
    probe = {"token": theirs["token"], "norm": False, "embedding": theirs["embedding"]}
    return replace(
        case,
        probe=probe | {"signal": "state"},
        decoder=theirs["decoder"],
        lr=case.lr * theirs["rate"],
        batch=case.batch * theirs["batch"],
    )


measure, holds = encoders.measure, retention_verdicts.holds


def figure(rows: list[RetentionRow], published: list[Row]) -> Figure:
    titles = {"matched": "matched, encoder: language", "as published": "as published"}
    found = {part: [group for group in _by_model(rows, part) if group] for part in titles}
    drawing, axes = style.panels(1 + sum(map(bool, found.values())))
    decoded = [row for name in COMPARED for kind in TRAININGS for row in chosen(rows, name, kind)]
    names = [name for name in COMPARED if any(row["model"] == name for row in decoded)]
    for place, training in enumerate(TRAININGS):
        some = [row for row in decoded if row["training"] == training]
        _means(axes[0], some, names, label=f"encoder: {training}", number=place)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(max(1, len(names)) - 0.5, -0.5)
    style.finish(axes[0], x="loss (nats per token)", y="", title="matched protocol")
    if control := list(control_losses(rows).values()):
        style.level(axes[0], statistics.fmean(control), "no state", vertical=True)
    known = [part for part in titles if found[part]]
    for panel, part in zip(axes[1:], known, strict=True):
        accuracies.draw(panel, found[part], title=titles[part])
        height, text = _baseline(rows)
        style.level(panel, height, f"{text}: {height:.2g}")
    text = "Reading a text from the last hidden state of a frozen encoder."
    if able := list(control_losses(rows, "state", AUTOENCODER).values()):
        level = statistics.fmean(able)
        text += f" From that of an autoencoder, decoders read it with a loss of {level:.2f}."
    return style.compose(drawing, f"{text} {style.INTERVALS}")


def _baseline(rows: list[RetentionRow]) -> tuple[float, str]:
    """Return the accuracy of decoders without a hidden state, and its name in figures."""
    several = [alike(rows, name, "language", "control", SIGNALS[0]) for name in COMPARED]
    control = tuning.at_best([row for each in several for row in each])
    if control:
        return statistics.fmean(row["accuracy"] for row in control), "no state"
    return 1 / rows[0]["vocab"], "uniform guess"


def _means(
    axes: Axes, rows: list[RetentionRow], names: Sequence[str], *, label: str, number: int
) -> None:
    """Plot mean losses by model with intervals; kinds of encoders are separated by their number."""
    own: dict[str, Any] = {"color": style.OTHERS[number], "linestyle": "none", "markersize": 4}
    for line, name in enumerate(names):
        losses = [row["loss"] for row in rows if row["model"] == name and row["loss"] is not None]
        if not losses:
            continue
        mean, place = intervals.mean(losses), line + 0.25 * (number - 1)
        axes.plot(mean.value, place, "o^s"[number], label=label, **own)
        if len(losses) >= style.MIN_SEEDS:
            axes.plot([mean.low, mean.high], [place] * 2, color=own["color"], linewidth=1.1)


def _by_model(rows: list[RetentionRow], part: str) -> Iterable[list[RetentionRow]]:
    return [chosen(rows, name, "language", part) for name in COMPARED]


def table(rows: list[RetentionRow]) -> Table:
    """Return loss, bits kept per token, their share of all bits, and accuracy."""
    nothing = control_losses(rows)
    found = []
    for (part, name, training), tried in decoders(rows).items():
        group = tuning.at_best(tried)
        here = task_tuning.by_seed(group, "loss")
        line = {"part": part, "encoder": name, "trained on": training}
        line["learning rate"] = f"{group[0]['lr']:g}"
        line["among those tried"] = tuning.place(group[0]["lr"], (row["lr"] for row in tried))
        line["loss"] = str(intervals.mean(list(here.values()))) if here else "diverged"
        if set(here) & set(nothing):
            kept = intervals.difference(nothing, here)
            line["bits kept per token"] = str(kept.scaled(1 / math.log(2)))
            line["share"] = f"{kept.value / statistics.fmean(nothing.values()):.1%}"
        line["accuracy"] = str(intervals.mean([row["accuracy"] for row in group]))
        found.append(line)
    return found
