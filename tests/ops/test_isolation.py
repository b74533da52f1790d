"""Whatever one row holds, no bit of another row changes: products, gradients and decoders.

Every test runs twice, with an ordinary and with a poisoned neighbour, and all else equal.
"""

import pytest
import torch

from tests.ops.cpu_paths import CPU_PATHS
from tests.ops.oracle import random_pair
from toeplix import (
    decoder,
    toeplitz,
    toeplitz_continued,
    toeplitz_packed,
    toeplitz_padded,
    toeplitz_windowed,
)
from toeplix.ops import DECODERS, RecurrentDecoder, toeplitz_recurrent
from toeplix.ops.decoding import online
from toeplix.ops.decoding.ragged import RaggedDecoder

POISON = {"1e20": 1e20, "inf": float("inf"), "nan": float("nan")}
TIME = 600  # long enough for tiles that are multiplied by FFT
RECURRENT = "recurrent"


def assert_same_bits(one, other):
    assert one.dtype == other.dtype
    assert torch.equal(one.view(torch.int32), other.view(torch.int32))


def rows_of(channels):
    """Four: then the columns are even in number, with odd numbers of channels too."""
    return random_pair(4, TIME, 2, channels, TIME, dtype=torch.float32)


def recurrent_filters(kernel):
    """Free taps, weights and decays from the entries of a kernel."""
    return kernel[:, :5], kernel[:, 5:8], kernel[:, 8:11].sigmoid()


def run_decoder(kind, kernel, x):
    """Rows 0 to 3; then row 1 leaves, and in a decoder of ragged batches another one takes its place."""
    if kind == RECURRENT:
        state = RecurrentDecoder(*recurrent_filters(kernel), x[:, :30])
    elif kind == "ragged":
        state = RaggedDecoder(kernel, x[:, :30], max_new_tokens=TIME)
    else:
        state = decoder(kernel, x[:, :30], kind=kind)
    during = torch.stack([state.step(part) for part in x[:, 30:400].unbind(1)])
    rows = torch.tensor([3, 0, 2])
    state.select(rows)
    here = x[rows]
    if kind in ("ragged", RECURRENT):
        state.append(x[:1, :100])
        here = torch.cat([here, x[:1]])
    after = torch.stack([state.step(part) for part in here[:, 400:].unbind(1)])
    return during[:, [0, 2, 3]], after


@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("kind", [*DECODERS, "ragged", RECURRENT])
def test_rows_of_a_decoder(kind, channels, poison):
    x, kernel = rows_of(channels)
    ordinary = run_decoder(kind, kernel, x)
    for where in (slice(10, 12), slice(45, 300), slice(399, 400)):
        x[1, where] = POISON[poison]
    poisoned = run_decoder(kind, kernel, x)
    for one, other in zip(ordinary, poisoned, strict=True):
        assert one.isfinite().all()
        assert_same_bits(one, other)


@pytest.mark.parametrize("batch", [5, 6])
@pytest.mark.parametrize("channels", [1, 2, 3, 20])
def test_pieces_of_columns_do_not_part_a_pair(channels, batch, monkeypatch):
    """Tiles that are done in many pieces, whose bounds lie anywhere among the rows."""
    monkeypatch.setattr(online, "PIECE_POINTS", 1)
    monkeypatch.setattr(online, "FEWEST_COLUMNS", 3)
    x, kernel = random_pair(batch, 400, 1, channels, 400, dtype=torch.float32)
    results = []
    for value in (0.5, float("nan")):
        x[1::2, 20:90] = value
        state = decoder(kernel, x[:, :0], kind="online")
        results.append(torch.stack([state.step(part)[::2] for part in x.unbind(1)]))
    assert results[0].isfinite().all()
    assert_same_bits(*results)


def products(path, x, kernel, other):
    """Results of every call at the rows that are not poisoned, which is row 1, and gradients of x.

    `other` is the value at padding.
    """
    mask = torch.ones(x.shape[:2], dtype=torch.bool)
    mask[0, :99], mask[2, 500:] = False, False
    padded = x.masked_fill(~mask[:, :, None, None], other)
    bounds = list(range(0, 5 * TIME, TIME))
    if path == RECURRENT:
        filters = recurrent_filters(kernel)
        calls = {
            "whole": (lambda u: toeplitz_recurrent(u, *filters)[0], x),
            "continued": (lambda u: recurrent_continued(u, filters), x),
            "padded": (lambda u: toeplitz_recurrent(u, *filters, mask=mask)[0], padded),
            "packed": (
                lambda u: toeplitz_recurrent(u.flatten(0, 1)[None], *filters, offsets=bounds)[
                    0
                ].view_as(u),
                x,
            ),
        }
        return clean_rows(calls)
    calls = {
        "whole": (lambda u: toeplitz(u, kernel, path=path), x),
        "windowed": (lambda u: toeplitz_windowed(u, kernel[:, :70], path=path), x),
        "continued": (lambda u: toeplitz_continued(u[:, 200:], kernel, u[:, :200], path=path), x),
        "padded": (lambda u: toeplitz_padded(u, kernel, mask, path=path), padded),
        "packed": (
            lambda u: toeplitz_packed(u.flatten(0, 1)[None], kernel, bounds, path=path).view_as(u),
            x,
        ),
    }
    return clean_rows(calls)


def recurrent_continued(u, filters):
    _, state = toeplitz_recurrent(u[:, :200], *filters)
    return toeplitz_recurrent(u[:, 200:], *filters, state=state)[0]


def clean_rows(calls):
    clean, found = [0, 2, 3], {}
    for name, (call, u) in calls.items():
        with torch.no_grad():
            found[name] = call(u)[clean]
        u = u.clone().requires_grad_()
        y = call(u)
        found[f"{name}, recorded"] = y[clean].detach()
        # a product is linear: its own input, poison and all, may stand for a gradient
        y.backward(u.detach()[:, -y.shape[1] :].clone())
        found[f"{name}, gradient"] = u.grad[clean]
    return found


@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("path", [*CPU_PATHS, "auto", RECURRENT])
def test_rows_of_a_product(path, channels, poison):
    x, kernel = rows_of(channels)
    ordinary = products(path, x, kernel, 0.5)
    x[1, 7:300:3] = POISON[poison]
    poisoned = products(path, x, kernel, POISON[poison])
    for name, one in ordinary.items():
        assert one.isfinite().all(), name
        assert_same_bits(one, poisoned[name])
