"""The thresholds of verdicts, each with the parts of claims that it decides and the reason for its value.

A threshold is a number. The report lists all of them (`lines`); a value without a reason is an opinion.
Where the data give a bound, experiments compute it: see `noise_recency`.
"""

import math


class Threshold(float):
    """A number with the claims that depend on it and its reason."""

    where: str
    reason: str

    def __new__(cls, value: float, where: str, reason: str) -> "Threshold":
        found = super().__new__(cls, value)
        found.where, found.reason = where, reason
        return found


SIMILAR_LOSS = Threshold(
    0.02,
    "C1, C2: nats by which a loss may be above (C1) or below (C2) another one that it counts as equal to",
    "No number of seeds shows equality, so there must be a margin. 0.02 nats are 2% in perplexity; the "
    "standard deviation of one model's loss over seeds is 0.005 to 0.06 at scale laptop.",
)
MIN_TOKENS_PER_PARAMETER = Threshold(
    1.0,
    "C1 to C7: training tokens per parameter of a control that counts as trained without a bigram loss",
    "Rows of the first protocol have no bigram loss. Below one token per parameter attention has not "
    "begun to learn: at 0.6 its loss is the same for all widths.",
)
SMALL_RANGE = Threshold(
    0.1,
    "C8: nats by which losses may differ over learning rates that matter little",
    "A learning rate matters if a wrong one can change the order of architectures. In the paper's logs "
    "models of one width differ by 0.2 nats (TMM and Hyena, d=512); half of that cannot change it.",
)
EARLY = Threshold(
    0.4,
    "C5e: fraction of the steps that is early in training",
    "The warmup is the first fifth at scale desk, and the first evaluation after twice that is the "
    "earliest that is not dominated by it.",
)
MIN_READ = Threshold(
    0.25,
    "C9: share of the loss that the state of an autoencoder must save decoders",
    "Decoders on the compared states save about 5%. A recipe that saves five times as much where the "
    "state was trained to be read can learn to read.",
)
TARGET_ACCURACY = Threshold(
    0.95,
    "C10 to C13, C15, C17: accuracy at which a task counts as solved, and a control as trained",
    "All chance levels are below 0.6, so 0.95 is out of reach of guessing, and it is passed well before "
    "the last rare errors, which take most of the steps.",
)
PERFECT_ACCURACY = Threshold(
    0.99,
    "C11, C16: accuracy from which a model makes too few errors to compare",
    "With 256 validation texts the standard error of an accuracy of 0.99 is 0.006: what lies above "
    "cannot be told from 1.",
)
CLAIMED_FLOPS_RATIO = Threshold(
    0.5,
    "C10c, C10d: FLOPs of TMM over those of the other model",
    "The paper's text: half to an eighth.",
)
EQUAL_AREAS = Threshold(
    0.05,
    "C12: difference of areas below which two models learn equally fast",
    "The area is the mean accuracy over a run with 50 evaluations (100 at scale desk); two runs that "
    "differ by two of 50 evaluations differ by 0.04.",
)
MIN_NARROW = Threshold(
    8,
    "C12d: channels from which a narrow model is tested",
    "The signs of 8 channels tell 256 tokens apart, half the vocabulary of 500: narrower models fail to "
    "name the tokens, which says nothing about copying.",
)
MIN_STANDARD_ERRORS = Threshold(
    3.0,
    "C14: standard errors above chance from which a score counts as above chance",
    "Bonferroni's bound for 14 benchmarks and two models, one-sided 5%, is 2.9.",
)
MAX_TRUNCATED = Threshold(
    0.5,
    "C14: fraction of a benchmark's prompts that may be longer than the context",
    "What is truncated cannot be retrieved; beyond one half the score is mostly that of "
    "something else.",
)
EQUAL_SCORES = Threshold(
    1.0,
    "C14b: percent by which a score may be lower and still count as equal",
    "ARC-Easy, GLUE and HellaSwag, which the paper calls on par, differ by 0.1 to 0.8 percent in it.",
)
NEAR_ZERO = Threshold(
    0.065,
    "C15a: -index / (n - 1) up to which an index is near 0",
    "The largest published value of a filter trained on language. The mean over filters is compared with "
    "it, which is in favour of the claim.",
)
LARGE_INDEX = Threshold(
    0.25,
    "C15b, C15c: -index / (n - 1) from which an index is large",
    "Halfway between 0 and 0.5, the mean of white noise; published copy models and encoders are above.",
)
BETWEEN_POWERS = Threshold(
    1.5,
    "C19: exponent of time or memory",
    "Halfway between linear growth (n log n has 1.1 at these lengths) and quadratic growth.",
)
MIN_TAPS = Threshold(
    32,
    "C17b: taps from which a recency bias is judged",
    "The newest eighth has four taps then; of fewer, one tap decides.",
)
THRESHOLDS = {
    name: value for name, value in list(globals().items()) if isinstance(value, Threshold)
}


def noise_recency(taps: int, newest: int, filters: int) -> float:
    """Return the 97.5% bound of the mean recency of filters of white noise (C17).

    The energy share of k of n Gaussian taps has the distribution Beta(k/2, (n-k)/2), with mean k/n and
    variance 2 k (n-k) / (n^2 (n+2)); the mean of several filters is nearly normal.

    >>> round(noise_recency(32, 4, 4), 3)
    0.204
    """
    variance = 2 * newest * (taps - newest) / (taps**2 * (taps + 2))
    return newest / taps + 1.96 * math.sqrt(variance / filters)


def lines() -> list[str]:
    """Return the thresholds as a table in Markdown."""
    found = ["| threshold | value | where | reason |", "|---|---|---|---|"]
    for name, value in THRESHOLDS.items():
        found.append(f"| {name} | {float(value):g} | {value.where} | {value.reason} |")
    said = " ".join((noise_recency.__doc__ or "").split(">>>")[0].split())
    said = said.removeprefix("Return the ")
    told = said[0].upper() + said[1:]
    found.append(f"| noise_recency | computed | C17b: recency of white noise | {told} |")
    return found
