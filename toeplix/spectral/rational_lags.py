"""Receptive field, stable rank and states of recurrent filters, in closed form.

Lags are weighted by energy, w[l]^2 over all lags; `rational_sums` has the sums.

*States.* A recurrent form keeps the last `short` - 1 inputs and r sums: at most short - 1 + r states, and
exactly d + r' if free[d] is the last free tap that is not zero and r' different decays have a weight,
because poles at different places do not cancel. The Hankel matrix H[i, j] = w[i + j + 1] factors,

    H = O C,    C[:, s] the states s steps after an input of 1,    O[:, k] the outputs after state k

so its singular values are those of (O^T O)^1/2 (C C^T)^1/2, whose entries are geometric sums.
"""

import math
from decimal import Decimal

import numpy as np
import torch
from torch import Tensor

from toeplix.spectral.lags import RECEPTIVE_ENERGY, RECURRENT_TOLERANCE, Lags
from toeplix.spectral.rational import RationalFilter
from toeplix.spectral.rational_indices import symbol_maximum
from toeplix.spectral.rational_sums import Sums
from toeplix.spectral.singular import spectral_norm

REST = 2.0**-20  # `recency` ends where this fraction of the energy, or less, remains
MIN_RECENCY = 16  # taps up to which `recency` goes at least


def rational_lags(filter: RationalFilter) -> Lags:
    """Return the statistics of all lags; `recency` has powers of two up to almost all energy."""
    sums = _summable(filter)
    total, mode = sums.energy(), sums.largest_tap()
    recency, power = {1: float(sums.energy(1) / total)}, 1
    while power < MIN_RECENCY or recency[power] < 1 - REST:
        power *= 2
        recency[power] = float(sums.energy(power) / total)
    tap = sums.tap(mode)
    return Lags(
        centre=float(sums.moment() / total),
        mode=mode,
        likeness=math.copysign(math.sqrt(tap * tap / total), tap),
        recency=recency,
        half=_quantile(sums, 0.5),
        receptive_field=_quantile(sums, RECEPTIVE_ENERGY),
    )


def lag_quantile(filter: RationalFilter, fraction: float) -> int:
    """Return the number of newest taps that contain a fraction of the energy: the receptive field."""
    if not 0 < fraction < 1:
        raise ValueError(f"fraction={fraction} must be between 0 and 1")
    return _quantile(_summable(filter), fraction)


def rational_frobenius_norm(filter: RationalFilter, count: int) -> float:
    """Return the Frobenius norm of the n x n matrix of the filter, decays of 1 included."""
    return float(Sums(filter).frobenius(count).sqrt())


def rational_stable_rank(filter: RationalFilter, count: int) -> float:
    """Return |T|_F^2 / |T|_2^2 of the n x n matrix: 1 for rank 1, n for orthogonal matrices.

    Divided by n it tends to (sum of w^2) / max |a|^2.
    """
    taps = filter.taps(count)
    if not taps.any():
        raise ValueError(f"{filter.name} is zero at the first {count} taps: it has no stable rank")
    return (rational_frobenius_norm(filter, count) / spectral_norm(taps.numpy())) ** 2


def degree(filter: RationalFilter) -> int:
    """Return the number of states of the smallest recurrent form that equals the filter."""
    free = filter.free[1:].nonzero()
    decays = sum(1 for decay, weight in filter.merged().items() if decay and weight)
    return decays + (int(free[-1]) + 1 if len(free) else 0)


def rational_hankel_values(filter: RationalFilter) -> Tensor:
    """Return the singular values of the infinite Hankel matrix that are not zero, largest first."""
    _summable(filter)
    terms = [(decay, weight) for decay, weight in filter.merged().items() if decay and weight]
    decays, weights = np.array(terms).reshape(-1, 2).T
    held = degree(filter) - len(terms)  # earlier inputs among the states
    free = filter.free.numpy()[1 : held + 1]
    lag = np.arange(held)
    # states: the inputs of 0 ... held - 1 steps ago, and sqrt(1 - rho^2) times the sum of each decay
    scale = np.sqrt(1 - decays**2)
    poles = 1 / (1 - decays[:, None] * decays)
    mixed = decays[:, None] ** lag * scale[:, None]
    inputs = np.block([[np.eye(held), mixed.T], [mixed, poles * scale[:, None] * scale]])
    # outputs after an input of age i: free[i + 1], free[i + 2], ...; after a sum: a rho, a rho^2, ...
    place = lag[:, None] + lag
    after = np.append(free, 0.0)[np.minimum(place, held)]
    gain = weights * decays / scale
    mixed = (after @ (decays ** lag[:, None])) * gain
    outputs = np.block([[after @ after.T, mixed], [mixed.T, poles * gain[:, None] * gain]])
    root = _root(inputs)
    values = np.linalg.eigvalsh(root.T @ outputs @ root)[::-1]
    return torch.from_numpy(np.sqrt(np.maximum(values, 0)))


def rational_states(filter: RationalFilter, close: float = RECURRENT_TOLERANCE) -> int:
    """Return the number of states for which the symbol's error is at most `close` of its maximum."""
    values = rational_hankel_values(filter)
    left = 2 * values.flip(0).cumsum(0).flip(0)  # what truncation to 0, 1, ... states neglects
    return int((left > close * symbol_maximum(filter)).sum())


def _root(gramian: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(gramian)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0)))


def _summable(filter: RationalFilter) -> Sums:
    if not filter.summable:
        raise ValueError(
            f"{filter.name} has a decay of 1: its energy is infinite, and only sections have one"
        )
    return Sums(filter)


def _quantile(sums: Sums, fraction: float) -> int:
    target = sums.energy() * Decimal(fraction)
    high = 1
    while sums.energy(high) < target:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if sums.energy(middle) >= target else (middle, high)
    return high
