"""Copying (Figure 5): how many steps models need to learn to copy their input.

The paper repeats natural text without a delimiter: the lag is constant, and a single tap of a filter
solves the task. We add three tasks on random tokens: copying after a delimiter, at a variable lag (also
evaluated on texts up to twice as long as in training); reversed copying; and selective copying of the
tokens between blanks. Reported are the steps to 95% accuracy and the "area", which is the mean accuracy
over all steps of a run.
"""

from typing import Any

from toeplix.experiments.engine import accuracies, intervals, style, task_training
from toeplix.experiments.engine.accuracies import gap, one
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import LINEAR, MODELS, PAPER_FLAT, PAPER_HEADS, Settings
from toeplix.experiments.engine.rows import Row
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.task_training import Case, TaskRow, best_rate, tuned

CLAIMS, MEASURES_TIME = ("C12", "C13"), False
COST = "15 minutes on two cores with --jobs 2"
RATES = (6e-3, 2e-3)
COMPARED: dict[str, Settings] = {
    **{name: MODELS[name] for name in ("toeplitz", "paper flat", "paper 4 heads")},
    **{name: MODELS[name] for name in ("masked", "hyena", "mamba2", "llama", "window")},
    "linear elu": LINEAR,
    "frozen flat": PAPER_FLAT | {"frozen": "random"},
    "frozen 4 heads": PAPER_HEADS | {"frozen": "random"},
}
HARDER_TASK_MODELS = ("toeplitz", "paper flat", "hyena", "mamba2", "llama")
WIDTH_DIVISORS = (2, 4, 8, 16, 32)  # divisors of the width
TMM = ("paper flat", "paper 4 heads")
EQUAL_AREAS = 0.05  # difference of areas below which two models count as equal
SIZES: task_training.Sizes = {
    "paper": {
        "vocab": 8000, "dim": 512, "depth": 16, "context": 1024, "batch": 64, "steps": 10_000,
        "warmup": 50, "eval_sequences": 5000,
    },
    "laptop": {
        "vocab": 500, "dim": 64, "depth": 2, "context": 48, "batch": 16, "steps": 300,
        "warmup": 20, "eval_sequences": 64,
    },
    "smoke": {
        "vocab": 500, "dim": 64, "depth": 1, "context": 8, "batch": 2, "steps": 2,
        "warmup": 1, "eval_sequences": 2,
    },
}  # fmt: skip
LAGS: task_training.Sizes = {
    "paper": {**SIZES["paper"], "vocab": 64, "context": 257},
    "laptop": {**SIZES["laptop"], "vocab": 32, "context": 25, "batch": 32, "steps": 400},
    "smoke": {**SIZES["smoke"], "vocab": 32, "context": 9},
}
PARTS = {"variable lag": "delimited", "reversed": "reversed", "selective": "selected"}


