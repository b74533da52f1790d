"""The paper's claims in Markdown: one table of all parts, and one section per claim."""

import re
from collections.abc import Callable, Sequence

from toeplix.experiments.engine import tuning
from toeplix.experiments.engine.claims import CLAIMS, KINDS, Claim, Verdict
from toeplix.experiments.engine.intervals import HOLM
from toeplix.experiments.engine.thresholds import MIN_TOKENS_PER_PARAMETER

REPORTED_SCALES = ("paper", "desk", "laptop")  # the numbers of smoke mean nothing
NOT_YET = "not yet measured"
FOLDED_FROM = 12  # lines from which a table is folded
WORDS = {  # for the names of models in rows
    "paper flat": "flat TMM",
    "paper 4 heads": "TMM with 4 heads",
    "frozen flat": "flat TMM with frozen filters",
    "frozen 4 heads": "TMM with 4 heads and frozen filters",
    "ones flat": "flat TMM with filters of ones",
    "ones 4 heads": "TMM with 4 heads and filters of ones",
    "two layers": "TMM with two Toeplitz layers",
    **{name: f"TMM with {name}" for name in ("4 heads", "4 kernels", "16 heads", "16 kernels")},
    "flat": "flat TMM",
    "masked": "Masked Mixer",
    "hyena": "Hyena",
    "mamba2": "Mamba 2",
    "llama": "Llama",
    "linear exp": "linear attention with exp",
    "linear elu": "linear attention with elu",
    **{f"window n/{each}": f"attention to the last n/{each} of n positions" for each in (8, 4, 2)},
    "window": "windowed attention",
    "hybrid": "the default model",
}
NAMES = re.compile(rf"(?<!with )\b({'|'.join(map(re.escape, WORDS))})\b(?! TMM)")

SCALES = (
    "- *desk*: two CPU cores, hours; your text; width 64, 4 layers, up to 3,000 steps of 16 x 128 tokens",
    "- *laptop*: two CPU cores, minutes; width 64, 4 layers, 300 steps of 8 x 128 tokens; all timings",
    "- *paper*: the published sizes, which need GPUs; nothing was run there",
)
COLUMNS = (
    "- *among those tried*: whether the best learning rate (or width) lies inside those tried, is the",
    '  lowest or the highest, or was the "only" one.',
    "- *step time*: of a training step, over that of the paper's flat model of width 64 at the same",
    "  scale; *time* in `frontier` is steps times step time.",
    "- *loss on repeated bigrams*: on tokens that repeat, with the token before them, an earlier bigram",
    "  of the same document; *on rare ones*: on those of them that are rare in the training text; *on",
    "  others*: on all other tokens.",
    "- *guessing*: the accuracy without reading the input beyond what the task's format gives away.",
    "- *area*: the mean accuracy over all steps of a run; *steps to 95%*: the steps to that accuracy,",
    "  interpolated between evaluations.",
    "- *breaks at*: the shortest length at which the mean accuracy is below 95%.",
    "- Means of three or more seeds have a 95% interval (±), means of two the two values.",
)
RULES = (
    HOLM,
    tuning.SEEDS_RULE,
    "Intervals are over seeds, except those of timings (C18 to C20), which are over rounds of timing",
    "or over context lengths, as the reason says. Parts that count (C7b, C7c, C16a, C16b) and ratios of",
    "numbers that do not vary or were measured once (C10c, C10d, C18c, C20a, C20b) have no interval: the",
    "number itself lies on the named side.",
    "",
    "A part is *control not trained* if a model that it is compared with has not learned enough to",
    "decide anything. On text, its loss must be below that of a bigram model of as many training",
    "tokens; where rows have no bigram loss (C17), it must have read",
    f"{MIN_TOKENS_PER_PARAMETER:g} training token per parameter. On a task, it must reach the target",
    "accuracy. A part that fails against one trained control fails, whatever the others say.",
    "",
    "Each verdict is that of the largest scale whose rows can test the part; if a larger one was run",
    "and cannot, that is said beside it. Rows of the first protocol (learning rates chosen on the",
    "reported data, one data order for all seeds) decide nothing, and are shown only where an",
    "experiment has no others.",
)

Verdicts = dict[str, dict[str, Verdict]]  # part of a claim -> scale -> verdict
Conditions = Callable[[str, str], list[str]]  # experiment, scale -> conditions of its rows


