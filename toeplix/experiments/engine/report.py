"""The document of claims, with figures, and its page: made from the rows on disk and nothing else."""

import base64
import inspect
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from toeplix.experiments import EXPERIMENTS, load
from toeplix.experiments.engine import rows
from toeplix.experiments.engine.claims import CLAIMS, Claim, Verdict
from toeplix.experiments.engine.collect import RESULTS, results_file
from toeplix.files import MARK, check_output, write_output

# a name that no project has by chance; `make report` names those of this one
REPORT = Path("toeplix-report")
DOCUMENT, HTML = REPORT / "experiments.md", REPORT / "experiments.html"
FIGURES = REPORT / "figures"
SHOWN = ("paper", "laptop")  # smoke means nothing
NOT_YET = "not yet measured"


def figure_file(name: str, scale: str, figures: Path = FIGURES) -> Path:
    return figures / f"{name}-{scale}.svg"


def draw(
    name: str,
    scale: str,
    *,
    results: Path = RESULTS,
    figures: Path = FIGURES,
    overwrite: bool = False,
) -> Path:
    """The figure of an experiment from its rows."""
    from toeplix.experiments.engine import style

    found = rows.flat(results_file(name, scale, results))
    if not found:
        raise ValueError(
            f"there are no rows of {name} at scale {scale} in {results}: "
            f"toeplix run {name} --scale {scale}"
        )
    published = rows.flat(results_file(name, "published", results))
    target = figure_file(name, scale, figures)
    check_output(target, overwrite=overwrite)
    with rows.interpreting(results_file(name, scale, results)):
        drawing = load(name).figure(found, published)
    style.save(drawing, target, overwrite=overwrite)
    return target


def verdicts(results: Path = RESULTS) -> dict[str, dict[str, dict[str, Verdict]]]:
    """claim -> scale -> experiment -> what its rows say."""
    found: dict[str, dict[str, dict[str, Verdict]]] = {name: {} for name in CLAIMS}
    for scale in SHOWN:
        for name in EXPERIMENTS:
            file = results_file(name, scale, results)
            here = rows.flat(file)
            with rows.interpreting(file):
                held = load(name).holds(here) if here else {}
            for claim, verdict in held.items():
                found[claim].setdefault(scale, {})[name] = verdict
    return found


def markdown(results: Path = RESULTS, figures: Path = FIGURES, base: Path = REPORT) -> str:
    """The whole document; links to figures are relative to `base`."""
    lines = [
        f"<!-- {MARK} -->",
        "",
        "# Experiments",
        "",
        "Written by `toeplix report` from the rows in `results/`; intervals are 95% over seeds, losses",
        "in nats per token on validation text. What the numbers mean is discussed in [log.md](log.md).",
        "",
        "## The paper's claims",
        "",
        "| | claim | where | the paper's value | ours | verdict | command |",
        "|---|---|---|---|---|---|---|",
    ]
    said = verdicts(results)
    lines += [_claim_line(name, claim, said[name]) for name, claim in CLAIMS.items()]
    for name in EXPERIMENTS:
        lines += _section(name, results, figures, base)
    return "\n".join(lines) + "\n"


def _claim_line(name: str, claim: Claim, said: dict[str, dict[str, Verdict]]) -> str:
    ours, words = [], []
    for scale, by_experiment in said.items():
        for experiment, verdict in by_experiment.items():
            place = f"{scale}, {experiment}" if len(claim.experiments) > 1 else scale
            ours.append(f"{place}: {verdict.ours}")
            words.append(f"{place}: **{verdict.word}**")
    known = [each for each in claim.experiments if each in EXPERIMENTS]
    command = "<br>".join(f"`toeplix run {each} --scale laptop`" for each in known)
    cells = (
        name,
        claim.text,
        claim.where,
        claim.value,
        "<br>".join(ours),
        "<br>".join(words) or NOT_YET,
        command,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _section(name: str, results: Path, figures: Path, base: Path) -> list[str]:
    experiment = load(name)
    title, _, rest = inspect.cleandoc(experiment.__doc__ or "").partition("\n")
    lines = ["", f"## {name}", "", title, "", rest.strip(), ""]
    lines += [f"`toeplix run {name} --scale laptop` ({experiment.COST})"]
    for scale in SHOWN:
        found = rows.flat(results_file(name, scale, results))
        if not found:
            continue
        file = figure_file(name, scale, figures)
        if file.exists():
            link = Path(os.path.relpath(file, base)).as_posix()
            lines += ["", f"![{name}, {scale} scale]({link})"]
        with rows.interpreting(results_file(name, scale, results)):
            lines += ["", *_table(experiment.table(found))]
        failed = [
            row for row in rows.read(results_file(name, scale, results)).values() if "error" in row
        ]
        lines += [f"\nFailed: {row['case']}: {row['error']}" for row in failed]
    return lines


def _table(found: list[dict[str, Any]]) -> Iterable[str]:
    if not found:
        return
    columns = list(dict.fromkeys(name for row in found for name in row))
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for row in found:
        yield f"| {' | '.join(str(row.get(name, '')) for name in columns)} |"


def page(text: str, base: Path = REPORT) -> str:
    """The document as one HTML page, figures inside."""
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)

    def inlined(match: "re.Match[str]") -> str:
        data = base64.b64encode((base / match[1]).read_bytes()).decode()
        return f'src="data:image/svg+xml;base64,{data}"'

    body = re.sub(r'src="([^":]+\.svg)"', inlined, body)
    return PAGE.format(body=body, mark=MARK)


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>toeplix: experiments</title>
<meta name="generator" content="{mark}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff }}
table {{ border-collapse: collapse; font-size: 0.85rem; display: block; overflow-x: auto }}
td, th {{ border-top: 1px solid #ddd; padding: 0.3rem 0.6rem; text-align: left; vertical-align: top }}
img {{ max-width: 100%; background: #fff }}
code {{ font-size: 0.85em }}
@media (prefers-color-scheme: dark) {{ body {{ color: #ddd; background: #181818 }}
  td, th {{ border-color: #444 }} a {{ color: #8cf }} }}
</style></head><body>
{body}
</body></html>
"""


def write(
    document: Path,
    html: Path | None,
    *,
    results: Path = RESULTS,
    figures: Path = FIGURES,
    overwrite: bool = False,
) -> None:
    """Draw all figures that rows allow, then write both. Nothing is written if something must not be."""
    drawn = [
        (name, scale)
        for name in EXPERIMENTS
        for scale in SHOWN
        if rows.flat(results_file(name, scale, results))
    ]
    pages = [] if html is None else [html]
    targets = [figure_file(name, scale, figures) for name, scale in drawn]
    check_output(document, *pages, *targets, overwrite=overwrite)
    for name, scale in drawn:
        draw(name, scale, results=results, figures=figures, overwrite=overwrite)
    text = markdown(results, figures, document.parent)
    for file, body in [(document, text), *((each, page(text, document.parent)) for each in pages)]:
        _save(file, body, overwrite)


def _save(file: Path, text: str, overwrite: bool) -> None:
    write_output(file, lambda aside: aside.write_text(text, encoding="utf-8"), overwrite=overwrite)
