"""The contract of the product and of decoders as checks that run on any device.

    operator_checks    every path and form of the product against the definition, values and gradients
    decoder_checks     every decoder against the definition

Recurrent filters and lookup are in recurrent_contract.py, models in model_contract.py.
A check compares what a device computed with the definition in float64 on the CPU, relative to a bound on
the numbers that were added. `toeplix doctor` runs and reports checks; tests use the same definition.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from toeplix.ops import (
    DECODERS,
    RecurrentDecoder,
    decoder,
    recurrent_kernel,
    toeplitz,
    toeplitz_continued,
    toeplitz_packed,
    toeplitz_padded,
    toeplitz_windowed,
)
from toeplix.ops.decoding.ragged import RaggedDecoder
from toeplix.ops.paths import PATHS, runnable
from toeplix.testing import assert_causal

ROUNDINGS = 16  # of the bound that a result may be away from the truth
SIZES = {
    "quick": (1, 2, 33, 129),
    "full": (1, 2, 3, 31, 32, 33, 64, 65, 127, 129, 255, 256, 257, 511, 513, 1021, 4097),
}
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


Three = tuple[Tensor, Tensor, Tensor]


class Compared(NamedTuple):
    """What a device gave beside what it should have given; `size` bounds what was added."""

    found: Tensor
    expected: Tensor
    size: float
    tolerance: float

    @property
    def deviation(self) -> float:
        """The largest difference relative to `size`; NaN and infinity stay so."""
        apart = self.found.detach().cpu().double() - self.expected.detach().cpu().double()
        largest = float(apart.abs().max()) if apart.numel() else 0.0
        # where nothing was added, zero is exact
        return largest / self.size if self.size else (math.inf if largest else 0.0)


class Check(NamedTuple):
    """A named comparison, made when it is called; one that raises has failed."""

    name: str
    compare: Callable[[], Compared | None]  # None: it raises AssertionError if it fails


def definition(x: Float[Tensor, "b t h c"], kernel: Float[Tensor, "h n"]) -> Tensor:
    """Return `y[t] = sum over l < min(t + 1, n) of kernel[l] x[t - l]`, one lag after the other."""
    y = torch.zeros_like(x)
    for lag in range(min(x.shape[1], kernel.shape[1])):
        y[:, lag:] = y[:, lag:] + kernel[:, lag, None] * x[:, : x.shape[1] - lag]
    return y


def magnitude(x: Tensor, kernel: Tensor) -> float:
    """Return a bound on every output and on every intermediate of its transforms (Cauchy, Schwarz)."""
    x, kernel = x.detach().double(), kernel.detach().double()
    return float(x.norm(dim=1).max() * kernel.norm(dim=1).max())


def operator_checks(device: torch.device, sizes: Sequence[int]) -> Iterator[Check]:
    """Yield the checks of all paths at these lengths, and of all forms."""
    for dtype in dtypes_of(device):
        able = runnable(torch.empty(1, 1, 1, 1, device=device, dtype=dtype))
        for path in ("auto", *able):
            for time in sizes:
                for what in ("values", "gradient of x", "gradient of kernel"):
                    name = f"{path}, {dtype_name(dtype)}, t={time}: {what}"
                    yield Check(name, partial(_product, device, dtype, path, time, what))
        for form in FORMS:
            yield Check(f"{form}, {dtype_name(dtype)}", partial(_form, device, dtype, form))
    for path in runnable(torch.empty(1, 1, 1, 1, device=device)):
        yield Check(f"{path}: causal", partial(_causal_path, device, path, PATHS[path].exact))


def _product(device: torch.device, dtype: torch.dtype, path: str, time: int, what: str) -> Compared:
    x, kernel, g = noise(2, time, 2, 3), noise(2, time + 2, seed=1), noise(2, time, 2, 3, seed=2)
    given = _moved((x, kernel, g), dtype)
    here, truth = _moved(given, device), _moved(given, torch.float64)
    found = _result(lambda x, kernel: toeplitz(x, kernel, path=path), *here, what)
    expected = _result(definition, *truth, what)
    sizes = {
        "values": magnitude(x, kernel),
        "gradient of x": magnitude(g, kernel[:, :time]),
        "gradient of kernel": float(g.norm() * x.norm()),
    }
    return Compared(found, expected, sizes[what], roundings(dtype))


def _result(
    product: Callable[[Tensor, Tensor], Tensor], x: Tensor, kernel: Tensor, g: Tensor, what: str
) -> Tensor:
    x, kernel = x.clone().requires_grad_(), kernel.clone().requires_grad_()
    y = product(x, kernel)
    if what == "values":
        return y
    return torch.autograd.grad(y, x if what.endswith("x") else kernel, g)[0]


OFFSETS = [0, 3, 40, 41, 70]
FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "windowed": lambda x, kernel: toeplitz_windowed(x, kernel[:, :9]),
    "continued": lambda x, kernel: toeplitz_continued(x[:, 8:], kernel, x[:, :8]),
    "packed": lambda x, kernel: toeplitz_packed(x[:1], kernel, OFFSETS),
    "padded": lambda x, kernel: toeplitz_padded(x, kernel, _mask()),
}
TRUTHS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "windowed": lambda x, kernel: definition(x, kernel[:, :9]),
    "continued": lambda x, kernel: definition(x, kernel)[:, 8:],
    "packed": lambda x, kernel: torch.cat(
        [definition(part, kernel) for part in x[:1].split([3, 37, 1, 29], 1)], 1
    ),
    "padded": lambda x, kernel: _padded_truth(x, kernel),
}


def _mask() -> Tensor:
    mask = torch.ones(2, 70, dtype=torch.bool)
    mask[0, 50:] = False
    mask[1, :11] = False
    return mask


def _padded_truth(x: Tensor, kernel: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    y[:1, :50] = definition(x[:1, :50], kernel)
    y[1:, 11:] = definition(x[1:, 11:], kernel)
    return y


def _form(device: torch.device, dtype: torch.dtype, form: str) -> Compared:
    x, kernel = noise(2, 70, 2, 4).to(dtype), noise(2, 73, seed=1).to(dtype)
    found = FORMS[form](x.to(device), kernel.to(device))
    truth = TRUTHS[form](x.double(), kernel.double())
    return Compared(found, truth, magnitude(x, kernel), roundings(dtype))


def _filters(dtype: torch.dtype) -> Three:
    """Return free taps, weights and decays."""
    decays = noise(2, 5, seed=3).sigmoid()
    return _moved((noise(2, 3, seed=1), noise(2, 5, seed=2), decays), dtype)


def _moved(parts: Three, where: torch.device | torch.dtype) -> Three:
    one, two, three = parts
    return one.to(where), two.to(where), three.to(where)


def _causal_path(device: torch.device, path: str, exact: bool) -> None:
    kernel = (noise(1, 130, seed=1) / 8).float().to(device)
    x = noise(2, 130, 4).float().to(device)

    def product(x: Tensor) -> Tensor:
        return toeplitz(x[:, :, None], kernel, path=path)[:, :, 0]

    if exact:  # bit for bit, whatever follows
        assert_causal(product, x, tolerance=0.0, scale=1e10)
    else:
        assert_causal(product, x)


def decoder_checks(device: torch.device) -> Iterator[Check]:
    """Yield the checks of all decoders, a ragged batch included."""
    for dtype in dtypes_of(device):
        for kind in (*DECODERS, "ragged", "recurrent"):
            yield Check(
                f"{kind} decoder, {dtype_name(dtype)}", partial(_decoder, device, dtype, kind)
            )


def _decoder(device: torch.device, dtype: torch.dtype, kind: str) -> Compared:
    """Steps after a prompt; two more rows join after 40 steps where rows can."""
    x, late = noise(2, 130, 2, 4).to(dtype), noise(2, 130, 2, 4, seed=5).to(dtype)
    filters, past = _filters(dtype), x[:, :30].to(device)
    kernel = noise(2, 200, seed=1).to(dtype)
    state: Any
    if kind == "recurrent":
        state = RecurrentDecoder(*_moved(filters, device), past)
        kernel = recurrent_kernel(*_moved(filters, torch.float64), 200)
    elif kind == "ragged":
        state = RaggedDecoder(kernel.to(device), past, 150)
    else:
        state = decoder(kernel.to(device), past, kind=kind)
    joins = kind in ("recurrent", "ragged")
    outputs = []
    for step in range(30, 130):
        if step == 70 and joins:
            state.append(late[:, :20].to(device))
        rows = x[:, step] if step < 70 or not joins else torch.cat([x[:, step], late[:, step - 50]])
        outputs.append(state.step(rows.to(device))[:2].cpu())
    joined = state.step(torch.cat([x[:, 0], late[:, 80]]).to(device))[2:].cpu() if joins else None
    truth = definition(x.double(), kernel.double())[:, 30:]
    found = torch.stack(outputs, 1)
    if joined is not None:
        last = definition(late[:, :81].double(), kernel.double())[:, -1:]
        found, truth = torch.cat([found, joined[:, None]], 1), torch.cat([truth, last], 1)
    return Compared(found, truth, magnitude(x, kernel), roundings(dtype))


def dtypes_of(device: torch.device) -> list[torch.dtype]:
    """Return the dtypes that a device has; mps has no float64."""
    return [each for each in DTYPES if device.type != "mps" or each != torch.float64]


def roundings(dtype: torch.dtype) -> float:
    """Return the deviation that is allowed, relative to a bound on what was added."""
    return ROUNDINGS * torch.finfo(dtype).eps


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype as configurations spell it."""
    return str(dtype).removeprefix("torch.")


def noise(*shape: int, seed: int = 0) -> Tensor:
    """Return noise in float64 on the CPU that depends on the seed only."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)
