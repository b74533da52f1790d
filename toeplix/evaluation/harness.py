"""Evaluate models on tasks of lm-evaluation-harness, unchanged, and keep what came out as rows.

    report = evaluate(["runs/mine/model", "gpt2"], ["arc_easy"], root=Path("benchmarks"))

Rows: one for each model, task and metric, with standard error, number of questions, and what was cut.
"""

import difflib
import json
import logging
import math
import re
import statistics
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toeplix.evaluation import paper
from toeplix.evaluation.data import MissingData, dataset, sources
from toeplix.evaluation.squad import singles
from toeplix.files import MARK, read_json, write_output

SILENCE = "silence"  # among models: one that says nothing (null_model.py)
# folders of the stock tasks that are looked through first: all of them take half a minute
FOLDERS = (
    *("arc", "glue", "hellaswag", "ifeval", "lambada", "longbench"),
    *("squad_completion", "squadv2", "swde", "wikitext", "xwinograd"),
)


@dataclass
class Report:
    """What an evaluation found."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    harness: dict[str, dict[str, Any]] = field(default_factory=dict)  # by model
    cuts: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)  # by data set
    missing: list[str] = field(default_factory=list)

    def save(self, folder: Path, *, overwrite: bool = False) -> None:
        """`rows.jsonl`, and the harness's own JSON for every model."""
        from lm_eval.utils import handle_non_serializable

        *documents, lines = outputs(list(self.harness), folder)
        for file, results in zip(documents, self.harness.values(), strict=True):
            marked = {"origin": MARK, **results}
            text = json.dumps(marked, indent=2, default=handle_non_serializable) + "\n"
            _write(file, text, overwrite)
        marked_rows = [{"origin": MARK, **row} for row in self.rows]
        _write(lines, "".join(json.dumps(row) + "\n" for row in marked_rows), overwrite)


def outputs(labels: Sequence[str], folder: Path) -> list[Path]:
    """The files that `Report.save` writes: one for each model, then the rows of all."""
    names = [re.sub(r"[^\w.-]+", "_", label) + ".json" for label in labels]
    return [*(folder / name for name in names), folder / "rows.jsonl"]


def evaluate(
    models: Sequence[str],
    tasks: Sequence[str],
    *,
    root: Path | None = None,
    batch: int | str = "auto",
    device: str | None = None,
    limit: int | None = None,
    available: bool = False,
    bootstrap: int = 100,
) -> Report:
    """Every model on every task, without examples in the prompt.

    Args:
        models: directories of checkpoints, ours or Hugging Face's, names at the hub, or `silence`.
        tasks: stock tasks, groups and tags, or `toeplix-paper`.
        root: where published files are; None: the hub's data.
        batch: rows of a batch; auto: by their length. Results do not depend on it.
        device: cpu, cuda, ...
        limit: the first questions of each task only.
        available: leave tasks without data out, instead of refusing.
        bootstrap: samples for standard errors of metrics that are no means.
    """
    from lm_eval import simple_evaluate

    _check(batch, device)
    report = Report()
    names = labels(models)
    known = manager(paper.expanded(tasks))
    # a mistake in a name of a model is found before an hour is spent on the one before it
    loaded = [open_model(model, batch=batch, device=device) for model in models]
    with warnings.catch_warnings(), sources(root) as notes:
        warnings.simplefilter("ignore")  # those of the tasks' libraries are not the user's
        ready = list(_ready(known, paper.expanded(tasks), available, report))
        if not ready:
            raise MissingData(f"there is no data for any of the tasks: {'; '.join(report.missing)}")
        for label, lm in zip(names, loaded, strict=True):
            results = simple_evaluate(
                model=lm,
                tasks=list(ready),
                task_manager=known,
                num_fewshot=0,
                batch_size=batch,
                device=device,
                limit=limit,
                bootstrap_iters=bootstrap,
            )
            samples = results.pop("samples")
            results["config"]["model_args"] = {"pretrained": label}
            results["cuts"] = {task: dict(counts) for task, counts in lm.cuts.counts.items()}
            report.harness[label] = results
            report.rows += rows(label, results, samples, limit, _noted(ready, notes))
            report.cuts += [f"{label}: {line}" for line in lm.cuts.lines()]
        report.notes.update(notes)
    return report


def _check(batch: int | str, device: str | None) -> None:
    """Refuse what the harness would take for something else."""
    import torch

    from toeplix.evaluation.model import rows_of

    rows_of(batch)
    if device is None:
        return
    try:
        kind = torch.device(device).type
    except RuntimeError as problem:
        raise ValueError(f"device {device!r} is unknown: cpu, cuda, cuda:1, ...") from problem
    if kind != "cpu" and not getattr(torch, kind, torch.cuda).is_available():
        raise ValueError(f"device {device!r} is not there: leave it out, or choose cpu")


def open_model(name: str, *, batch: int | str = "auto", device: str | None = None) -> Any:
    """The harness's view of a model: a checkpoint of ours, a Hugging Face model, or `silence`."""
    from toeplix.evaluation.model import Checkpoint
    from toeplix.evaluation.null_model import Silence
    from toeplix.inference.loading import model_directory

    folder = Path(name)
    if name == SILENCE and not folder.exists():
        return Silence()
    config = model_directory(folder) / "config.json"
    if folder.is_dir() and not config.is_file():
        raise FileNotFoundError(f"{folder} is no checkpoint: there is no config.json in it")
    described = read_json(config) if config.is_file() else {}
    if described.get("model_type") == "toeplix":
        return Checkpoint(folder, batch_size=batch, device=device)
    if not folder.is_dir() and (folder.is_absolute() or name.startswith(".")):
        raise FileNotFoundError(f"{name} does not exist")
    from toeplix.evaluation.huggingface import Borrowed

    return Borrowed(name, batch_size=batch, device=device)


