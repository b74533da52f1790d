"""The null model: a baseline that scores without any knowledge.

All bytes have the same probability, so it prefers the shortest of several choices, and its completions
are empty. In the F1 of SQuAD v2 it scores 50, because half of the questions have no answer.
"""

import math

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from toeplix.evaluation.truncation import Truncations


class NullModel(LM):  # type: ignore[misc]
    """A model with a log-likelihood of -log 256 for each byte, and empty completions."""

    def __init__(self) -> None:
        super().__init__()
        self.truncations = Truncations()

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        return [(_uniform(request.args[1]), False) for request in requests]

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        return [_uniform(request.args[0]) for request in requests]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        return [""] * len(requests)


def _uniform(text: str) -> float:
    return -math.log(256) * len(text.encode())
