"""Evaluate models on unmodified tasks of lm-evaluation-harness, with rows as the result.

    report = evaluate(["runs/mine/model", "gpt2"], ["arc_easy"], root=Path("benchmarks"))

There is one row for each model, task and metric, with standard error, number of questions, and counts of
truncated requests.
"""

import difflib
import json
import logging
import math
import re
import statistics
import subprocess
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from toeplix.checkpoint import is_checkpoint
from toeplix.devices import AUTO, choose_device
from toeplix.evaluation import paper
from toeplix.evaluation.data import MissingData, dataset, sources
from toeplix.evaluation.squad import singles
from toeplix.files import MARK, read_json, write_output

NULL_MODEL = "null"  # the name of the null model (null_model.py) among models
# folders of the stock tasks that are searched first, because a search of all takes half a minute
FOLDERS = (
    *("arc", "glue", "hellaswag", "ifeval", "lambada", "longbench"),
    *("squad_completion", "squadv2", "swde", "wikitext", "xwinograd"),
)


@dataclass
class Report:
    """The results of an evaluation."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    harness: dict[str, dict[str, Any]] = field(default_factory=dict)  # by model
    truncations: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)  # by data set
    missing: list[str] = field(default_factory=list)

    def save(self, folder: Path, *, overwrite: bool = False) -> None:
        """Write `rows.jsonl`, and the harness's own JSON for every model."""
        from lm_eval.utils import handle_non_serializable

        *documents, lines = outputs(list(self.harness), folder)
        for file, results in zip(documents, self.harness.values(), strict=True):
            marked = {"origin": MARK, **results}
            text = json.dumps(marked, indent=2, default=handle_non_serializable) + "\n"
            _write(file, text, overwrite)
        marked_rows = [{"origin": MARK, **row} for row in self.rows]
        _write(lines, "".join(json.dumps(row) + "\n" for row in marked_rows), overwrite)


def outputs(labels: Sequence[str], folder: Path) -> list[Path]:
    """Return the files that `Report.save` writes: one for each model, then the rows of all."""
    names = [re.sub(r"[^\w.-]+", "_", label) + ".json" for label in labels]
    return [*(folder / name for name in names), folder / "rows.jsonl"]


def evaluate(
    models: Sequence[str],
    tasks: Sequence[str],
    *,
    root: Path | None = None,
    batch: int | str = "auto",
    device: str | None = None,
    dtype: torch.dtype | None = None,
    limit: int | None = None,
    available: bool = False,
    bootstrap: int = 100,
) -> Report:
    """Evaluate every model on every task, without examples in the prompt (zero-shot).

    Args:
        models: directories of checkpoints, ours or Hugging Face's, names at the hub, or `null`.
        tasks: stock tasks, groups and tags, or `toeplix-paper`.
        root: directory of published files; None: read the hub's data.
        batch: rows of a batch; auto: depends on their length. Results do not depend on it.
        device: cpu, cuda, ...; None: chosen automatically.
        dtype: of the weights; None: as they are stored.
        limit: evaluate only so many questions of each task.
        available: skip tasks without data instead of raising MissingData.
        bootstrap: number of bootstrap samples, for standard errors of metrics that are not means.
    """
    from lm_eval import simple_evaluate

    check_batch(batch)
    where = choose_device(device or AUTO)
    report = Report()
    names = labels(models)
    known = manager(paper.expanded(tasks))
    # all models are opened first, so that a misspelt name does not fail after an hour
    loaded = [open_model(model, batch=batch, device=where, dtype=dtype) for model in models]
    with warnings.catch_warnings(), quiet_git(), sources(root) as notes:
        warnings.simplefilter("ignore")  # from the libraries of the tasks
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
                device=str(where),
                limit=limit,
                bootstrap_iters=bootstrap,
            )
            samples = results.pop("samples")
            results["config"]["model_args"] = {"pretrained": label}
            results["truncated"] = {
                task: dict(counts) for task, counts in lm.truncations.counts.items()
            }
            report.harness[label] = results
            report.rows += rows(label, results, samples, limit, _noted(ready, notes))
            report.truncations += [f"{label}: {line}" for line in lm.truncations.lines()]
        report.notes.update(notes)
    return report


@contextmanager
def quiet_git() -> Iterator[None]:
    """Keep git's own errors from standard error while the harness asks it for the commit of results.

    The harness runs `git describe`, and does without a commit where that fails; git itself would still
    tell the user of a fatal error.
    """
    from lm_eval.loggers import utils

    def check_output(*arguments: Any, **options: Any) -> Any:
        return subprocess.check_output(*arguments, **{"stderr": subprocess.DEVNULL, **options})

    modules: Any = utils
    before = modules.subprocess
    modules.subprocess = SimpleNamespace(**{**vars(subprocess), "check_output": check_output})
    try:
        yield
    finally:
        modules.subprocess = before


