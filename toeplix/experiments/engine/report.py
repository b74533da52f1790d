"""The document of claims, with figures, and its page: made from the rows on disk and nothing else."""

import inspect
import itertools
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from dataclasses import fields as fields_of
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from toeplix.experiments import EXPERIMENTS, load
from toeplix.experiments.engine import claims_document, rows, text_rows, thresholds, tuning
from toeplix.experiments.engine.claims import CLAIMS, Verdict
from toeplix.experiments.engine.claims_document import REPORTED_SCALES, Verdicts
from toeplix.experiments.engine.collect import RESULTS, published_file, results_file
from toeplix.experiments.engine.conditions import conditions
from toeplix.experiments.engine.report_cache import ReportCache
from toeplix.experiments.engine.verdicts import not_testable
from toeplix.files import MARK, check_output, write_output
from toeplix.reports import html

# a name that no project has by chance; `make report` names those of this one
REPORT = Path("toeplix-report")
DOCUMENT, HTML = REPORT / "experiments.md", REPORT / "experiments.html"
FIGURES = REPORT / "figures"
NO_CACHE = ReportCache(None)
OLD_PROTOCOL = (
    "These rows were measured under the first protocol: one data order for all seeds, and learning rates "
    "chosen on the reported validation data."
)

Progress = Callable[[str], None]  # gets what is made next, unless the cache has it
Advance = Callable[
    [int, int], None
]  # gets how many figures, verdicts and tables are done, of how many


def figure_file(name: str, scale: str, figures: Path = FIGURES) -> Path:
    return figures / f"{name}-{scale}.svg"


def draw(
    name: str,
    scale: str,
    *,
    results: Path = RESULTS,
    figures: Path = FIGURES,
    overwrite: bool = False,
    cache: ReportCache = NO_CACHE,
    progress: Progress = lambda what: None,
) -> Path:
    """Write the figure of an experiment from its rows, and return its file."""
    from toeplix.experiments.engine import style

    found, _ = reported(name, scale, results)
    if not found:
        raise ValueError(
            f"there are no rows of {name} at scale {scale} in {results}: "
            f"toeplix experiment run {name} --scale {scale}"
        )
    published = _rows(published_file(name))
    target = figure_file(name, scale, figures)
    check_output(target, overwrite=overwrite)

    def svg() -> str:
        progress(f"figure of {name}, {scale} scale")
        with rows.interpreting(results_file(name, scale, results)):
            return style.svg(load(name).figure(found, published))

    text = cache.get(f"{name}-{scale}.svg", _inputs(name, scale, results), svg)
    return _save(target, text, overwrite)


def reported(name: str, scale: str, results: Path = RESULTS) -> tuple[list[rows.Row], bool]:
    """Return the rows of an experiment that are reported, and whether they are of an old protocol."""
    case, file = load(name).Case, results_file(name, scale, results)
    with rows.interpreting(file):
        found, old = tuning.newest(case, _rows(file))
        return text_rows.comparable(case, found), old


def reported_scales(name: str, results: Path = RESULTS) -> list[str]:
    """Return the scales of an experiment that are reported, largest first.

    Rows of the first protocol are reported only as long as an experiment has no others.
    """
    old = {}
    for scale in REPORTED_SCALES:
        found, is_old = reported(name, scale, results)
        if found:
            old[scale] = is_old
    return of_newest_protocol(old)


def of_newest_protocol(old: Mapping[str, bool]) -> list[str]:
    """Return the scales whose rows are not of the first protocol, or all of them if there are none."""
    return [scale for scale in old if not old[scale]] or list(old)


def _rows(file: Path) -> list[rows.Row]:
    """Return the rows of a file, which is read again only if it has changed."""
    if not file.is_file():
        return rows.flat(file)
    known = file.stat()
    return _rows_of(file, known.st_mtime_ns, known.st_size)


@lru_cache(maxsize=256)
def _rows_of(file: Path, changed: int, size: int) -> list[rows.Row]:
    return rows.flat(file)


def _inputs(name: str, scale: str, results: Path) -> list[Path]:
    """Return the files of rows from which figures and tables of an experiment are made."""
    return [results_file(name, scale, results), published_file(name)]


