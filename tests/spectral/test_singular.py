"""Singular values without a matrix against dense ones; the eps-index against the numerical rank."""

import math

import numpy as np
import pytest
import torch

from toeplix.ops.dense import product
from toeplix.spectral import index
from toeplix.spectral.singular import (
    eps_indices,
    extremes,
    inverse_taps,
    matrix,
    numerical_rank,
    singular_values,
)


def filters(taps: int) -> dict[str, torch.Tensor]:
    rough = noise(1, taps, seed=taps)[0]
    decay = torch.exp(-torch.arange(taps, dtype=torch.float64) / 3)
    return {"noise": rough, "decay": decay, "rough decay": decay * (1 + 0.2 * rough)}


def noise(filters: int, taps: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(filters, taps, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("taps", [1, 2, 3, 63, 64, 65, 127, 200])
def test_the_matrix_is_the_operator(taps):
    for kernel in filters(taps).values():
        x = torch.randn(1, taps, 1, 2, dtype=torch.float64)
        torch.testing.assert_close(matrix(kernel) @ x[0, :, 0], product(x, kernel[None])[0, :, 0])


@pytest.mark.parametrize("taps", [1, 2, 5, 64, 65, 100, 129, 257])
def test_extremes_against_dense(taps):
    for name, kernel in filters(taps).items():
        values = torch.linalg.svdvals(matrix(kernel))
        found = extremes(kernel * 1e-20)
        assert found.largest == pytest.approx(1e-20 * float(values[0]), rel=1e-5), name
        if found.certain:
            assert found.smallest == pytest.approx(1e-20 * float(values[-1]), rel=1e-4), name
        else:
            assert values[-1] < 1e-11 * values[0]
            assert found.smallest < 1e-31 * float(values[0])


def test_the_symbol_bounds_both():
    """max |a| from above; and min |a| from below where the index is 0, as then T(1/a) is bounded."""
    kernel = filters(300)["rough decay"]
    found, proof = extremes(kernel), index(kernel)
    fine = torch.fft.fft(kernel, 2**16).abs()
    assert proof.index == 0
    assert found.largest <= float(fine.max()) * (1 + 1e-6)
    assert found.smallest >= proof.margin * float(kernel.abs().sum())
    assert found.condition == found.largest / found.smallest


def test_sixty_five_thousand_taps_without_a_matrix():
    """Where the answer is known: 1 + u/2 has a symbol between 1/2 and 3/2, and n is nearly infinite."""
    kernel = torch.zeros(65536)
    kernel[0], kernel[1] = 1.0, 0.5
    found = extremes(kernel)
    assert found.certain
    assert found.largest == pytest.approx(1.5, rel=1e-5)
    assert found.smallest == pytest.approx(0.5, rel=1e-5)


def test_a_leading_zero_is_singular_exactly():
    found = extremes(torch.tensor([0.0, 2.0, 1.0]))
    assert (found.smallest, found.certain) == (0.0, True)
    assert math.isinf(found.condition)


@pytest.mark.parametrize("taps", [1, 2, 3, 31, 64, 100])
def test_the_inverse_of_a_filter(taps):
    kernel = filters(taps)["rough decay"]
    inverse = torch.from_numpy(inverse_taps(kernel.numpy()))
    identity = torch.eye(taps, dtype=torch.float64)
    torch.testing.assert_close(matrix(inverse) @ matrix(kernel), identity)


@pytest.mark.parametrize("eps", [1e-3, 1e-6, 1e-9, 1e-12])
def test_the_eps_index_is_what_the_rank_lacks(eps):
    """A zero r inside the circle costs a singular value of about |r|^n, neighbours a little more."""
    taps, missing, counted = 256, 0, 0
    for kernel in noise(6, taps):
        zeros = -(eps_indices(kernel, eps)[0].index or 0)
        lost = taps - numerical_rank(kernel, eps)
        assert zeros == int((abs(np.roots(kernel.numpy()[::-1])) < eps ** (1 / taps)).sum())
        assert zeros <= lost
        missing, counted = missing + lost, counted + zeros
    assert 0 < missing <= 1.4 * counted


def test_values_are_sorted_and_bad_filters_named():
    values = singular_values(filters(20)["noise"])
    assert (values.diff() <= 0).all()
    with pytest.raises(ValueError, match=r"blocks\.2 is zero"):
        extremes(torch.zeros(3), "blocks.2")
