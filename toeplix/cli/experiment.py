"""`toeplix experiment`: measure the paper's experiments, plot them, and write the document of claims."""

import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

experiment = typer.Typer(
    help="Measure the experiments of the paper, plot them, and write the document of its claims.",
    no_args_is_help=True,
)
RESULTS = Annotated[Path, typer.Option(help="Directory of rows.")]
FIGURES = Annotated[Path, typer.Option(help="Directory of figures.")]
SCALE = Annotated[str, typer.Option(help="How large: paper (GPUs), desk, laptop, or smoke.")]
OVERWRITE = Annotated[
    bool, typer.Option("--overwrite", help="Replace files that toeplix did not write, too.")
]
NAMES = Annotated[
    list[str] | None,
    typer.Argument(metavar="EXPERIMENT...", help="Names, or 'all'; none: they are listed."),
]


@experiment.command("list")
def list_() -> None:
    """List the experiments, with what each costs."""
    _chosen(None)


@experiment.command()
def run(
    names: NAMES = None,
    scale: SCALE = "laptop",
    jobs: Annotated[int, typer.Option(min=1, help="Cases at once, each in its process.")] = 1,
    corpus: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|NAME=PATH|hf:NAME",
            help="Text, as for `toeplix data build`, instead of the scale's; the scale desk needs it, "
            "here or in $TOEPLIX_CORPUS. Rows name it by NAME and the sha256 of its content.",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="One job per case, through submitit: slurm, or local processes."),
    ] = None,
    cluster_options: Annotated[
        str,
        typer.Option(
            metavar="NAME=VALUE,...",
            help="Parameters of submitit, such as slurm_partition=gpu,gpus_per_node=1,timeout_min=600.",
        ),
    ] = "",
    results: RESULTS = Path("results"),
    work: Annotated[
        Path, typer.Option(help="Where models and token stores lie; may be deleted afterwards.")
    ] = Path("runs/experiments"),
) -> None:
    """Run experiments of the paper.

    Measures what is missing and writes a row for every case into
    results/EXPERIMENT/SCALE.jsonl. May be interrupted: the same command resumes, and finished cases
    are never repeated. A case that fails is recorded, and tried again next time.
    """
    from toeplix.experiments.engine import corpora
    from toeplix.experiments.engine.claims import CLAIMS, claim_of
    from toeplix.experiments.engine.cluster import parse_options
    from toeplix.experiments.engine.collect import Cluster, collect, results_file
    from toeplix.experiments.engine.report import verdicts

    chosen = _chosen(names)
    if not chosen:
        return
    sizes = _scale(scale)
    sizes = replace(sizes, data=corpora.registered(corpora.given(corpus, sizes.data), work))
    if cluster_options and cluster is None:
        raise ValueError("--cluster-options has no effect without --cluster")
    jobs_of = None if cluster is None else Cluster(cluster, parse_options(cluster_options))
    failed = 0
    for name in chosen:
        try:
            with _bar(name) as report:
                collect(
                    name,
                    sizes,
                    results=results,
                    work=work,
                    jobs=jobs,
                    cluster=jobs_of,
                    report=report,
                )
        except KeyboardInterrupt:
            print("toeplix: stopped; run the same command again to go on", file=sys.stderr)
            raise typer.Exit(130) from None
        failed += _failures(results_file(name, scale, results))
        for part, by_scale in verdicts(results).items():
            decided = CLAIMS[claim_of(part)].parts[part].experiment == name
            if decided and (verdict := by_scale.get(scale)):
                print(f"{part} {verdict.kind}: {verdict.reason}; {verdict.ours}")
    if failed:
        print(f"toeplix: {failed} cases failed, see above", file=sys.stderr)
        raise typer.Exit(1)


@experiment.command()
def plot(
    names: NAMES = None,
    scale: SCALE = "laptop",
    results: RESULTS = Path("results"),
    out: FIGURES = Path("toeplix-report/figures"),
    overwrite: OVERWRITE = False,
) -> None:
    """Plot experiments from the rows on disk."""
    from toeplix.experiments.engine.report import draw

    _scale(scale)
    for name in _chosen(names):
        print(draw(name, scale, results=results, figures=out, overwrite=overwrite))


@experiment.command()
def report(
    out: Annotated[Path, typer.Option(help="The document of claims.")] = Path(
        "toeplix-report/experiments.md"
    ),
    html: Annotated[Path, typer.Option(help="The same as one HTML page, figures inside.")] = Path(
        "toeplix-report/experiments.html"
    ),
    results: RESULTS = Path("results"),
    figures: FIGURES = Path("toeplix-report/figures"),
    overwrite: OVERWRITE = False,
) -> None:
    """Write the document of the paper's claims from the rows on disk.

    Plots all figures and writes the table of claims and the tables of all experiments, as a
    document and as a page. What did not change since the last time is taken from a cache
    ($XDG_CACHE_HOME/toeplix/report). A file that toeplix did not write is never replaced without
    --overwrite.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from toeplix.experiments.engine.report import write
    from toeplix.experiments.engine.report_cache import ReportCache

    console = Console(stderr=True)
    words = TextColumn("{task.description}")
    columns = (MofNCompleteColumn(), BarColumn(), words)
    silent = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=silent) as bar:
        task = bar.add_task("reading rows", total=None)

        def progress(what: str) -> None:
            bar.update(task, description=what)
            if silent:
                print(f"report: {what}", file=sys.stderr, flush=True)

        write(
            out,
            html,
            results=results,
            figures=figures,
            overwrite=overwrite,
            cache=ReportCache.of_user(),
            progress=progress,
            advance=lambda done, total: bar.update(task, completed=done, total=total),
        )
    print(f"{out}\n{html}")


def _chosen(names: list[str] | None) -> list[str]:
    from toeplix.cli.tables import table_console
    from toeplix.experiments import EXPERIMENTS, load

    if not names:
        width = table_console().width
        for name in EXPERIMENTS:
            module = load(name)
            title = (module.__doc__ or "").splitlines()[0]
            print(
                textwrap.fill(
                    f"{name:15} {title} ({module.COST})", width, subsequent_indent=" " * 16
                )
            )
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