def verdicts(
    results: Path = RESULTS,
    *,
    cache: ReportCache = NO_CACHE,
    progress: Progress = lambda what: None,
    done: Callable[[], None] = lambda: None,
) -> Verdicts:
    """Return the verdicts as part of a claim -> scale -> verdict."""
    found: Verdicts = {part: {} for claim in CLAIMS.values() for part in claim.parts}
    for name in EXPERIMENTS:
        for scale in reported_scales(name, results):
            make = partial(_held, name, scale, results, progress)
            with rows.interpreting(results_file(name, scale, results)):
                held = cache.get(f"{name}-{scale}.verdicts", _inputs(name, scale, results), make)
            for part, fields in held.items():
                found[part][scale] = Verdict(**fields)
            done()
    return found


def _held(name: str, scale: str, results: Path, progress: Progress) -> dict[str, dict[str, Any]]:
    if not load(name).CLAIMS:
        return {}
    progress(f"verdicts of {name}, {scale} scale")
    return {part: asdict(verdict) for part, verdict in held(name, scale, results).items()}


def held(name: str, scale: str, results: Path = RESULTS) -> dict[str, Verdict]:
    """Return the verdicts of an experiment's rows; those of the first protocol decide nothing."""
    here, old = reported(name, scale, results)
    found = load(name).holds(here) if here else {}
    if not old:
        return found
    return {part: not_testable(tuning.FIRST_PROTOCOL, each.ours) for part, each in found.items()}


def markdown(
    results: Path = RESULTS,
    figures: Path = FIGURES,
    base: Path = REPORT,
    *,
    cache: ReportCache = NO_CACHE,
    progress: Progress = lambda what: None,
    done: Callable[[], None] = lambda: None,
) -> str:
    """Return the whole document; links to figures are relative to `base`.

    `done` is called after the verdicts and after the section of every experiment and scale with rows.
    """
    lines = [
        f"<!-- {MARK} -->",
        "",
        "# Experiments",
        "",
        "Generated by `toeplix experiment report` from the rows in `results/`; [log.md](log.md)",
        "discusses the results. Losses are validation losses in nats per token; step times are relative",
        "to the paper's flat model. TMM is the paper's Toeplitz model: \"paper flat\" without heads,",
        '"paper 4 heads" with heads. "toeplitz" has free filters and a gate; "hybrid" is the default of',
        "this library. Scales (sizes: `toeplix/experiments/engine/scale.py`):",
        "",
        *claims_document.SCALES,
        *_texts(results),
        "",
        "## The paper's claims",
        "",
        "*Reason* names the measured quantity and its bound, *number* is its value with a 95%",
        "confidence interval. A part **holds** if the whole interval lies on the named side, **fails**",
        "if it lies on the other side, and is **undecided** otherwise; more is said below the table.",
        "",
    ]
    said = verdicts(results, cache=cache, progress=progress, done=done)

    def is_old(name: str, scale: str) -> bool:
        return reported(name, scale, results)[1]

    lines += claims_document.overview(said, is_old)
    lines += ["", "### How parts are decided", "", *claims_document.RULES]
    lines += claims_document.sections(
        said, is_old, partial(_conditions, results, cache), _reads_text
    )
    lines += ["", "## Thresholds of the verdicts", "", *thresholds.lines()]
    lines += [
        "",
        "## Experiments, figures and tables",
        "",
        "Columns:",
        "",
        *claims_document.COLUMNS,
    ]
    for name in EXPERIMENTS:
        lines += _section(name, results, figures, base, cache, progress, done)
    return "\n".join(lines) + "\n"


def _texts(results: Path) -> list[str]:
    """Return a line that names the texts of the users' that were read, with digests of their content."""
    known = {
        str(row["data"])
        for name in EXPERIMENTS
        for scale in reported_scales(name, results)
        for row in reported(name, scale, results)[0]
        if "@" in str(row.get("data", ""))
    }
    if not known:
        return []
    named = ", ".join(f"`{each}`" for each in sorted(known))
    return [
        "",
        f"Texts, by name and digest of their content ([scaling.md](scaling.md#the-text)): {named}.",
    ]


def _conditions(results: Path, cache: ReportCache, name: str, scale: str) -> list[str]:
    """Return the conditions of an experiment's rows, and whether they are of an old protocol."""

    def make() -> list[str]:
        found, old = reported(name, scale, results)
        return ["measured under the first protocol"] * old + conditions(found)

    return cache.get(f"{name}-{scale}.conditions", _inputs(name, scale, results), make)


