"""GLUE: the columns and labels of its tasks, and the tab-separated files of its archives."""

import csv
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from toeplix.evaluation.parsing import Found, Rows, at, find, one_of
from toeplix.files import check_input


class Glue(NamedTuple):
    """A GLUE task: its folder, the hub's columns with the names that files give them, its labels."""

    folder: str
    columns: Mapping[str, tuple[str | int, ...]]
    labels: tuple[str, ...] = ("0", "1")
    files: tuple[tuple[str, str], ...] = (("validation", "dev.tsv"),)


_PAIR = {"sentence1": ("sentence1",), "sentence2": ("sentence2",), "label": ("label",)}
_MATCHES = (
    ("validation_matched", "dev_matched.tsv"),
    ("validation_mismatched", "dev_mismatched.tsv"),
)
GLUE = {
    "cola": Glue("CoLA", {"sentence": ("sentence", 3), "label": ("label", 1)}),
    "sst2": Glue("SST-2", {"sentence": ("sentence", "text_a"), "label": ("label",)}),
    "mrpc": Glue(
        "MRPC",
        {"sentence1": ("#1 String",), "sentence2": ("#2 String",), "label": ("Quality", "label")},
    ),
    "qqp": Glue(
        "QQP",
        {"question1": ("question1",), "question2": ("question2",), "label": ("is_duplicate",)},
    ),
    "mnli": Glue(
        "MNLI",
        {"premise": ("sentence1",), "hypothesis": ("sentence2",), "label": ("gold_label",)},
        ("entailment", "neutral", "contradiction"),
        _MATCHES,
    ),
    "qnli": Glue(
        "QNLI",
        {"question": ("question",), "sentence": ("sentence",), "label": ("label",)},
        ("entailment", "not_entailment"),
    ),
    "rte": Glue("RTE", _PAIR, ("entailment", "not_entailment")),
    "wnli": Glue("WNLI", _PAIR),
}


def glue(root: Path, name: str) -> Found:
    """dev.tsv of GLUE's archives; CoLA's has no header."""
    task = GLUE[name]
    splits: dict[str, Rows] = {}
    files = [find(root, f"{task.folder}/{file}") for _, file in task.files]
    for (split, _), file in zip(task.files, files, strict=True):
        splits[split] = []
        for number, row in enumerate(table(file), 1):
            with at(f"{file}, row {number}"):
                splits[split].append(_glue(row, task, file))
    return Found(splits, files[0])


def _glue(row: dict[str | int, str], task: Glue, file: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for column, names in task.columns.items():
        values = [row[name] for name in names if name in row]
        if not values:
            raise ValueError(f"{file} has no column {' or '.join(map(str, names))}")
        found[column] = values[0]
    label = found["label"]
    numbers = [str(number) for number in range(len(task.labels))]
    label = one_of("label", label, [*task.labels, *numbers])
    found["label"] = task.labels.index(label) if label in task.labels else int(label)
    return found


def table(file: Path) -> list[dict[str | int, str]]:
    """Tab-separated rows, by name and by number. A quote is a letter, unless it encloses a field."""
    with at(file):
        check_input(file)
        text = file.read_text(encoding="utf-8-sig")
        if not text.strip():
            raise ValueError("it is empty")
        return _rows_of(text)


def _rows_of(text: str) -> list[dict[str | int, str]]:
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter="\t", quoting=csv.QUOTE_NONE))
    if any(len(row) != len(rows[0]) for row in rows if row):
        quoted = list(csv.reader(io.StringIO(text, newline=""), delimiter="\t"))
        if all(len(row) == len(quoted[0]) for row in quoted if row):
            rows = quoted
    elif any(
        re.fullmatch(r'".*"', field, re.DOTALL) and '""' in field for row in rows for field in row
    ):
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter="\t"))
    named = any(
        field in {"sentence", "label", "index", "Quality", "id", "sentence1"} for field in rows[0]
    )
    header = rows[0] if named else []
    return [
        {**dict(enumerate(row)), **dict(zip(header, row, strict=False))}
        for row in rows[1 if named else 0 :]
        if row
    ]
