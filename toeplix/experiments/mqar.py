"""Recall until the control solves it: multi-query associative recall over pairs, widths and lengths.

The control is the Transformer. It is trained on every setting for up to MAX_STEPS steps, at the best of
its learning rates, until it reaches the target accuracy; if its first seed does not, there are no others.
Its learning rates are tried one after the other; once one has reached the target, the next ones get no
more steps than it needed, since the fastest is used. Other models then get STEPS_MULTIPLE times the steps
that the control needed, and at least MIN_STEPS; on a setting that the control does not solve they are not
trained, and nothing is concluded. A run ends as soon as it reaches the target accuracy.

Settings differ in the number of pairs, the width or the length (more positions for the same pairs), and
an easy one is the first, so that it has other models. The learning rates of the other models are tuned at
the first setting, with all seeds, and around that rate at the other settings, with one seed: what is best
for few pairs may learn nothing of many. Mamba 2 is left out at scale desk: without its CUDA kernels a
step of it takes three times as long as one of Hyena, and five times as long as one of the paper's model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

from toeplix.experiments.engine import accuracies, style, task_training, task_tuning, tuning
from toeplix.experiments.engine.chance import guessing
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import MODELS
from toeplix.experiments.engine.rows import Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.task_training import TaskRow
from toeplix.experiments.engine.task_tuning import best_rate, groups, tuned
from toeplix.experiments.engine.thresholds import TARGET_ACCURACY

CLAIMS: tuple[str, ...] = ()
MEASURES_TIME = False
COST = "20 minutes on two cores with --jobs 2; at scale desk two hours"
RATES = (2e-3, 4e-3)
CONTROL = "llama"
NAMES = ("hybrid", "toeplitz", "paper flat", "hyena", "mamba2")
SLOW_ON_CPU = ("mamba2",)  # not at scale desk
PART = "until solved"
STEPS_MULTIPLE = 2  # steps of other models over those that the control needed
MIN_STEPS = {"paper": 10_000, "desk": 500, "laptop": 200, "smoke": 2}


class Setting(NamedTuple):
    """Sizes of one task."""

    pairs: int
    dim: int
    context: int


# learning rates are tuned on the first, which the control must solve; others change one or two sizes
SETTINGS: dict[str, tuple[Setting, ...]] = {
    "paper": (
        Setting(64, 128, 512),
        *(Setting(pairs, 128, 512) for pairs in (16, 32, 128)),
        *(Setting(64, dim, 512) for dim in (64, 256)),
        Setting(64, 128, 1024),
    ),
    "desk": (
        Setting(4, 64, 64),
        Setting(8, 64, 64),
        Setting(16, 64, 64),
        Setting(8, 32, 64),
        Setting(8, 64, 128),
    ),
    "laptop": (Setting(4, 64, 32), Setting(2, 64, 32), Setting(4, 32, 32), Setting(4, 64, 64)),
    "smoke": (Setting(2, 16, 16), Setting(1, 16, 16)),
}
SIZES: task_training.Sizes = {
    "paper": {"vocab": 8192, "depth": 2, "batch": 64, "steps": 100_000, "eval_sequences": 1000},
    "desk": {"vocab": 129, "depth": 2, "batch": 64, "steps": 10_000, "eval_sequences": 256},
    "laptop": {"vocab": 65, "depth": 2, "batch": 64, "steps": 2000, "eval_sequences": 128},
    "smoke": {"vocab": 17, "depth": 1, "batch": 2, "steps": 4, "eval_sequences": 2},
}  # MAX_STEPS of the control
WARMUP = {"paper": 1000, "desk": 100, "laptop": 20, "smoke": 1}


@dataclass(frozen=True, kw_only=True)
class Case(task_training.Case):
    """A run that ends at the target accuracy, or at `limit`: then another learning rate was faster."""

    limit: int | None = None

    @property
    def stop_at(self) -> float:
        return TARGET_ACCURACY

    @property
    def last_step(self) -> int:
        return self.steps if self.limit is None else self.limit


def cases(scale: Scale, rows: list[TaskRow]) -> list[Case]:
    found: list[Case] = []
    first = SETTINGS[scale.name][0]
    for setting in SETTINGS[scale.name]:
        found += _control_cases(scale, setting, rows)
        steps = steps_of_others(scale, setting, rows)
        if steps is None:
            continue
        for name in names(scale):
            case = replace(_case(scale, name, setting), steps=steps)
            if setting == first:
                found += tuned([case], scale, rows, RATES)
                continue
            known = steps_of_others(scale, first, rows)
            if known is None:
                continue
            base = replace(_case(scale, name, first), steps=known)
            rate = best_rate(base, scale, rows, RATES)
            if rate is None:
                continue
            grid = tuning.around(rate, task_tuning.grid_of(base, scale, RATES))
            found += tuned([case], replace(scale, seeds=scale.seeds[:1]), rows, grid)
    return found


def _control_cases(scale: Scale, setting: Setting, rows: list[TaskRow]) -> list[Case]:
    """Return the runs of the control: other seeds only if the first solves the setting."""
    control, first = _case(scale, CONTROL, setting), scale.seeds[0]
    tried = {row["lr"]: row for row in _rows_of(control, rows) if row["seed"] == first}
    whole = [row for row in tried.values() if row.get("diverged") is None]
    fastest = min((steps for row in whole if (steps := row.get("tune_solved"))), default=None)
    found: list[Case] = []
    missing: list[Case] = []
    for case in tuned([control], replace(scale, seeds=(first,)), rows, RATES):
        if case.lr in tried:
            fields: Mapping[str, Any] = tried[case.lr]
            found.append(replace(case, limit=fields.get("limit")))
        else:
            missing.append(replace(case, limit=fastest))
    if missing or steps_of_others(replace(scale, seeds=(first,)), setting, rows) is None:
        return found + missing[:1]
    return found + [case for case in tuned([control], scale, rows, RATES) if case.seed != first]


def names(scale: Scale) -> tuple[str, ...]:
    """Return the models that are compared with the control."""
    return tuple(name for name in NAMES if scale.name != "desk" or name not in SLOW_ON_CPU)


def _case(scale: Scale, name: str, setting: Setting) -> Case:
    return Case.at(
        scale,
        SIZES,
        name,
        MODELS[name],
        data="",
        part=PART,
        task="pairs",
        options={"pairs": setting.pairs},
        dim=setting.dim,
        context=setting.context,
        warmup=WARMUP[scale.name],
    )


def steps_of_others(scale: Scale, setting: Setting, rows: list[TaskRow]) -> int | None:
    """Return the steps that other models get on a setting; None if the control has not solved it."""
    control = _case(scale, CONTROL, setting)
    rate = best_rate(control, scale, rows, RATES)
    mine = [row for row in _rows_of(control, rows) if row["lr"] == rate]
    if not set(scale.seeds) <= {row["seed"] for row in mine}:
        return None
    needed = [row["solved"] for row in mine if row["seed"] in scale.seeds]
    solved = [steps for steps in needed if steps is not None]
    if scale.name == "smoke":  # four steps solve nothing, and all models should run
        return MIN_STEPS["smoke"]
    if len(solved) < len(needed):
        return None
    most = STEPS_MULTIPLE * max(solved)
    return min(SIZES[scale.name]["steps"], max(MIN_STEPS[scale.name], -(-most // 100) * 100))


def _rows_of(case: Case, rows: list[TaskRow]) -> list[TaskRow]:
    """Return the rows of a case at all learning rates and seeds."""
    return [row for row in rows if task_tuning.identity(row) == task_tuning.identity(vars(case))]


measure = task_training.measure


def table(rows: list[TaskRow]) -> Table:
    """Return accuracies, the accuracy of guessing, and whether the control solves the setting."""
    found = []
    for group, line in accuracies.lines(rows):
        row = group[0]
        guess = guessing(row["context"], row["vocab"], **row["options"])
        found.append(line | {"steps": row["steps"], "guessing": f"{guess:.3f}"})
    return found


def figure(rows: list[TaskRow], published: list[Row]) -> Figure:
    """Plot the accuracy of all models on every setting, and the steps that they needed."""
    several = groups(rows, part=PART)
    settings = list(dict.fromkeys(_setting(group) for group in several))
    known = [CONTROL, *NAMES]
    looks = style.looks(known)
    drawing, axes = style.panels(2, width=4.9, height=3.2)
    for place, setting in enumerate(settings):
        here = {group[0]["model"]: group for group in several if _setting(group) == setting}
        guess = guessing(setting.context, next(iter(here.values()))[0]["vocab"], setting.pairs)
        axes[0].plot([place - 0.4, place + 0.4], [guess] * 2, color=style.GREY, linewidth=1)
        style.word(axes[0], (place - 0.4, guess), "guess", xytext=(0, 2))
        for number, name in enumerate(known):
            if name not in here:
                continue
            own: dict[str, Any] = looks[name] | {"linestyle": "none", "markersize": 5}
            x = place + 0.12 * (number - (len(known) - 1) / 2)
            label = name if place == 0 else None
            accuracy = fmean(row["accuracy"] for row in here[name])
            axes[0].plot(x, accuracy, label=label, **own)
            solved = [row["solved"] for row in here[name] if row["solved"] is not None]
            reached = len(solved) == len(here[name])
            steps = fmean(solved) if reached else here[name][0]["steps"]
            fill: dict[str, Any] = {} if reached else {"markerfacecolor": "none"}
            axes[1].plot(x, steps, **own, **fill)
    labels = [f"{each.pairs} pairs\nd={each.dim}\nn={each.context}" for each in settings]
    for panel in axes:
        panel.set_xticks(range(len(settings)), labels)
        panel.set_xlim(-0.5, len(settings) - 0.5)
    style.level(axes[0], TARGET_ACCURACY, "solved")
    axes[0].set_ylim(-0.03, 1.05)
    style.finish(axes[0], x="", y=accuracies.ACCURACY, title="accuracy at the end")
    style.finish(axes[1], x="", y="steps", title="steps to the target; hollow: not reached")
    style.log_ticks(axes[1], y=True)
    caption = (
        "Multi-query associative recall: means over seeds, each model at its best learning rate. Other "
        f"models get {STEPS_MULTIPLE} times the steps that {CONTROL} needed; settings that it does not "
        "solve have no other models."
    )
    return style.compose(drawing, caption)


def _setting(group: list[TaskRow]) -> Setting:
    row = group[0]
    return Setting(row["options"]["pairs"], row["dim"], row["context"])


def holds(rows: list[TaskRow]) -> dict[str, Verdict]:
    """Return no verdicts: the paper makes no claim about recall."""
    return {}
