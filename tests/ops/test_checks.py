"""Bad input: the error names the argument, its value and the rule."""

import pytest
import torch

from toeplix import (
    decoder,
    toeplitz,
    toeplitz_continued,
    toeplitz_packed,
    toeplitz_padded,
    toeplitz_windowed,
)
from toeplix.ops.decoding.ragged import RaggedDecoder

X, KERNEL = torch.randn(2, 5, 3, 4), torch.randn(3, 5)
ROW = X[:1]


def keep(rows, x=X):
    """Any decoder: they share the check, and each is seen to have it below."""
    decoder(KERNEL, x).select(rows)


CASES = {
    "rank of x": (lambda: toeplitz(X[0], KERNEL), ValueError, r"x must have 4 axes.*\(5, 3, 4\)"),
    "rank of kernel": (
        lambda: toeplitz(X, KERNEL[0]),
        ValueError,
        r"kernel must have 2 axes.*\(5,\)",
    ),
    "short kernel": (
        lambda: toeplitz(X, KERNEL[:, :4]),
        ValueError,
        "4 taps and x has 5 positions",
    ),
    "heads": (lambda: toeplitz(X, KERNEL[:2]), ValueError, "kernel has 2 heads and x has 3"),
    "integer x": (lambda: toeplitz(X.long(), KERNEL), TypeError, "x must be.*floating.*int64"),
    "integer kernel": (lambda: toeplitz(X, KERNEL.int()), TypeError, "kernel.*floating.*int32"),
    "complex x": (lambda: toeplitz(X.to(torch.complex64), KERNEL), TypeError, "complex64"),
    "no tensor": (lambda: toeplitz(X.tolist(), KERNEL), TypeError, "x must be a tensor.*list"),
    "no positions": (lambda: toeplitz(X[:, :0], KERNEL), ValueError, "t must be at least 1"),
    "no taps": (lambda: toeplitz_windowed(X, KERNEL[:, :0]), ValueError, "n must be at least 1"),
    "path": (lambda: toeplitz(X, KERNEL, path="fast"), ValueError, "path='fast' is unknown.*fft"),
    "exact": (
        lambda: toeplitz(X, KERNEL, path="fft", exact=True),
        ValueError,
        "path='fft' is causal to rounding only.*blocked",
    ),
    "packed batch": (lambda: toeplitz_packed(X, KERNEL, [0, 5]), ValueError, "one row"),
    "offsets end": (lambda: toeplitz_packed(ROW, KERNEL, [0, 4]), ValueError, r"t=5, got \[0, 4\]"),
    "offsets fall": (lambda: toeplitz_packed(ROW, KERNEL, [0, 4, 3, 5]), ValueError, "must rise"),
    "offsets kind": (lambda: toeplitz_packed(ROW, KERNEL, [0, 2.5, 5]), TypeError, "integers"),
    "offsets float": (
        lambda: toeplitz_packed(ROW, KERNEL, torch.tensor([0.0, 5.0])),
        TypeError,
        "float32",
    ),
    "long document": (
        lambda: toeplitz_packed(ROW, KERNEL[:, :3], [0, 5]),
        ValueError,
        "document has 5 positions and kernel 3 taps",
    ),
    "mask shape": (
        lambda: toeplitz_padded(X, KERNEL, torch.ones(2, 4).bool()),
        ValueError,
        r"\(2, 5\).*\(2, 4\)",
    ),
    "mask dtype": (lambda: toeplitz_padded(X, KERNEL, torch.ones(2, 5)), TypeError, "float32"),
    "mask hole": (
        lambda: toeplitz_padded(X, KERNEL, torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 1, 0]])),
        ValueError,
        "hole in row 1",
    ),
    "history shape": (
        lambda: toeplitz_continued(X, KERNEL, X[:1]),
        ValueError,
        "history must agree with x",
    ),
    "history dtype": (
        lambda: toeplitz_continued(X, KERNEL, X.double()),
        TypeError,
        "history is torch.float64",
    ),
    "decoder kind": (lambda: decoder(KERNEL, X, kind="magic"), ValueError, "kind='magic'"),
    "decoder past": (lambda: decoder(KERNEL, None), TypeError, "past must be a tensor"),
    "decoder rank": (lambda: decoder(KERNEL, X[0, 0, 0]), ValueError, "past must have 4 axes"),
    "decoder kernel": (lambda: decoder(None, X), TypeError, "kernel must be a tensor"),
    "horizon kind": (lambda: decoder(KERNEL, X, horizon=2.5), TypeError, "horizon=2.5"),
    "step kind": (lambda: decoder(KERNEL, X).step(X[:, 0].long()), TypeError, "floating.*int64"),
    "history none": (lambda: toeplitz_continued(X, KERNEL, None), TypeError, "history must be"),
    "history empty": (
        lambda: toeplitz_continued(X, KERNEL, X[:1, :0]),
        ValueError,
        "history must agree",
    ),
    "decoder horizon": (lambda: decoder(KERNEL, X, horizon=0), ValueError, "horizon=0"),
    "decoder heads": (lambda: decoder(KERNEL[:2], X), ValueError, "past has 3 heads and kernel 2"),
    "step shape": (lambda: decoder(KERNEL, X).step(X[:, 0, :, :2]), ValueError, "x must be"),
    "rows kind": (lambda: decoder(KERNEL, X).select([0]), TypeError, "rows must be.*list"),
    "rows rank": (lambda: keep(torch.tensor([[0]])), TypeError, r"int64 \(1, 1\)"),
    "rows float": (lambda: keep(torch.tensor([0.0])), TypeError, "float32"),
    "rows mask": (lambda: keep(torch.tensor([True, False])), TypeError, "bool.*nonzero"),
    "rows negative": (lambda: keep(torch.tensor([0, -1])), IndexError, "row -1.*0 .. 1"),
    "rows beyond": (lambda: keep(torch.tensor([0, 2])), IndexError, "row 2.*batch of 2"),
    "rows of none": (lambda: keep(torch.tensor([0]), X[:0]), IndexError, "row 0.*no rows"),
    "step heads": (lambda: decoder(KERNEL, X).emit(X[:, 0], first=1), ValueError, "heads 1 .. 3"),
}


pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.mark.parametrize("case", CASES)
def test_refused_with_a_reason(case):
    call, kind, words = CASES[case]
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.parametrize("kind", ["history", "online", "ragged"])
@pytest.mark.parametrize("rows", [[-1], [2], [True, True], [1.0]])
def test_every_decoder_refuses_rows_it_does_not_have(kind, rows):
    state = RaggedDecoder(KERNEL, X, 9) if kind == "ragged" else decoder(KERNEL, X, kind=kind)
    with pytest.raises((IndexError, TypeError)):
        state.select(torch.tensor(rows))
    state.select(torch.tensor([1, 1], dtype=torch.int32))
    assert state.batch == 2
    assert torch.equal(*state.step(X[[1, 1], 0]))
