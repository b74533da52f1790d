"""Data sources of the stock tasks, and replacements for their other downloads.

    with sources(root) as notes: ...      tasks load data and compute metrics within

With a root, `datasets.load_dataset` reads published files under it (formats.py); without one it reads the
hub's data. The metric of SQuAD 2.0 is that of squad.py in both cases, because the hub's is a script that
would have to be trusted. NLTK's model for splitting sentences is taken from a package if it is not
installed otherwise. The tasks are not changed.
"""

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toeplix.evaluation.formats import FORMATS
from toeplix.evaluation.squad import SquadV2


class MissingData(ValueError):
    """A data set is neither on disk nor available from the hub; the message is one line."""


@contextlib.contextmanager
def sources(root: Path | None) -> Iterator[dict[str, str]]:
    """Provide data and metrics of the stock tasks within the context; yields notes by data set."""
    import datasets
    import evaluate

    if root is not None and not root.is_dir():
        raise FileNotFoundError(f"--data-root {root} is no directory")
    notes: dict[str, str] = {}
    hub, metric = datasets.load_dataset, evaluate.load

    def load_dataset(path: str, name: str | None = None, **options: Any) -> Any:
        if root is None:
            return from_hub(hub, path, name, options)
        found = local(root, path, name)
        if found[1]:
            notes[dataset(path, name)] = found[1]
        return found[0]

    def load(path: str, *rest: Any, **options: Any) -> Any:
        return SquadV2() if path == "squad_v2" else metric(path, *rest, **options)

    with (
        replaced(datasets, "load_dataset", load_dataset),
        replaced(evaluate, "load", load),
        sentences(root),
    ):
        yield notes


@contextlib.contextmanager
def replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of a module within the context."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def dataset(path: str | None, name: str | None) -> str:
    """Return the name of a data set of the hub with its configuration."""
    return str(path) if name in (None, "default") else f"{path} ({name})"


def local(root: Path, path: str, name: str | None) -> tuple[Any, str]:
    """Return the data set as a `DatasetDict`, and a note."""
    from datasets import Dataset, DatasetDict

    called = dataset(path, name)
    if path not in FORMATS:
        raise MissingData(
            f"{called}: no local format is known for this data set: leave --data-root out, or choose "
            f"tasks on {', '.join(sorted(FORMATS))}"
        )
    try:
        splits, file, note = FORMATS[path](root, name or "default")
        made = {split: Dataset.from_list(rows) for split, rows in splits.items()}
    except FileNotFoundError as problem:
        raise MissingData(
            f"{called}: {problem}: put the file there, or leave --data-root out to read the hub's"
        ) from problem
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,  # a number that is too large for its column
        RecursionError,
    ) as problem:
        reason = str(problem) if isinstance(problem, ValueError) else repr(problem)
        raise MissingData(
            f"{called}: a file under {root} is not in its published format: {reason}"
        ) from problem
    if not all(splits.values()):
        raise MissingData(f"{called}: {file} has no rows")
    first = next(iter(made.values()))
    # tasks read the few-shot examples even if they use none
    made.setdefault("train", first.select([]))
    return DatasetDict(made), note


def from_hub(hub: Any, path: str, name: str | None, options: dict[str, Any]) -> Any:
    try:
        return hub(path=path, name=name, **options)
    except Exception as problem:  # from the network, the hub or the data, of any class
        reason = str(problem).strip().partition("\n")[0] or type(problem).__name__
        raise MissingData(
            f"{dataset(path, name)}: cannot be read from the Hugging Face hub: {reason}; "
            "--data-root DIR reads published files instead"
        ) from problem


@contextlib.contextmanager
def sentences(root: Path | None) -> Iterator[None]:
    """Let NLTK find its English sentence model: installed, under the root, or in a package."""
    try:
        import nltk
    except ModuleNotFoundError:  # only IFEval needs it
        yield
        return
    places = [*package_data()]
    if root is not None:
        places += [str(folder) for folder in root.rglob("nltk_data") if folder.is_dir()]
    with replaced(nltk.data, "path", [*nltk.data.path, *places]):
        yield


def package_data() -> list[str]:
    """Return directories with NLTK's data inside an installed package, which is not imported."""
    found = importlib.util.find_spec("llama_index")
    roots = (found.submodule_search_locations or []) if found else []
    places = [Path(place) / "core" / "_static" / "nltk_cache" for place in roots]
    return [str(place) for place in places if place.is_dir()]
