"""Verdicts on C9: what decoders read from the hidden states of frozen encoders (`retention`).

Decoders count as trained if others of their recipe can read the state of an encoder that was trained
together with a decoder. The learning rate of every group of decoders is the best of those tried.

Until 2026-11-18 decoders counted as trained only if they read more than the newest two tokens from the
compared states. 13 decoders had been measured by then, and read about 5% of the loss, so that all parts
would have been "control not trained". Whether decoders can read at all is another question than whether
there is anything to read; hence the autoencoder. docs/log.md says which verdicts depend on it.
"""

import statistics
from typing import Any, NotRequired

from toeplix.experiments.engine import intervals, task_training, task_tuning, tuning
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.encoders import AUTOENCODER, ENCODER
from toeplix.experiments.engine.thresholds import MIN_READ
from toeplix.experiments.engine.verdicts import Comparison, decide

COMPARED_TRAININGS = ("untrained", "language")
TMM = ("paper flat", "paper 4 heads")
RIVALS = ("hyena", "mamba2")
# parts of C9: whose loss training lowers ("": the better of TMM), and below whose loss TMM's is
RAISES = {"C9a": "", "C9b": "hyena", "C9c": "mamba2"}
MORE = {"C9d": "hyena", "C9e": "mamba2"}


class RetentionRow(task_training.LearningRow):
    """Fields of a `Case` and the measurements of its decoder."""

    lr: float
    training: str
    context: int
    vocab: int
    probe: dict[str, Any]
    encoder_lr: float
    tune_loss: NotRequired[float | None]


def chosen(
    rows: list[RetentionRow], name: str, training: str, part: str = "matched"
) -> list[RetentionRow]:
    """Return the rows of decoders on an encoder, at the best of their learning rates."""
    return tuning.at_best(alike(rows, name, training, part))


def alike(
    rows: list[RetentionRow], name: str, training: str, part: str, signal: str = "state"
) -> list[RetentionRow]:
    """Return rows that differ in seed and learning rate only."""
    wanted = (name, training, part, signal)
    return [
        row
        for row in rows
        if (row["model"], row["training"], row["part"], row["probe"]["signal"]) == wanted
    ]


def decoders(rows: list[RetentionRow]) -> dict[tuple[str, str, str], list[RetentionRow]]:
    """Return the rows of decoders by part (a control's with its signal), encoder and its training."""
    groups: dict[tuple[str, str, str], list[RetentionRow]] = {}
    for row in rows:
        if row["part"] == ENCODER:
            continue
        signal = f" {row['probe']['signal']}" if row["part"] == "control" else ""
        groups.setdefault((row["part"] + signal, row["model"], row["training"]), []).append(row)
    return dict(sorted(groups.items()))


def control_losses(
    rows: list[RetentionRow], signal: str = "none", training: str = "language"
) -> dict[int, float]:
    """Return the losses of the control decoders (by default those without a hidden state), by seed."""
    names = dict.fromkeys(row["model"] for row in rows if row["part"] == "control")
    several = [alike(rows, name, training, "control", signal) for name in names]
    return task_tuning.by_seed(tuning.at_best([row for each in several for row in each]), "loss")


def holds(rows: list[RetentionRow]) -> dict[str, Verdict]:
    losses = {
        (name, training): tuning.at_a_look(
            task_tuning.by_seed(chosen(rows, name, training), "loss")
        )
        for name in (*TMM, *RIVALS)
        for training in COMPARED_TRAININGS
    }
    best = best_tmm(rows) or ""
    compared = [
        losses.get((name, kind), {}) for name in (best, *RIVALS) for kind in COMPARED_TRAININGS
    ]
    if not set.intersection(*map(set, compared)):
        return {}
    control = _unread(rows) or _diverged(rows, best)
    parts: dict[str, list[Comparison]] = {}
    for part, which in RAISES.items():
        name = which or best
        less = intervals.difference(losses[name, "language"], losses[name, "untrained"])
        said = f"loss of decoders on {name}, trained minus untrained"
        parts[part] = [Comparison(name=said, interval=less, unit="nats", control=control)]
    for part, other in MORE.items():
        less = intervals.difference(losses[best, "language"], losses[other, "language"])
        said, theirs = f"loss of decoders on {best} minus {other}", _theirs(rows, other)
        parts[part] = [
            Comparison(name=said, interval=less, unit="nats", control=control, detail=theirs)
        ]
    return decide(parts)


def best_tmm(rows: list[RetentionRow]) -> str | None:
    """Return the better of the paper's two models by the encoders' loss on the tuning half.

    Rows of the first protocol have no such loss: the model whose decoders have the lower loss is taken.
    The result is None until both are measured.
    """
    levels = {
        name: [
            tuning.level(row)
            for row in rows
            if (row["part"], row["model"]) == (ENCODER, name) and "tune_loss" in row
        ]
        for name in TMM
    }
    scores = {name: min(several) for name, several in levels.items() if several}
    if not scores:
        losses = {name: task_tuning.by_seed(chosen(rows, name, "language"), "loss") for name in TMM}
        scores = {name: statistics.fmean(each.values()) for name, each in losses.items() if each}
    return min(TMM, key=lambda name: scores[name]) if set(scores) == set(TMM) else None


def _unread(rows: list[RetentionRow]) -> str:
    """Return why decoders count as not trained, or nothing: they must be able to read a state.

    The state is that of an encoder which was trained together with a decoder, and so became readable.
    From other states a decoder of the same recipe may miss what a larger or longer trained one would
    find: a part compares what these decoders read.
    """
    nothing, able = control_losses(rows), control_losses(rows, "state", AUTOENCODER)
    if not nothing or not able:
        return "there are no decoders without a hidden state, or with that of an autoencoder"
    share = 1 - statistics.fmean(able.values()) / statistics.fmean(nothing.values())
    if share >= MIN_READ:
        return ""
    return f"the state of an autoencoder saves decoders {share:.0%} of the loss, not {MIN_READ:.0%}"


def _diverged(rows: list[RetentionRow], best: str) -> str:
    """Return which decoders of the comparison diverged, or nothing: the others would be too good."""
    for name in (best, *RIVALS):
        for training in COMPARED_TRAININGS:
            group = chosen(rows, name, training)
            if count := sum(row["loss"] is None for row in group):
                return f"{count} of {len(group)} decoders on {name} ({training}) diverged"
    return ""


def _theirs(rows: list[RetentionRow], other: str) -> str:
    """Return the difference of losses under the paper's protocol, which is not matched, as text."""
    here, there = (
        task_tuning.by_seed(chosen(rows, name, "language", "as published"), "loss")
        for name in ("paper 4 heads", other)
    )
    if not set(here) & set(there):
        return ""
    return f"as published, 4 heads: {intervals.difference(here, there)}"