def check_batch(batch: int | str) -> None:
    """Raise ValueError for a batch size that the harness would misunderstand."""
    from toeplix.evaluation.model import rows_of

    rows_of(batch)


def open_model(
    name: str,
    *,
    batch: int | str = "auto",
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> Any:
    """Return the harness's adapter of a toeplix checkpoint, of a Hugging Face model, or of `null`."""
    from toeplix.evaluation.model import Checkpoint
    from toeplix.evaluation.null_model import NullModel
    from toeplix.inference.loading import model_directory

    folder = Path(name)
    if name == NULL_MODEL and not folder.exists():
        return NullModel()
    config = model_directory(folder) / "config.json"
    if folder.is_dir() and not config.is_file():
        raise FileNotFoundError(f"{folder} is no checkpoint: there is no config.json in it")
    described = read_json(config) if config.is_file() else {}
    if is_checkpoint(described):
        return Checkpoint(folder, batch_size=batch, device=device, dtype=dtype)
    if not folder.is_dir() and (folder.is_absolute() or name.startswith(".")):
        raise FileNotFoundError(f"{name} does not exist")
    from toeplix.evaluation.huggingface import HuggingFaceModel

    return HuggingFaceModel(name, batch_size=batch, device=device, dtype=dtype)


def labels(models: Sequence[str]) -> list[str]:
    """Return short names that distinguish the models: `runs/mine/model` becomes `mine`."""
    parts = [[part for part in Path(model).parts if part != "model"] or [model] for model in models]
    for length in range(1, 1 + max(map(len, parts), default=1)):
        short = ["/".join(part[-length:]) for part in parts]
        if len(set(short)) == len(short):
            return short
    raise ValueError(f"a model is given twice: {', '.join(models)}")


def manager(names: Sequence[str]) -> Any:
    """Return the harness's index of tasks, as small as the names allow; unknown names are an error."""
    import lm_eval.tasks
    from lm_eval.tasks import TaskManager

    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # lower levels are for authors of tasks
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
    """Yield the names of stock tasks, groups and tags, read from their files without loading them."""
    pattern = re.compile(r"^(?:task|group|tag): *[\"']?([\w.:-]+)|^  ?-? ?- ([\w.:-]+) *$", re.M)
    for file in home.rglob("*.yaml"):
        for match in pattern.finditer(file.read_text(encoding="utf-8", errors="replace")):
            yield match[1] or match[2]


def _ready(known: Any, names: Iterable[str], available: bool, report: Report) -> Iterator[Any]:
    """Yield tasks with their data; one error names all tasks whose data are missing."""
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
        except KeyError as problem:  # the name is in a stock file, but not as the name of a task
            raise ValueError(f"there is no task {name!r}") from problem
        yield from (
            [loaded["groups"][name]] if name in loaded["groups"] else loaded["tasks"].values()
        )
    if report.missing and not available:
        raise MissingData(f"{'; '.join(report.missing)} (--available leaves such tasks out)")


def _noted(ready: Iterable[Any], notes: dict[str, str]) -> dict[str, str]:
    """Return the notes by task, from notes by data set."""
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
    """Return a row for each task and metric; `notes` has remarks on the data of tasks."""
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
                    "constant": constant_answer(metric, mine),
                    "truncated": results["truncated"].get(task, {}),
                    "note": notes.get(task, ""),
                }
            )
    return found


def sample_error(metric: str, samples: Sequence[dict[str, Any]]) -> float | None:
    """Return the standard error of a mean over questions; None if the metric is not such a mean."""
    numbers = by_question(metric, samples)
    if numbers is None or len(numbers) < 2:
        return None
    return statistics.stdev(numbers) / math.sqrt(len(numbers))


def constant_answer(metric: str, samples: Sequence[dict[str, Any]]) -> float | None:
    """Return the accuracy of the best constant answer; None unless all questions share their choices."""
    if metric != "acc" or len({_choices(sample) for sample in samples}) != 1:
        return None
    targets = [sample.get("target") for sample in samples]
    if not all(isinstance(each, int) for each in targets):
        return None
    return Counter(targets).most_common(1)[0][1] / len(targets)


def _choices(sample: dict[str, Any]) -> tuple[str, ...]:
    """Return the continuations that a question chooses from."""
    return tuple(str(arguments[1]) for arguments in sample["arguments"])


def by_question(metric: str, samples: Sequence[dict[str, Any]]) -> list[float] | None:
    """Return the metric of each question; None if the metric is not a mean over questions."""
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
