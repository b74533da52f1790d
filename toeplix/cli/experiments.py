"""`toeplix run`, `toeplix figure`, `toeplix report`: experiments, their drawings, what they decide."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

RESULTS = Annotated[Path, typer.Option(help="Directory of rows.")]
FIGURES = Annotated[Path, typer.Option(help="Directory of drawings.")]
SCALE = Annotated[str, typer.Option(help="How large: paper (GPUs), laptop, or smoke.")]
OVERWRITE = Annotated[
    bool, typer.Option("--overwrite", help="Replace files that toeplix did not write, too.")
]
NAMES = Annotated[
    list[str] | None,
    typer.Argument(metavar="EXPERIMENT...", help="Names, or 'all'; none: they are listed."),
]


def run(
    names: NAMES = None,
    scale: SCALE = "laptop",
    jobs: Annotated[int, typer.Option(min=1, help="Cases at once, each in its process.")] = 1,
    data: Annotated[
        str | None, typer.Option(help="Other text than the scale's, as for `toeplix data build`.")
    ] = None,
    results: RESULTS = Path("results"),
    work: Annotated[
        Path, typer.Option(help="Where models and token stores lie; may be deleted afterwards.")
    ] = Path("runs/experiments"),
) -> None:
    """Run experiments of the paper.

    Measures what is missing and writes a row for every case into results/EXPERIMENT/SCALE.jsonl. Stop it
    whenever you like: the same command goes on, and finished cases are never repeated. A case that fails
    is recorded, and tried again next time.
    """
    from toeplix.experiments.engine.collect import collect, results_file
    from toeplix.experiments.engine.report import verdicts

    chosen = _chosen(names)
    if not chosen:
        return
    sizes = _scale(scale)
    sizes = sizes if data is None else replace(sizes, data=data)
    failed = 0
    for name in chosen:
        try:
            with _bar(name) as report:
                collect(name, sizes, results=results, work=work, jobs=jobs, report=report)
        except KeyboardInterrupt:
            print("toeplix: stopped; run the same command again to go on", file=sys.stderr)
            raise typer.Exit(130) from None
        failed += _failures(results_file(name, scale, results))
        for claim, by_scale in verdicts(results).items():
            if verdict := by_scale.get(scale, {}).get(name):
                print(f"{claim} {verdict.word}: {verdict.ours}")
    if failed:
        print(f"toeplix: {failed} cases failed, see above", file=sys.stderr)
        raise typer.Exit(1)


def figure(
    names: NAMES = None,
    scale: SCALE = "laptop",
    results: RESULTS = Path("results"),
    out: FIGURES = Path("toeplix-report/figures"),
    overwrite: OVERWRITE = False,
) -> None:
    """Draw experiments from the rows on disk."""
    from toeplix.experiments.engine.report import draw

    _scale(scale)
    for name in _chosen(names):
        print(draw(name, scale, results=results, figures=out, overwrite=overwrite))


def report(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="[RUN]", help="A run of `toeplix train`; none: the paper's claims."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="The page; default: RUN/report.html or toeplix-report/experiments.html.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The document of claims.")] = Path(
        "toeplix-report/experiments.md"
    ),
    html: Annotated[
        bool,
        typer.Option("--html", help="One HTML page that needs no other file; it may be named."),
    ] = False,
    results: RESULTS = Path("results"),
    figures: FIGURES = Path("toeplix-report/figures"),
    overwrite: OVERWRITE = False,
) -> None:
    """Report on a run, in words or as one HTML page to send around, or on the paper's claims.

    `toeplix report RUN --html [FILE]`: loss curves, settings, cost, the last sample, and the symbols of
    the filters; without --html the words that the run left. `toeplix report`: draws all figures and
    writes the table of claims (what holds, what fails, what is open) as a document and as a page
    (`--html [FILE]`). A file that toeplix did not write is never replaced without --overwrite.
    """
    if run is not None and file is None and run.suffix == ".html" and not run.is_dir():
        run, file = None, run  # no run: the page of claims, by its name
    if run is not None:
        print(_of_run(run, file, html or file is not None, overwrite))
        return
    from toeplix.experiments.engine.report import write

    page = file or Path("toeplix-report/experiments.html")
    write(out, page, results=results, figures=figures, overwrite=overwrite)
    print(f"{out}\n{page}")


def _of_run(run: Path, file: Path | None, html: bool, overwrite: bool) -> Any:
    from toeplix.training.summary import REPORT

    if not html and run.is_dir():
        if not (run / REPORT).is_file():
            raise FileNotFoundError(
                f"{run} has no {REPORT}, which a run leaves at its end; --html tells what is there"
            )
        return (run / REPORT).read_text(encoding="utf-8").rstrip()
    from toeplix.reports import run_page

    return run_page.write(run, file, overwrite=overwrite)


def _chosen(names: list[str] | None) -> list[str]:
    from toeplix.experiments import EXPERIMENTS, load

    if not names:
        for name in EXPERIMENTS:
            module = load(name)
            print(f"{name:15} {(module.__doc__ or '').splitlines()[0]} ({module.COST})")
        return []
    if names == ["all"]:
        return list(EXPERIMENTS)
    for name in names:
        load(name)
    return names


def _scale(name: str) -> Any:
    from toeplix.experiments import SCALES

    if name not in SCALES:
        raise ValueError(f"--scale {name}: there is {', '.join(SCALES)}")
    return SCALES[name]


def _failures(file: Path) -> int:
    from toeplix.experiments.engine import rows

    failed = [row for row in rows.read(file).values() if "error" in row]
    for row in failed:
        print(f"toeplix: failed: {row['case']}: {row['error']}", file=sys.stderr)
    return len(failed)


class _bar:
    """Progress over the cases of an experiment: a bar on a terminal, lines elsewhere."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Left

        self.name, self.console = name, Console(stderr=True)
        words = TextColumn("{task.description}")
        self.drawn = Progress(
            MofNCompleteColumn(), BarColumn(), words, Left(), console=self.console
        )
        self.task = self.drawn.add_task(name, total=None)

    def __enter__(self) -> Any:
        if self.console.is_terminal:
            self.drawn.start()
        return self._report

    def __exit__(self, *problem: object) -> None:
        self.drawn.stop()

    def _report(self, row: dict[str, Any], done: int, known: int) -> None:
        words = _words(row)
        self.drawn.update(
            self.task, completed=done, total=known, description=f"{self.name} {words}"
        )
        if not self.console.is_terminal and row:
            print(f"{self.name}: {done} of {known}: {words}", file=sys.stderr, flush=True)


def _words(row: dict[str, Any]) -> str:
    """The case that ended, in short."""
    if not row:
        return ""
    shown = ("model", "what", "way", "part", "dim", "context", "lr", "seed")
    case = ", ".join(
        f"{row['case'][key]}" for key in shown if row["case"].get(key) not in (None, "")
    )
    end = row.get("error") or f"{row['seconds']:.0f} s"
    loss = row.get("found", {}).get("loss")
    return f"{case}: {end}" + ("" if loss is None else f", loss {loss:.3f}")
