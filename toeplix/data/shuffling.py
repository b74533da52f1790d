"""Shuffling as a pure function, independent of the random generators of libraries and their versions."""

import numpy as np
from numpy.typing import NDArray


def shuffled(count: int, *key: int) -> NDArray[np.int64]:
    """Return a permutation of `count` items that is the same on every machine and in every version."""
    state = np.zeros(1, np.uint64)
    for each in key:
        state = _mixed(state + np.uint64(each % 2**64))
    numbers = _mixed(np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + state)
    return np.argsort(numbers, kind="stable")


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply the output function of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