def labels(models: Sequence[str]) -> list[str]:
    """Short names that tell models apart: `runs/mine/model` is `mine`."""
    parts = [[part for part in Path(model).parts if part != "model"] or [model] for model in models]
    for length in range(1, 1 + max(map(len, parts), default=1)):
        short = ["/".join(part[-length:]) for part in parts]
        if len(set(short)) == len(short):
            return short
    raise ValueError(f"a model is given twice: {', '.join(models)}")


def manager(names: Sequence[str]) -> Any:
    """The harness's index of tasks, as small as the names allow; unknown names are refused."""
    import lm_eval.tasks
    from lm_eval.tasks import TaskManager

    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # its remarks are for authors of tasks
    home = Path(lm_eval.tasks.__file__).parent
    small = TaskManager(include_path=[home / name for name in FOLDERS], include_defaults=False)
    unknown = [name for name in names if name not in small.all_tasks]
    if not unknown:
        return small
    every = set(small.all_tasks) | set(_scanned(home)) | {paper.GROUP}
    for name in unknown:
        if name not in every:
            near = difflib.get_close_matches(name, sorted(every), n=4, cutoff=0.6)
            hint = f": did you mean {', '.join(near)}?" if near else ""
            raise ValueError(f"there is no task {name!r}{hint}")
    return TaskManager()


def _scanned(home: Path) -> Iterator[str]:
    """Names of stock tasks, groups and tags, read off their files without loading them."""
    pattern = re.compile(r"^(?:task|group|tag): *[\"']?([\w.:-]+)|^  ?-? ?- ([\w.:-]+) *$", re.M)
    for file in home.rglob("*.yaml"):
        for match in pattern.finditer(file.read_text(encoding="utf-8", errors="replace")):
            yield match[1] or match[2]


def _ready(known: Any, names: Iterable[str], available: bool, report: Report) -> Iterator[Any]:
    """Tasks with their data. What is missing is said for all of them at once."""
    from datasets import disable_progress_bars

    disable_progress_bars()
    for name in names:
        try:
            loaded = known.load([name])
        except MissingData as problem:
            report.missing.append(f"{name}: {problem}")
            continue
        except ImportError as problem:
            raise ValueError(f"{name}: {problem}") from problem
        except KeyError as problem:  # it stands in a stock file, but is not the name of a task
            raise ValueError(f"there is no task {name!r}") from problem
        yield from (
            [loaded["groups"][name]] if name in loaded["groups"] else loaded["tasks"].values()
        )
    if report.missing and not available:
        raise MissingData(f"{'; '.join(report.missing)} (--available leaves such tasks out)")


def _noted(ready: Iterable[Any], notes: dict[str, str]) -> dict[str, str]:
    """Notes by task, from those by data set."""
    tasks = [
        task for each in ready for task in getattr(each, "get_all_tasks", lambda e=each: [e])()
    ]
    named = {task.task_name: dataset(task.DATASET_PATH, task.DATASET_NAME) for task in tasks}
    return {task: notes[source] for task, source in named.items() if source in notes}


def rows(
    model: str,
    results: dict[str, Any],
    samples: dict[str, Any],
    limit: int | None,
    notes: dict[str, str],
) -> list[dict[str, Any]]:
    """A row for each task and metric; `notes` say of a task what is particular about its data."""
    found = []
    for task, values in results["results"].items():
        if task not in results["n-samples"]:  # a group: its tasks have rows
            continue
        for key, value in values.items():
            metric, _, kind = key.partition(",")
            if not kind or metric.endswith("_stderr") or isinstance(value, str):
                continue
            error = values.get(f"{metric}_stderr,{kind}")
            mine = [sample for sample in samples[task] if sample.get("filter", kind) == kind]
            if not isinstance(error, float) or math.isnan(error):
                error = sample_error(metric, mine)
            each = by_question(metric, mine)
            found.append(
                {
                    "model": model,
                    "task": task,
                    "metric": metric,
                    "filter": kind,
                    "value": float(value),
                    "stderr": error,
                    "count": len(each) if each else results["n-samples"][task]["effective"],
                    "limit": limit,
                    "version": results["versions"].get(task),
                    "cuts": results["cuts"].get(task, {}),
                    "note": notes.get(task, ""),
                }
            )
    return found


def sample_error(metric: str, samples: Sequence[dict[str, Any]]) -> float | None:
    """The standard error of a mean over questions; None if the metric is no such mean."""
    numbers = by_question(metric, samples)
    if numbers is None or len(numbers) < 2:
        return None
    return statistics.stdev(numbers) / math.sqrt(len(numbers))


def by_question(metric: str, samples: Sequence[dict[str, Any]]) -> list[float] | None:
    """Of every question that counts for a metric; None if the metric is no mean over questions."""
    values = [sample.get(metric) for sample in samples]
    if metric.removeprefix("HasAns_").removeprefix("NoAns_") in ("exact", "f1"):
        pairs = [value for value in values if isinstance(value, (tuple, list))]
        if len(pairs) == len(values) and all(isinstance(pair[0], dict) for pair in pairs):
            wanted = {"HasAns": (1.0,), "NoAns_": (0.0,)}.get(metric[:6], (0.0, 1.0))
            each = singles([pair[0] for pair in pairs], [pair[1] for pair in pairs])
            name = metric.rpartition("_")[2]
            values = [100 * row[name] for row in each if row["answerable"] in wanted]
    numbers = [float(value) for value in values if isinstance(value, (int, float))]
    return numbers if len(numbers) == len(values) else None


def _write(file: Path, text: str, overwrite: bool) -> None:
    write_output(file, lambda aside: aside.write_text(text, encoding="utf-8"), overwrite=overwrite)
