"""Convert the prompts of MiniLongBench's files back to rows of the stock task.

The template of the task determines where the context and the question are. Filling it in again gives the
same prompt, up to spaces at its end.
"""

import json
import re
from pathlib import Path
from typing import Any

from toeplix.evaluation.parsing import at, texts
from toeplix.files import read_json


def rows_from_prompts(file: Path, name: str) -> list[dict[str, Any]]:
    """Return rows with `context`, `question`, `answers` and `all_classes`."""
    template = stock_template(name)
    rows = []
    for number, row in read_json(file).items():
        with at(f"{file}, prompt {number}"):
            gold = row["gold"]
            classes = gold["all_classes"] if isinstance(gold, dict) else []
            answers = gold["answers"] if isinstance(gold, dict) else gold
            fields = fields_of(row["origin_prompt"], template)
            found = {"answers": texts("answers", answers), "all_classes": classes or []}
            rows.append({**fields, **found})
    return rows


def fields_of(prompt: str, template: str) -> dict[str, str]:
    """Return the values of `{{context}}` and `{{question}}` in a prompt; trailing spaces are ignored."""
    literals = re.split(r"\{\{(context|question)\}\}", template.rstrip())
    pattern = "".join(
        f"(?P<{part}>.*)" if place % 2 else re.escape(part) for place, part in enumerate(literals)
    )
    matched = re.fullmatch(pattern, prompt.rstrip(), re.DOTALL)
    if matched is None:
        raise ValueError("does not fit the template of the stock task")
    return {"context": "", "question": "", **matched.groupdict()}


def stock_template(name: str) -> str:
    """Return the template `doc_to_text` of a stock task of LongBench."""
    import lm_eval.tasks

    folder = Path(lm_eval.tasks.__file__).parent / "longbench"
    for line in (folder / f"{name}.yaml").read_text(encoding="utf-8").splitlines():
        if line.startswith("doc_to_text: "):
            text: str = json.loads(line.removeprefix("doc_to_text: "))
            return text
    raise ValueError(f"the stock task longbench_{name} has no template")
