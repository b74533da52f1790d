"""The table of claims and the figures, from the results of a checkout; without any, it says so."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from toeplix.experiments import EXPERIMENTS, load
from toeplix.experiments.engine.claims import CLAIMS
from toeplix.experiments.engine.claims_document import NOT_YET, REPORTED_SCALES, Verdicts
from toeplix.experiments.engine.collect import results_file
from toeplix.experiments.engine.report import figure_file, held, of_newest_protocol, reported
from toeplix.files import printable, reading


def table(results: Path, figures: Path) -> dict[str, Any]:
    """Every claim with what the rows say of it, and the figures that are there."""
    present = results.is_dir()
    said: Verdicts = {part: {} for claim in CLAIMS.values() for part in claim.parts}
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
                "text": part.text,
                "where": claim.where,
                "value": claim.value,
                "ours": [
                    {"scale": scale, "experiment": part.experiment, "word": v.kind, "ours": v.ours}
                    for scale, v in said[name].items()
                ],
                "missing": NOT_YET,
            }
            for claim in CLAIMS.values()
            for name, part in claim.parts.items()
        ],
        "figures": [
            {"file": file.name, "name": name, "scale": scale, "title": _title(name)}
            for (name, scale), file in drawn(figures).items()
        ],
    }


@lru_cache(maxsize=1)
def _verdicts(results: Path, stamp: tuple[Any, ...]) -> tuple[Verdicts, list[str]]:
    """Seconds of work, done again when a file of rows has changed. Damaged files are told beside it."""
    found: Verdicts = {part: {} for claim in CLAIMS.values() for part in claim.parts}
    problems = []
    for name in EXPERIMENTS:
        said, old = {}, {}
        for scale in REPORTED_SCALES:
            file = results_file(name, scale, results)
            try:
                with reading(file, "restore it, or measure it again"):
                    measured, is_old = reported(name, scale, results)
                    said[scale] = held(name, scale, results)
            except (OSError, ValueError) as problem:
                problems.append(" ".join(printable(str(problem)).split())[:400])
                continue
            if measured:
                old[scale] = is_old
        for scale in of_newest_protocol(old):
            for part, verdict in said[scale].items():
                found[part][scale] = verdict
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