def cases(scale: Scale, rows: list[TaskRow]) -> list[Case]:
    same = {
        name: Case.at(scale, SIZES, name, settings, task="repeated", part="constant lag")
        for name, settings in COMPARED.items()
    }
    found = tuned(same.values(), scale, rows, RATES)
    flat = same["paper flat"]
    rate = best_rate(flat, scale, rows, RATES)
    for times in WIDTH_DIVISORS if rate is not None else ():
        narrow = {"task": "repeated", "part": "narrow", "dim": flat.dim // times, "lr": rate}
        found += [
            Case.at(scale, SIZES, flat.model, flat.settings, seed=seed, **narrow)
            for seed in scale.seeds
        ]
    for name in HARDER_TASK_MODELS:
        lagged = _lagged(scale, name, "variable lag")
        found += tuned([lagged], scale, rows, RATES)
        rate = best_rate(lagged, scale, rows, RATES)
        for part in list(PARTS)[1:] if rate is not None else ():
            found += [_lagged(scale, name, part, lr=rate, seed=seed) for seed in scale.seeds]
    return found


def _lagged(scale: Scale, name: str, part: str, **other: Any) -> Case:
    """Return a case of a task on random tokens, so that nothing can be predicted from language."""
    fields: dict[str, Any] = {"data": "", "task": PARTS[part], "part": part}
    fields["stretch"] = 2 if part == "variable lag" else 1
    return Case.at(scale, LAGS, name, COMPARED[name], **(fields | other))


measure = task_training.measure
table = accuracies.table


def figure(rows: list[TaskRow], published: list[Row]) -> Figure:
    drawing = style.canvas(3, 2)
    axes = drawing.subplots(2, 3)
    same = task_training.groups(rows, part="constant lag")
    for place, samples in zip(axes[0], (False, True), strict=False):
        accuracies.draw(place, same, title="constant lag, natural text", samples=samples)
    narrow = task_training.groups(rows, part="narrow") + [
        group for group in same if group[0]["model"] in ("paper flat", "hyena")
    ]
    accuracies.along(axes[0][2], narrow, "dim", x="width", title="constant lag: the end")
    for place, part in zip(axes[1], PARTS, strict=True):
        accuracies.draw(place, task_training.groups(rows, part=part), title=part)
    return drawing


def holds(rows: list[TaskRow]) -> dict[str, Verdict]:
    here = {name: one(rows, model=name, part="constant lag") for name in COMPARED}
    if not all(here.values()):
        return {}
    narrowest = min((row["dim"] for row in rows if row["part"] == "narrow"), default=None)
    narrow = one(rows, part="narrow", dim=narrowest) if narrowest else []
    found = {"C13": _trainable(here)}
    if narrow:
        found["C12"] = _order(here, narrow)
    return found


def _order(here: dict[str, list[TaskRow]], narrow: list[TaskRow]) -> Verdict:
    best = max(TMM, key=lambda name: _mean(here[name]))
    gaps = {
        f"llama minus {best}": (gap(here["llama"], here[best]), EQUAL_AREAS),
        f"hyena minus {best}": (gap(here["hyena"], here[best]), 0.0),
        "mamba2 minus hyena": (gap(here["mamba2"], here["hyena"]), 0.0),
        f"hyena minus paper flat of width {narrow[0]['dim']}": (
            gap(here["hyena"], narrow),
            EQUAL_AREAS,
        ),
    }
    answers, words = [], []
    for name, (difference, bound) in gaps.items():
        if difference is None:
            return Verdict(holds=None, ours=f"no seed has both of {name}")
        answers.append(intervals.below(difference, bound))
        words.append(f"{name} {difference}")
    steps = ", ".join(
        f"{name} {accuracies.steps_to_target(here[name])}"
        for name in (*TMM, "llama", "hyena", "mamba2")
    )
    return Verdict(
        holds=intervals.every(*answers), ours=f"area: {'; '.join(words)}; steps to 95%: {steps}"
    )


def _trainable(here: dict[str, list[TaskRow]]) -> Verdict:
    """Judge C13: frozen filters do not reach TARGET_ACCURACY, and the flat TMM has the largest area."""
    flat = here["paper flat"]
    rivals = [name for name in here if name not in ("paper flat", "toeplitz")]
    frozen = intervals.mean([row["accuracy"] for row in here["frozen flat"]])
    gaps = {name: gap(here[name], flat) for name in rivals}
    answers = [intervals.below(frozen, task_training.TARGET_ACCURACY)]
    answers += [intervals.below(each) for each in gaps.values() if each is not None]
    closest = max(rivals, key=lambda name: _mean(here[name]))
    words = (
        f"frozen flat ends at {frozen}, trained at "
        f"{intervals.mean([row['accuracy'] for row in flat])}; area of the closest rival, {closest}, "
        f"minus that of paper flat: {gaps[closest]}"
    )
    return Verdict(holds=intervals.every(*answers), ours=words)


def _mean(rows: list[TaskRow]) -> float:
    return sum(row["area"] for row in rows) / len(rows)
