"""Published files of benchmarks, converted to the rows that the stock tasks read.

    FORMATS[hub name](root, configuration) -> Found(splits, file, note)

Each entry searches for the published file by name under the root and renames fields. Questions, their
order and tasks are unchanged. `note` is a remark for readers of the scores if a file is not the hub's.
"""

import csv
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toeplix.evaluation.glue import glue
from toeplix.evaluation.parsing import Found, at, find, json_lines, one_of, texts
from toeplix.files import check_input, parse_json, read_json


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
    for place, (instruction, given) in enumerate(
        zip(row["instruction_id_list"], row["kwargs"], strict=True)
    ):
        _check_instruction(place, instruction, given)
    return row


def _check_instruction(place: int, name: str, given: dict[str, Any]) -> None:
    """Build an instruction as the stock task does when an answer is scored, hours later."""
    from lm_eval.tasks.ifeval.instructions_registry import INSTRUCTION_DICT

    instruction = INSTRUCTION_DICT[one_of("instruction_id_list", name, INSTRUCTION_DICT)](name)
    before = random.getstate()  # from which instructions draw what they are not given
    try:
        instruction.build_description(**{key: value for key, value in given.items() if value})
    except Exception as problem:  # of whatever an instruction does with its arguments
        raise ValueError(f"field kwargs[{place}] does not fit {name}: {problem}") from problem
    finally:
        random.setstate(before)


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
        for number, article in enumerate(read_json(file)["data"], 1):
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
    check_input(file)
    with at(file), open(file, encoding="utf-8", newline="") as lines:
        tabs = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        for fields in tabs:
            if fields and fields[0] == name:
                with at(f"line {tabs.line_num}"):
                    rows.append(
                        _winograd(fields[3], *(parse_json(each, object) for each in fields[4:7]))
                    )
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
            check_input(file)
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
