"""The metric of SQuAD 2.0, which the stock task loads by `evaluate.load("squad_v2")`.

    exact   1 if an answer, after lower-casing and without punctuation, articles and extra spaces, is
            one of the references; unanswerable questions have the empty answer as theirs
    f1      the best harmonic mean of precision and recall over words, among the references
    best_*  the same if the model abstained above the best threshold of its no-answer probability

In percent, over all questions and over those with (HasAns) and without (NoAns) an answer.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact(answer: str, reference: str) -> float:
    return float(normalised(answer) == normalised(reference))


def f1(answer: str, reference: str) -> float:
    given, wanted = normalised(answer).split(), normalised(reference).split()
    if not given or not wanted:
        return float(given == wanted)
    common = (Counter(given) & Counter(wanted)).total()
    return 2 * common / (len(given) + len(wanted))


def best(score: Any, answer: str, references: Sequence[str]) -> float:
    """Return the best score over the references; empty ones count only if all are empty."""
    wanted = [text for text in references if normalised(text)] or [""]
    value: float = max(score(answer, text) for text in wanted)
    return value


def singles(
    predictions: Sequence[dict[str, Any]], references: Sequence[dict[str, Any]]
) -> list[dict[str, float]]:
    """Return for every question exact match, F1, and whether it has an answer."""
    rows = []
    for prediction, reference in zip(predictions, references, strict=True):
        texts, answer = reference["answers"]["text"], prediction["prediction_text"]
        row = {"exact": best(exact, answer, texts), "f1": best(f1, answer, texts)}
        rows.append({**row, "answerable": float(len(texts) > 0)})
    return rows


class SquadV2:
    """A replacement for the metric of `evaluate.load("squad_v2")` with what the stock task uses."""

    def compute(
        self, *, predictions: Sequence[dict[str, Any]], references: Sequence[dict[str, Any]]
    ) -> dict[str, float]:
        rows = singles(predictions, references)
        answerable = [bool(row["answerable"]) for row in rows]
        found: dict[str, float] = {}
        kinds = {"": (True, False), "HasAns_": (True,), "NoAns_": (False,)}
        for prefix, kind in kinds.items():
            chosen = [row for row, has in zip(rows, answerable, strict=True) if has in kind]
            if chosen:
                for name in ("exact", "f1"):
                    total = sum(row[name] for row in chosen)
                    found[prefix + name] = 100 * total / len(chosen)
                found[prefix + "total"] = len(chosen)
        doubts = [prediction["no_answer_probability"] for prediction in predictions]
        empty = [not prediction["prediction_text"] for prediction in predictions]
        for name in ("exact", "f1"):
            value, threshold = abstaining([row[name] for row in rows], answerable, empty, doubts)
            found[f"best_{name}"], found[f"best_{name}_thresh"] = value, threshold
        return found


def abstaining(
    scores: Sequence[float],
    answerable: Sequence[bool],
    empty: Sequence[bool],
    doubts: Sequence[float],
) -> tuple[float, float]:
    """Return the best score over all abstention thresholds, and its threshold."""
    # abstain everywhere, which is correct for unanswerable questions; then answer by rising doubt
    total = float(answerable.count(False))
    most, threshold = total, 0.0
    for place in sorted(range(len(scores)), key=lambda place: doubts[place]):
        total += scores[place] if answerable[place] else 0.0 if empty[place] else -1.0
        if total > most:
            most, threshold = total, doubts[place]
    return 100 * most / max(1, len(scores)), threshold
