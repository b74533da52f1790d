"""Published files of benchmarks, converted to the rows that the stock tasks read.

    FORMATS[hub name](root, configuration) -> Found(splits, file, note)

Each entry searches for the published file by name under the root and renames fields. Questions, their
order and tasks are unchanged. `note` is a remark for readers of the scores if a file is not the hub's.
"""

import contextlib
import csv
import io
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

Rows = list[dict[str, Any]]


class Found(NamedTuple):
    """Rows by split, their file, and a remark on them."""

    splits: dict[str, Rows]
    file: Path
    note: str = ""


def find(root: Path, *patterns: str) -> Path:
    """Return the first file that matches a pattern, patterns in order; fewest directories first."""
    for pattern in patterns:
        fitting = sorted(root.rglob(pattern), key=lambda file: (len(file.parts), file))
        if fitting:
            return fitting[0]
    raise FileNotFoundError(f"no {' or '.join(patterns)} under {root}")


@contextlib.contextmanager
def at(place: object) -> Iterator[None]:
    """Add the place in a file, a line or a question, to errors about its format."""
    try:
        yield
    except KeyError as problem:
        raise ValueError(f"{place}: field {problem} is missing") from problem
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as problem:
        raise ValueError(f"{place}: {problem}") from problem


def json_lines(
    file: Path, convert: Callable[[dict[str, Any]], dict[str, Any]] | None = None, **kinds: type
) -> Rows:
    """Return the objects of a JSON Lines file after checking types of fields; `convert` may raise too."""
    rows = []
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            with at(f"{file}, line {number}"):
                row = _object(line)
                for name, kind in kinds.items():
                    if not isinstance(value := row.get(name), kind):
                        raise ValueError(f"field {name} is {value!r:.60}, no {kind.__name__}")
                rows.append(row if convert is None else convert(row))
    return rows


