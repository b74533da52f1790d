"""A model that knows nothing and says nothing: what a score is worth is how far it is above this.

Every byte is equally likely to it, so of several answers it prefers the shortest; what it writes is
empty. That is a score of 50 in the F1 of SQuAD v2, where half of the questions have no answer.
"""

import math

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from toeplix.evaluation.truncation import Cuts


class Silence(LM):  # type: ignore[misc]
    """Log-likelihoods are -log 256 for every byte of an answer or text."""

    def __init__(self) -> None:
        super().__init__()
        self.cuts = Cuts()

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
