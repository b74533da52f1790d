"""Errata of the paper's Table 1: which of its indices are those of noise, and errors of its routine.

The research code samples the symbol at 50,000 points and sums the rotations, but where the curve crosses
the negative real axis clockwise it adds the step instead of subtracting it. `published_rule` implements
that rule, so that the table can be compared with the indices of noise under the same rule.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from toeplix.spectral.indices import indices
from toeplix.spectral.null_distribution import noise, simulated

CURVE_POINTS = 50_000
NOISE_DRAWS = 100
TABLE = {  # the paper's Table 1, layers 0 to 15, and the context that its caption gives
    "untrained": (
        512,
        "-480 -502 -511 -492 -516 -510 -517 -486 -498 -472 -513 -468 -494 -500 -489 -490",
    ),
    "causal d=1024": (512, "0 0 -1 -1 -1 -1 0 0 -14 -1 -1 0 -1 0 0 0"),
    "causal d=256": (512, "0 0 0 -1 -1 -2 0 -1 -33 -14 0 0 -1 -1 -1 0"),
    "copy": (
        1024,
        "-406 -400 -417 -412 -428 -440 -438 -417 -457 -449 -471 -452 -455 -430 -469 -399",
    ),
    "encoder": (
        512,
        "-247 -232 -248 -249 -252 -245 -229 -240 -251 -236 -254 -244 -264 -252 -245 -240",
    ),
    "decoder": (
        512,
        "-267 -248 -261 -249 -243 -229 -255 -247 -269 -271 -257 -259 -279 -261 -231 0",
    ),
}


def sampled(kernel: Float[Tensor, "f n"], points: int) -> np.ndarray:
    """Return winding numbers (filters,) by uniform sampling; wrong if a step exceeds half a turn."""
    steps = _steps(kernel, points)
    return np.rint((steps - 2 * np.pi * np.rint(steps / (2 * np.pi))).sum(axis=-1) / (2 * np.pi))


def published_rule(kernel: Float[Tensor, "f n"], points: int = CURVE_POINTS) -> np.ndarray:
    """Return winding numbers (filters,) by the published rule: with its sign error, and not closed."""
    steps = _steps(kernel, points)[..., :-1]
    short = steps - 2 * np.pi * np.rint(steps / (2 * np.pi))
    wrong = np.where(steps > np.pi, -short, short)
    return np.rint(wrong.sum(axis=-1) / (2 * np.pi))


def _steps(kernel: Tensor, points: int) -> np.ndarray:
    """Return the differences of the principal argument around the circle."""
    if points < kernel.shape[-1]:
        raise ValueError(f"points={points} must be at least the {kernel.shape[-1]} taps")
    argument = np.angle(np.fft.fft(kernel.detach().double().numpy(), points))
    return np.diff(argument, append=argument[..., :1])


def table() -> dict[str, list[int]]:
    """Return the indices of Table 1 by row."""
    return {name: [int(word) for word in text.split()] for name, (_, text) in TABLE.items()}


def findings(draws: int = NOISE_DRAWS) -> Iterator[str]:
    """Yield the errata as lines of text, computed at each call."""
    generator = torch.Generator().manual_seed(0)
    yield f"Noise, {draws} filters of each length, certified indices and the published rule:"
    rule = {}
    for taps in (512, 1024):
        kernel = torch.randn(draws, taps, generator=generator, dtype=torch.float64)
        exact = np.array([found.index for found in indices(kernel)], float)
        theirs = published_rule(kernel)
        rule[taps] = (theirs.mean(), theirs.std())
        null = noise(taps)
        yield (
            f"  n={taps}: exact {exact.mean():.1f} +/- {exact.std():.1f} (theory {null.mean} +/- "
            f"{null.deviation:.1f}), published rule {theirs.mean():.1f} +/- {theirs.std():.1f}"
        )
        wrong = {points: int((sampled(kernel, points) != exact).sum()) for points in (4096, 16384)}
        wrong[CURVE_POINTS] = int((sampled(kernel, CURVE_POINTS) != exact).sum())
        words = ", ".join(f"{points} points miscount {n}" for points, n in wrong.items())
        yield f"          of {draws} filters, with the right sign, uniformly sampled: {words}"
    lowest = min(table()["untrained"])
    yield (
        f"Untrained row: its lowest value, {lowest}, is impossible for 512 taps, where -511 is the "
        "least; its context was 1024, not 512 as the caption says."
    )
    yield "Row means against noise under the published rule (z of the mean of its layers):"
    for name, (taps, _) in TABLE.items():
        values = np.array(table()[name], float)
        if name == "untrained":
            taps = 1024
        if name == "decoder":  # its last layer is 0, unlike all others
            values = values[:-1]
        mean, deviation = rule[taps]
        z = (values.mean() - mean) / (deviation * math.sqrt(1 / len(values) + 1 / draws))
        verdict = "not distinguishable from noise" if abs(z) < 3 else "not noise"
        note = " without its last layer" if name == "decoder" else ""
        yield f"  {name} (n={taps}){note}: mean {values.mean():.1f}, z {z:+.1f}: {verdict}"
    few = simulated(512, draws, seed=1)
    yield (
        f"So 'large indices' are where filters start (n=512: {few.min()} to {few.max()} in "
        f"{draws} draws): only causal training, and copying a little, move them."
    )
