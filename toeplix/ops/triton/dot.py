"""The matrix product of tiles, as compiled and as interpreted."""

from typing import no_type_check

import triton
import triton.language as tl

from toeplix.ops.triton import interpreted

INTERPRETED = tl.constexpr(interpreted())


@triton.jit
@no_type_check
def dot(a, b, total, PRECISION: tl.constexpr):
    """Return `total + a @ b`, added in float32.

    Triton's interpreter does not multiply bfloat16. There both tiles are converted first, which
    changes no value: products of bfloat16 and float16 are exact in float32.
    """
    if INTERPRETED:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, total, input_precision=PRECISION)
