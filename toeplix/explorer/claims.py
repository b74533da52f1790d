"""The table of claims and the figures, from the results of a checkout; without any, it says so."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from toeplix.experiments import EXPERIMENTS, load
from toeplix.experiments.engine import rows
from toeplix.experiments.engine.claims import CLAIMS, Verdict
from toeplix.experiments.engine.collect import results_file
from toeplix.experiments.engine.report import NOT_YET, REPORTED_SCALES, figure_file
from toeplix.files import printable, reading

Verdicts = dict[str, dict[str, dict[str, Verdict]]]  # claim -> scale -> experiment


def table(results: Path, figures: Path) -> dict[str, Any]:
    """Every claim with what the rows say of it, and the figures that are there."""
    present = results.is_dir()
    said: Verdicts = {name: {} for name in CLAIMS}
    problems: list[str] = []
    if present:
        said, problems = _verdicts(results, _stamp(results))
    where = f"from the rows in {results}"
    absent = (
        f"No results here: there is no {results}. The claims stand below without a verdict; start "
        "`toeplix explore` in a checkout of the repository, or measure some with "
        "`toeplix experiment run`."
    )
    return {
        "note": where if present else absent,
        "present": present,
        "problems": problems,
        "claims": [
            {
                "name": name,
                "text": claim.text,
                "where": claim.where,
                "value": claim.value,
                "ours": [
                    {"scale": scale, "experiment": experiment, "word": v.word, "ours": v.ours}
                    for scale, by_experiment in said[name].items()
                    for experiment, v in by_experiment.items()
                ],
                "missing": NOT_YET,
            }
            for name, claim in CLAIMS.items()
        ],
        "figures": [
            {"file": file.name, "name": name, "scale": scale, "title": _title(name)}
            for (name, scale), file in drawn(figures).items()
        ],
    }


@lru_cache(maxsize=1)
def _verdicts(results: Path, stamp: tuple[Any, ...]) -> tuple[Verdicts, list[str]]:
    """Seconds of work, done again when a file of rows has changed. Damaged files are told beside it."""
    found: Verdicts = {name: {} for name in CLAIMS}
    problems = []
    for scale in REPORTED_SCALES:
        for name in EXPERIMENTS:
            file = results_file(name, scale, results)
            try:
                with reading(file, "restore it, or measure it again"):
                    here = rows.flat(file)
                    said = load(name).holds(here) if here else {}
            except (OSError, ValueError) as problem:
                problems.append(" ".join(printable(str(problem)).split())[:400])
                continue
            for claim, verdict in said.items():
                found[claim].setdefault(scale, {})[name] = verdict
    return found, problems


def _stamp(results: Path) -> tuple[Any, ...]:
    files = [file for file in sorted(results.glob("*/*.jsonl")) if file.is_file()]
    return tuple((file, file.stat().st_mtime_ns, file.stat().st_size) for file in files)


def drawn(figures: Path) -> dict[tuple[str, str], Path]:
    """Figures of experiments that lie in a directory, known by name alone."""
    files = {
        (name, scale): figure_file(name, scale, figures)
        for name in EXPERIMENTS
        for scale in REPORTED_SCALES
    }
    return {key: file for key, file in files.items() if file.is_file()}


def _title(name: str) -> str:
    return (load(name).__doc__ or "").strip().partition("\n")[0]
