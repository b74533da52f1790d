"""Windowed attention (Figure S3): Toeplitz mixers against attention to the last l positions.

Windows are n/8, n/4 and n/2 (64, 128 and 256 of the paper's 512). The published "l = n/2" was full causal
attention: in its library a query sees its own bucket and the whole bucket before it, which at l = n/2 is
the whole context. Both readings are measured: a true window of n/2, and full attention ("llama").
"""

from toeplix.experiments.engine import curves, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import MODELS
from toeplix.experiments.engine.rows import Row
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.text_training import Case, Pair, TextRow
from toeplix.experiments.engine.verdicts import decide

CLAIMS, MEASURES_TIME = ("C3",), False
COST = "15 minutes on two cores with --jobs 2, less after `training`"
FRACTIONS = (8, 4, 2)
TOEPLITZ = ("toeplitz", "paper flat", "paper 4 heads")
PAIRS = [Pair(name, other) for name in TOEPLITZ[1:] for other in ("window n/2", "llama")]


def cases(scale: Scale, rows: list[TextRow]) -> list[Case]:
    compared = {name: MODELS[name] for name in (*TOEPLITZ, "llama")}
    for fraction in FRACTIONS:
        settings = {"arch": "window", "window": scale.context // fraction}
        compared[f"window n/{fraction}"] = settings
    return text_training.tuned(scale, compared, rows, pairs=PAIRS)


measure = text_training.measure
table = curves.table


def figure(rows: list[TextRow], published: list[Row]) -> Figure:
    return curves.pair(rows, published, "true windows, and full attention")


def holds(rows: list[TextRow]) -> dict[str, Verdict]:
    """Judge C3 by the loss after equal steps; steps of windowed attention do not take less time."""
    best = curves.best_of(rows, TOEPLITZ[1:])
    found = []
    for other in ("window n/2", "llama"):
        reading = "full attention" if other == "llama" else "a true window of n/2"
        name = f"{best} minus {reading}"
        each = None if best is None else curves.compare(rows, best, other, name=name)
        if each is None:
            return {}
        found.append(each)
    return decide({"C3": found})