def _reads_text(name: str) -> bool:
    return "data" in {field.name for field in fields_of(load(name).Case)}


def _section(
    name: str,
    results: Path,
    figures: Path,
    base: Path,
    cache: ReportCache,
    progress: Progress,
    done: Callable[[], None],
) -> list[str]:
    experiment = load(name)
    title, _, rest = inspect.cleandoc(experiment.__doc__ or "").partition("\n")
    lines = ["", f"### {name}", "", title, "", rest.strip(), ""]
    known = reported_scales(name, results)
    commands = [
        claims_document.command(name, scale, _reads_text(name)) for scale in known or ["laptop"]
    ]
    lines += [f"`{commands[0]}` ({experiment.COST})"]
    for scale, command in zip(known, commands, strict=False):
        found, old = reported(name, scale, results)
        lines += ["", f"`{command}`:"] if scale != known[0] else []
        lines += ["", OLD_PROTOCOL] if old else []
        file = figure_file(name, scale, figures)
        if file.exists():
            link = Path(os.path.relpath(file, base)).as_posix()
            lines += ["", f"![{name}, {scale} scale]({link})"]
        with rows.interpreting(results_file(name, scale, results)):
            make = partial(_table_lines, name, scale, found, progress)
            table = cache.get(f"{name}-{scale}.table", _inputs(name, scale, results), make)
        lines += ["", *claims_document.folded(f"{name}, {scale} scale", table)]
        failed = [
            row for row in rows.read(results_file(name, scale, results)).values() if "error" in row
        ]
        lines += [f"\nFailed: {row['case']}: {row['error']}" for row in failed]
        done()
    return lines


def _table_lines(name: str, scale: str, found: list[rows.Row], progress: Progress) -> list[str]:
    """Return the table of an experiment in Markdown."""
    progress(f"table of {name}, {scale} scale")
    table = load(name).table(found)
    if not table:
        return []
    columns = list(dict.fromkeys(name for line in table for name in line))
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for line in table:
        lines.append(f"| {' | '.join(str(line.get(name, '')) for name in columns)} |")
    return lines


def page(text: str, base: Path = REPORT) -> str:
    """Return the Markdown document as one HTML page that contains its figures."""

    def inlined(match: "re.Match[str]") -> str:
        # the directory of the document may not exist yet, and `..` leads nowhere from there
        file = Path(os.path.normpath(base / match[1]))
        return f'src="{html.data_url(file.read_bytes(), "image/svg+xml")}"'

    body = re.sub(r'src="([^":]+\.svg)"', inlined, html.markdown(text))
    return html.page("toeplix: experiments", [body])


def write(
    document: Path,
    html: Path | None,
    *,
    results: Path = RESULTS,
    figures: Path = FIGURES,
    overwrite: bool = False,
    cache: ReportCache = NO_CACHE,
    progress: Progress = lambda what: None,
    advance: Advance = lambda done, total: None,
) -> None:
    """Plot all figures that rows allow, then write both. Nothing is written if something must not be."""
    plotted = [(name, scale) for name in EXPERIMENTS for scale in reported_scales(name, results)]
    if not plotted:
        raise ValueError(
            f"there are no rows in {results}: name a directory of rows with --results, or measure some "
            "with `toeplix experiment run`"
        )
    counted = itertools.count(1)

    def done() -> None:
        advance(next(counted), 3 * len(plotted))  # a figure, verdicts and a table each

    pages = [] if html is None else [html]
    targets = [figure_file(name, scale, figures) for name, scale in plotted]
    check_output(document, *pages, *targets, overwrite=overwrite)
    for name, scale in plotted:
        draw(
            name,
            scale,
            results=results,
            figures=figures,
            overwrite=overwrite,
            cache=cache,
            progress=progress,
        )
        done()
    text = markdown(results, figures, document.parent, cache=cache, progress=progress, done=done)
    for file, body in [(document, text), *((each, page(text, document.parent)) for each in pages)]:
        _save(file, body, overwrite)


def _save(file: Path, text: str, overwrite: bool) -> Path:
    return write_output(
        file, lambda aside: aside.write_text(text, encoding="utf-8"), overwrite=overwrite
    )
