"""The table of claims and the figures, from the results of a checkout; without any, it says so."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from toeplix.experiments import EXPERIMENTS, load
from toeplix.experiments.claims import CLAIMS
from toeplix.experiments.report import NOT_YET, SHOWN, figure_file, verdicts


def table(results: Path, figures: Path) -> dict[str, Any]:
    """Every claim with what the rows say of it, and the figures that are there."""
    present = results.is_dir()
    said = _verdicts(results, _stamp(results)) if present else {name: {} for name in CLAIMS}
    where = f"from the rows in {results}"
    absent = (
        f"No results here: there is no {results}. The claims stand below without a verdict; start "
        "`toeplix explore` in a checkout of the repository, or measure some with `toeplix run`."
    )
    return {
        "note": where if present else absent,
        "present": present,
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
def _verdicts(results: Path, stamp: tuple[Any, ...]) -> Any:
    """Seconds of work, done again when a file of rows has changed."""
    return verdicts(results)


def _stamp(results: Path) -> tuple[Any, ...]:
    files = sorted(results.glob("*/*.jsonl"))
    return tuple((file, file.stat().st_mtime_ns, file.stat().st_size) for file in files)


def drawn(figures: Path) -> dict[tuple[str, str], Path]:
    """Figures of experiments that lie in a directory, known by name alone."""
    files = {
        (name, scale): figure_file(name, scale, figures) for name in EXPERIMENTS for scale in SHOWN
    }
    return {key: file for key, file in files.items() if file.is_file()}


def _title(name: str) -> str:
    return (load(name).__doc__ or "").strip().partition("\n")[0]
