"""Verdicts on the parts of a claim, from comparisons with their intervals.

    holds                 every comparison of the part is decided, in the claimed direction
    fails                 a comparison is decided in the other direction
    control not trained   else, a model that is compared with has not learned enough to decide anything
    undecided             else
    not testable here     the claim is about something that these rows cannot show

Comparisons of all parts of a claim in one experiment are decided together, with Holm's correction
(`intervals.holm`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toeplix.experiments.engine import intervals
from toeplix.experiments.engine.claims import ONE_SEED, Kind, Verdict
from toeplix.experiments.engine.intervals import Interval


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A measured number that should be below its bound, or above it."""

    name: str
    interval: Interval
    bound: float = 0.0
    above: bool = False
    unit: str = ""
    # why the model that is compared with counts as not trained; empty if it is trained
    control: str = ""
    detail: str = ""  # what stands beside the number where all numbers are listed

    def __str__(self) -> str:
        return f"{self.name}: {self.number}" + (f" ({self.detail})" if self.detail else "")

    @property
    def number(self) -> str:
        return f"{self.interval} {self.unit}".strip()

    @property
    def side(self) -> str:
        return f"{'above' if self.above else 'below'} {self.bound:.3g}"


def decide(parts: Mapping[str, Sequence[Comparison] | Verdict]) -> dict[str, Verdict]:
    """Return a verdict for every part of one claim in one experiment.

    Parts that have a verdict already keep it.
    A part without comparisons is not measured, and has no verdict.
    """
    known = {name: each for name, each in parts.items() if not isinstance(each, Verdict)}
    tested = [each for several in known.values() for each in several if not each.control]
    below = intervals.holm([(each.interval, each.bound) for each in tested])
    answers = {
        id(each): None if answer is None else answer is not each.above
        for each, answer in zip(tested, below, strict=True)
    }
    found = {name: each for name, each in parts.items() if isinstance(each, Verdict)}
    for name, several in known.items():
        if several:
            found[name] = _verdict(several, answers, len(tested))
    return {name: found[name] for name in parts if name in found}


def _verdict(
    several: Sequence[Comparison], answers: Mapping[int, bool | None], tested: int
) -> Verdict:
    ours = "; ".join(dict.fromkeys(map(str, several)))
    known = [answers[id(each)] for each in several if not each.control]
    untrained = next((each for each in several if each.control), None)
    # what has failed against one trained control fails, whatever another would say
    if untrained and False not in known:
        return Verdict(
            kind="control not trained",
            number=untrained.number,
            reason=untrained.control,
            ours=ours,
        )
    kinds: dict[bool | None, Kind] = {True: "holds", None: "undecided", False: "fails"}
    answer = intervals.every(*known)
    # the comparison that decides: one with this answer, the least certain if all must hold
    deciding = max(
        (each for each in several if not each.control and answers[id(each)] is answer),
        key=lambda each: _probability(each) if answer is not False else -_probability(each),
    )
    return Verdict(
        kind=kinds[answer],
        number=deciding.number,
        reason=f"{deciding.name}: {_reason(deciding, answer, tested)}",
        ours=ours,
    )


def _probability(each: Comparison) -> float:
    return intervals.probability(each.interval, each.bound)


def _reason(each: Comparison, answer: bool | None, tested: int) -> str:
    if answer is not None:
        return f"{'' if answer else 'not '}{each.side}"
    if not each.interval.dof:
        return ONE_SEED
    if intervals.below(each.interval, each.bound) is None:
        return f"the interval contains {each.bound:.3g}"
    return f"not decided after Holm's correction over {tested} comparisons"


def not_testable(reason: str, ours: str = "") -> Verdict:
    return Verdict(kind="not testable here", number="", reason=reason, ours=ours or reason)


def untrained(reason: str, number: str = "", ours: str = "") -> Verdict:
    return Verdict(kind="control not trained", number=number, reason=reason, ours=ours or reason)


def slower(
    name: str,
    ratio: float,
    rounds: Sequence[float] = (),
    span: Sequence[float] = (),
) -> list[Comparison] | Verdict:
    """Judge a ratio of times that should be above 1.

    Args:
        name: what is compared.
        ratio: the ratio that older rows are judged by, of medians or the median over rounds.
        rounds: the ratio of every round of timing; its mean has an interval over rounds.
        span: the lowest and the highest ratio over rounds, of older rows that have no more. A range is no
            interval: the part is decided only if all rounds are on one side.
    """
    if rounds:
        interval = intervals.mean(rounds)
        name = f"{name}, mean of {len(rounds)} rounds"
        return [Comparison(name=name, interval=interval, bound=1.0, above=True)]
    if not span:
        side = "above 1" if ratio > 1 else "not above 1"
        reason = f"{name}: {side}; the row has medians only, and no interval"
        return counted(ratio > 1, f"{ratio:.3f}", reason, f"{name}: {ratio:.3f}")
    low, high = span
    right = True if low > 1 else False if high <= 1 else None
    said = {
        True: "above 1 in every round",
        False: "above 1 in no round",
        None: "above 1 in some rounds",
    }
    number = f"{ratio:.3f} ({low:.3f} to {high:.3f} over rounds)"
    return counted(right, number, f"{name}: {said[right]}", f"{name}: {number}")


def counted(right: bool | None, number: str, reason: str, ours: str = "") -> Verdict:
    """Return the verdict of something that is counted and not estimated; None: undecided."""
    kinds: dict[bool | None, Kind] = {True: "holds", None: "undecided", False: "fails"}
    return Verdict(kind=kinds[right], number=number, reason=reason, ours=ours or number)
