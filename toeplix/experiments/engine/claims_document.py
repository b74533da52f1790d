"""The paper's claims in Markdown: one table of all parts, and one section per claim."""

from collections.abc import Callable, Sequence

from toeplix.experiments.engine.claims import CLAIMS, KINDS, Claim, Verdict

REPORTED_SCALES = ("paper", "desk", "laptop")  # the numbers of smoke mean nothing
NOT_YET = "not yet measured"
FOLDED_FROM = 12  # lines from which a table is folded

Verdicts = dict[str, dict[str, Verdict]]  # part of a claim -> scale -> verdict
Conditions = Callable[[str, str], list[str]]  # experiment, scale -> conditions of its rows


def overview(said: Verdicts, is_old: Callable[[str, str], bool]) -> list[str]:
    """Return the table of all parts, by the largest scale that has rows, sorted by verdict.

    `is_old(experiment, scale)` says whether the rows are of the first protocol.
    """
    lines = ["| | claim | verdict | number | reason |", "|---|---|---|---|---|"]
    order = [*KINDS, NOT_YET]
    known = []
    for name, claim in CLAIMS.items():
        for part, said_of in claim.parts.items():
            scale, verdict = largest(said[part])
            word = verdict.kind if verdict else NOT_YET
            cells = [f"[{part}](#{name.lower()})", said_of.text]
            old = verdict is not None and is_old(said_of.experiment, scale)
            place = f" ({scale}{', first protocol' if old else ''})" if verdict else ""
            cells += [f"**{word}**{place}"]
            cells += [verdict.number, verdict.reason] if verdict else ["", ""]
            known.append((order.index(word), cells))
    return lines + [row(cells) for _, cells in sorted(known, key=lambda each: each[0])]


def largest(by_scale: dict[str, Verdict]) -> tuple[str, Verdict | None]:
    """Return the verdict of the largest scale that has one."""
    for scale in REPORTED_SCALES:
        if scale in by_scale:
            return scale, by_scale[scale]
    return "", None


def sections(said: Verdicts, conditions: Conditions) -> list[str]:
    """Return one section per claim: the paper's value, and for every scale numbers and conditions."""
    lines = []
    for name, claim in CLAIMS.items():
        lines += ["", f"### {name}", "", f"In the paper: {claim.where}; value: {claim.value}."]
        lines += _numbers(claim, said)
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
                        f"Rows of {experiment}, {scale} scale: {'; '.join(known)}.",
                    ] * bool(known)
            lines += ["", f"`toeplix experiment run {experiment} --scale desk`"]
    return lines


def _numbers(claim: Claim, said: Verdicts) -> list[str]:
    lines = [
        "",
        "| | claim | scale | verdict | reason | all numbers |",
        "|---|---|---|---|---|---|",
    ]
    for part, each in claim.parts.items():
        for scale, verdict in said[part].items():
            cells = [part, each.text, scale, f"**{verdict.kind}**", verdict.reason, verdict.ours]
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