def _object(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as problem:
        raise ValueError(f"no JSON ({problem})") from problem
    except RecursionError as problem:
        raise ValueError("no JSON that can be read: nested too deeply") from problem
    if not isinstance(row, dict):
        raise ValueError(f"no JSON object, but {row!r:.60}")
    return row


def one_of(name: str, value: Any, known: Collection[Any]) -> Any:
    """Return a field with the number of the correct choice."""
    if value not in known:
        raise ValueError(
            f"field {name} is {value!r:.60}, none of {', '.join(map(str, known)):.200}"
        )
    return value


def texts(name: str, values: Any) -> list[str]:
    """Return a field that is a list of texts."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"field {name} is {values!r:.60}, no list of texts")
    return values


def arc(root: Path, name: str) -> Found:
    """ARC-Easy-Test.jsonl of AI2's archive."""
    file = find(root, f"{name}-Test.jsonl")
    return Found({"test": json_lines(file, _arc, question=dict, answerKey=str)}, file)


def _arc(row: dict[str, Any]) -> dict[str, Any]:
    question = row["question"]
    choices = {
        key: texts(key, [choice[key] for choice in question["choices"]])
        for key in ("text", "label")
    }
    return {
        "id": row["id"],
        "question": question["stem"],
        "choices": choices,
        "answerKey": one_of("answerKey", row["answerKey"], choices["label"]),
    }


def hellaswag(root: Path, name: str) -> Found:
    """hellaswag_val.jsonl of the authors' repository."""
    file = find(root, "hellaswag_val.jsonl")
    kinds = {"ctx_a": str, "ctx_b": str, "activity_label": str, "endings": list}
    return Found({"validation": json_lines(file, _hellaswag, **kinds)}, file)


def _hellaswag(row: dict[str, Any]) -> dict[str, Any]:
    numbers = [str(number) for number in range(len(texts("endings", row["endings"])))]
    return row | {"label": one_of("label", str(row["label"]), numbers)}


def lambada(root: Path, name: str) -> Found:
    """lambada_test.jsonl as OpenAI processed it."""
    file = find(root, "lambada_test.jsonl")
    return Found({"test": [{"text": row["text"]} for row in json_lines(file, text=str)]}, file)


def ifeval(root: Path, name: str) -> Found:
    """input_data.jsonl of google-research/instruction_following_eval."""
    file = find(root, "ifeval/**/input_data.jsonl", "input_data.jsonl")
    kinds = {"key": int, "prompt": str, "instruction_id_list": list, "kwargs": list}
    return Found({"train": json_lines(file, _ifeval, **kinds)}, file)


def _ifeval(row: dict[str, Any]) -> dict[str, Any]:
    count = len(texts("instruction_id_list", row["instruction_id_list"]))
    if len(row["kwargs"]) != count or not all(isinstance(each, dict) for each in row["kwargs"]):
        raise ValueError(
            f"field kwargs must be a list of {count} objects, one for each instruction"
        )
    return row


def swde(root: Path, name: str) -> Found:
    """based-swde-v2 exported as JSON lines."""
    file = find(root, "based-swde-v2*.jsonl", "swde/**/*.jsonl", "swde*.jsonl")
    published = file.name.startswith("based-swde-v2")
    note = "" if published else f"{file.name} is not the split of based-swde-v2"
    return Found({"validation": json_lines(file, text=str, value=str)}, file, note)


def squad_v2(root: Path, name: str) -> Found:
    """dev-v2.0.json of SQuAD explorer."""
    file = find(root, "dev-v2.0.json", "dev-v2.0*.json")
    rows = [
        {
            "id": asked["id"],
            "title": title,
            "context": context,
            "question": asked["question"],
            "answers": {
                "text": [answer["text"] for answer in asked["answers"]],
                "answer_start": [answer["answer_start"] for answer in asked["answers"]],
            },
        }
        for title, context, asked in _squad(file)
    ]
    return Found({"validation": rows}, file)


def squad_completion(root: Path, name: str) -> Found:
    """based-squad exported as JSON lines, or else SQuAD v1.1 with a prompt of its own."""
    try:
        file = find(root, "based-squad*.jsonl")
        return Found({"validation": json_lines(file, text=str, value=str)}, file)
    except FileNotFoundError:
        file = find(root, "based-squad*.jsonl", "dev-v1.1.json")
    rows = [
        {
            "doc_id": asked["id"],
            "text": f"{title}\n{context}\nQuestion: {asked['question']}\nAnswer:",
            "value": asked["answers"][0]["text"],
        }
        for title, context, asked in _squad(file)
        if asked["answers"]
    ]
    note = "questions of SQuAD v1.1: based-squad has a part of them, rewritten as texts to go on"
    return Found({"validation": rows}, file, note)


def _squad(file: Path) -> list[tuple[str, str, dict[str, Any]]]:
    found = []
    with at(file):
        for number, article in enumerate(_object(file.read_bytes())["data"], 1):
            with at(f"article {number}"):
                title = article["title"]
                for paragraph in article["paragraphs"]:
                    for asked in paragraph["qas"]:
                        with at(f"question {asked['id']!r:.60}"):
                            texts("answers", [answer["text"] for answer in asked["answers"]])
                            texts("question", [asked["question"], title, paragraph["context"]])
                        found.append((title, paragraph["context"], asked))
    return found


def xwinograd(root: Path, name: str) -> Found:
    """dataset.tsv of crosslingual_winograd: language, origin, ..., sentence, words, pronoun, options."""
    file = find(root, "xwinograd/**/dataset.tsv", "*winograd*/**/dataset.tsv", "dataset.tsv")
    rows = []
    with at(file), open(file, encoding="utf-8", newline="") as lines:
        tabs = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        for fields in tabs:
            if fields and fields[0] == name:
                with at(f"line {tabs.line_num}"):
                    rows.append(_winograd(fields[3], *map(json.loads, fields[4:7])))
    return Found({"test": rows}, file)


def _winograd(sentence: str, words: list[str], pronoun: Any, options: Any) -> dict[str, Any]:
    """Replace the pronoun by a gap; its position is given in words and converted to characters."""
    before = sum(len(word.replace(" ", "")) for word in words[: pronoun[1][0]])
    place = letters = 0
    while letters < before or sentence[place].isspace():
        letters += not sentence[place].isspace()
        place += 1
    gap = sentence[:place] + "_" + sentence[place + len(pronoun[0]) :]
    correct = [option[3] for option in options[:2]]
    if correct.count(True) != 1:
        raise ValueError(f"one of two options must be the right one, not {correct!r:.60}")
    right = correct.index(True)
    return {
        "sentence": gap,
        "option1": options[0][0],
        "option2": options[1][0],
        "answer": str(right + 1),
    }


class Glue(NamedTuple):
    """A GLUE task: its folder, the hub's columns by their names in the files, and its labels."""

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
    """Return tab-separated rows by name and by number; quotes count only if they enclose a field."""
    with at(file):
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


def wikitext(root: Path, name: str) -> Found:
    """wiki.test.raw of the raw archive, or test.txt with rare words replaced; documents are articles."""
    splits, note, first = {}, "", None
    for split, stem in (("test", "test"), ("validation", "valid")):
        raw, cooked = f"wiki.{stem}.raw", f"wikitext-2*/**/{stem}.txt"
        try:
            file = find(
                root, f"wikitext-2*/**/{raw}", raw, f"wikitext-2*/**/wiki.{stem}.tokens", cooked
            )
        except FileNotFoundError:
            if split == "test":
                raise
            continue
        first = first or file
        if not file.name.endswith(".raw"):
            note = "rare words are <unk> in this file, unlike in wikitext-2-raw"
        with at(file):
            text = file.read_text(encoding="utf-8")
        starts = [match.start() for match in re.finditer(r"^ = [^=].*[^=] = $", text, re.MULTILINE)]
        pieces = [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
        splits[split] = [{"page": piece} for piece in pieces]
    assert first is not None
    return Found(splits, first, note)


def longbench(root: Path, name: str) -> Found:
    """NAME.jsonl of LongBench's archive, or MiniLongBench's prompts split into their fields."""
    try:
        file = find(root, f"[Ll]ong[Bb]ench*/**/{name}.jsonl")
    except FileNotFoundError:
        from toeplix.evaluation.prompts import rows_from_prompts

        file = find(root, f"[Ll]ong[Bb]ench*/**/{name}.jsonl", f"MiniLongBench_{name}.json")
        note = "MiniLongBench, a small part of LongBench"
        return Found({"test": rows_from_prompts(file, name)}, file, note)
    kinds = {"input": str, "context": str, "answers": list}
    return Found({"test": json_lines(file, _longbench, **kinds)}, file)


def _longbench(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "question": row["input"],
        "context": row["context"],
        "answers": texts("answers", row["answers"]),
        "all_classes": texts("all_classes", row.get("all_classes") or []),
    }


FORMATS: dict[str, Callable[[Path, str], Found]] = {
    "allenai/ai2_arc": arc,
    "Rowan/hellaswag": hellaswag,
    "EleutherAI/lambada_openai": lambada,
    "google/IFEval": ifeval,
    "hazyresearch/based-swde-v2": swde,
    "hazyresearch/based-squad": squad_completion,
    "lighteval/squad_v2": squad_v2,
    "Muennighoff/xwinograd": xwinograd,
    "nyu-mll/glue": glue,
    "EleutherAI/wikitext_document_level": wikitext,
    "Xnhyacinth/LongBench": longbench,
}