def overview(said: Verdicts, is_old: Callable[[str, str], bool]) -> list[str]:
    """Return the table of all parts, by the scale that tests them (`shown`), sorted by verdict.

    `is_old(experiment, scale)` says whether the rows are of the first protocol; these decide nothing.
    """
    lines = ["| | claim | verdict | number | reason |", "|---|---|---|---|---|"]
    order: list[str] = [*KINDS, NOT_YET]
    known = []
    for name, claim in CLAIMS.items():
        for part, said_of in claim.parts.items():
            scale, verdict = shown(said[part])
            old = verdict is not None and is_old(said_of.experiment, scale)
            word = _word(verdict, old)
            cells = [f"[{part}](#{name.lower()})", said_of.text]
            place = [f"{scale}: first protocol" if old else scale, *_larger(said[part], scale)]
            cells += [f"**{word}** ({'; '.join(place)})" if verdict else f"**{word}**"]
            # a number that decides nothing would be read as one that does
            decides = verdict is not None and not old and word != "control not trained"
            number = verdict.number if verdict and decides else ""
            cells += [number, plain(verdict.reason) if verdict else ""]
            known.append((order.index(word), cells))
    return lines + [row(cells) for _, cells in sorted(known, key=lambda each: each[0])]


def shown(by_scale: dict[str, Verdict]) -> tuple[str, Verdict | None]:
    """Return the verdict of the largest scale that can test the part, or else of the largest scale."""
    known = [scale for scale in REPORTED_SCALES if scale in by_scale]
    testing = [scale for scale in known if by_scale[scale].tests]
    return next(((scale, by_scale[scale]) for scale in [*testing, *known]), ("", None))


def _word(verdict: Verdict | None, old: bool) -> str:
    """Return a verdict in words; rows of the first protocol have none."""
    return NOT_YET if verdict is None or old else verdict.kind


def _larger(by_scale: dict[str, Verdict], scale: str) -> list[str]:
    """Return what larger scales say, which cannot test the part."""
    larger = REPORTED_SCALES[: REPORTED_SCALES.index(scale)] if scale else ()
    return [f"{each}: {by_scale[each].kind}" for each in larger if each in by_scale]


def plain(reason: str) -> str:
    """Return a reason with models named as in the text of the claims.

    >>> plain("llama minus paper 4 heads: below 0.05")
    'Llama minus TMM with 4 heads: below 0.05'
    >>> plain("time of hyena over that of flat TMM")
    'time of Hyena over that of flat TMM'
    """
    return NAMES.sub(lambda match: WORDS[match[1]], reason)


def sections(
    said: Verdicts,
    is_old: Callable[[str, str], bool],
    conditions: Conditions,
    reads_text: Callable[[str], bool],
) -> list[str]:
    """Return one section per claim: the paper's value, and for every scale numbers and conditions.

    `is_old` is that of `overview`; `reads_text(experiment)` says whether the user must name a text for
    scale desk.
    """
    lines = []
    for name, claim in CLAIMS.items():
        lines += ["", f"### {name}", "", f"In the paper: {claim.where}; value: {claim.value}."]
        lines += _numbers(claim, said, is_old)
        for experiment in claim.experiments:
            for scale in REPORTED_SCALES:
                if any(
                    scale in said[part]
                    for part, each in claim.parts.items()
                    if each.experiment == experiment
                ):
                    known = conditions(experiment, scale)
                    lines += [
                        "",
                        f"Rows of {experiment}, {scale} scale: {plain('; '.join(known))}.",
                    ] * bool(known)
            of = [said[part] for part, each in claim.parts.items() if each.experiment == experiment]
            scale = next((each for each in REPORTED_SCALES if any(each in by for by in of)), "desk")
            lines += ["", f"`{command(experiment, scale, reads_text(experiment))}`"]
    return lines


def command(experiment: str, scale: str, reads_text: bool) -> str:
    """Return the command that measures an experiment; at scale desk the user names a text."""
    text = " --corpus NAME=PATH" if scale == "desk" and reads_text else ""
    return f"toeplix experiment run {experiment} --scale {scale}{text}"


def _numbers(claim: Claim, said: Verdicts, is_old: Callable[[str, str], bool]) -> list[str]:
    lines = [
        "",
        "| | claim | scale | verdict | reason | all numbers |",
        "|---|---|---|---|---|---|",
    ]
    for part, each in claim.parts.items():
        for scale, verdict in said[part].items():
            said_here = [plain(verdict.reason), plain(verdict.ours)]
            word = _word(verdict, is_old(each.experiment, scale))
            cells = [part, each.text, scale, f"**{word}**", *said_here]
            lines.append(row(cells))
        if not said[part]:
            lines.append(row([part, each.text, "", NOT_YET, "", ""]))
    return lines


def row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def folded(title: str, table: list[str]) -> list[str]:
    """Return a table, folded behind its title if it is long."""
    if len(table) < FOLDED_FROM:
        return table
    summary = f"<details><summary>{title}: {len(table) - 2} lines</summary>"
    return [summary, "", *table, "", "</details>"]
