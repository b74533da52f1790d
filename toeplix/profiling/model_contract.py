"""The contract of models as checks that run on any device, for every architecture.

    causal            a change at position t moves nothing before t
    logits            equal those of the same weights in float64 on the CPU, and so do the gradients
    WAYS              one result, however documents are fed: prefix, padded, packed, in chunks, stepped,
                      in a ragged batch

`toeplix doctor` runs them; the tests of architectures use the same `fed_alike`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from toeplix.architectures import ARCHITECTURES, build
from toeplix.config import Model
from toeplix.inference.ragged import ragged_batch
from toeplix.mixer_architecture import MixerArchitecture
from toeplix.model import LanguageModel
from toeplix.profiling.contract import Check, Compared
from toeplix.testing import assert_causal

MODEL_TOLERANCE = 1e-4  # of the largest logit, in float32
NEGLIGIBLE = 1e-3  # of the largest gradient of all weights
GRADIENT_TOLERANCE = 1e-3  # of the largest gradient of a weight
SMALL: dict[str, Any] = {"vocab": 37, "context": 24, "dim": 32, "depth": 2}
# settings of single architectures: what they need, or what keeps them small
OTHER: dict[str, dict[str, Any]] = {
    "mamba2": {"state_size": 16},
    "window": {"window": 7},
    "attention": {"window": 7},
    "hybrid": {"blocks": ("toeplitz", "lookup")},
}
# other filters, and lengths at which recurrent filters and lookup are computed by chunks: beyond 128 and,
# where no kernels run, beyond 1024 positions (ops/recurrent.py, ops/dispatch.py)
VARIANTS: dict[str, dict[str, Any]] = {
    "toeplitz, free filters": {"arch": "toeplitz", "filter": "free"},
    "lookup, free filters": {"arch": "lookup", "filter": "free"},
    "hybrid, 200 positions": {"arch": "hybrid", "context": 200},
    "hybrid, 1100 positions": {"arch": "hybrid", "context": 1100},
}


def model_checks(device: torch.device, arches: Sequence[str] | None = None) -> Iterator[Check]:
    """Yield the checks of every architecture, and of VARIANTS of them."""
    for arch in arches or ARCHITECTURES:
        yield from _checks_of(arch, small_model(arch), device)
    for name, settings in VARIANTS.items():
        if settings["arch"] in (arches or ARCHITECTURES):
            yield from _checks_of(name, small_model(**settings), device)


def small_model(arch: str, **sizes: Any) -> Model:
    """Return a small model of an architecture; sizes replace those of SMALL."""
    return Model(arch=arch, **(SMALL | OTHER.get(arch, {}) | sizes))


def _checks_of(name: str, config: Model, device: torch.device) -> Iterator[Check]:
    torch.manual_seed(0)
    model = build(config).eval()
    exact = build(config).eval().double()
    exact.load_state_dict(model.state_dict())
    model = model.to(device)
    short = config.context == SMALL["context"]
    rows = 3 if short else 1
    tokens = torch.randint(37, (rows, config.context), generator=torch.Generator().manual_seed(0))
    here = tokens.to(device)

    def causal() -> None:
        assert_causal(model, here, vocabulary=37, tolerance=MODEL_TOLERANCE)

    def against(what: str) -> Callable[[], Compared]:
        return lambda: _of_models(*_values(model, exact, here, tokens)[what])

    if device.type == "cuda" and isinstance(ARCHITECTURES[config.arch], MixerArchitecture):
        yield Check(f"{name}: the host does not wait", lambda: _no_waits(model, here))
    yield Check(f"{name}: logits", against("logits"))
    yield Check(f"{name}: gradients", against("gradients"))
    if short:  # causality and the ways of feeding do not depend on the length
        yield Check(f"{name}: causal", causal)
        for way in WAYS:
            yield Check(f"{name}: {way}", partial(_fed, model, here, way))


def _no_waits(model: LanguageModel, tokens: Tensor) -> None:
    """Raise RuntimeError if the host waits for CUDA in a forward and backward pass or a decode step."""
    _, state = model.step(tokens[:, :5])
    state.begin_decoding(9)
    model.step(tokens[:, 5:6], state)
    model(tokens).square().mean().backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        model(tokens).square().mean().backward()
        model.step(tokens[:, 6:7], state)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def _fed(model: LanguageModel, tokens: Tensor, way: str) -> Compared:
    return _of_models(*fed_alike(model, tokens, way))


def _of_models(found: Tensor, expected: Tensor, tolerance: float = MODEL_TOLERANCE) -> Compared:
    return Compared(found, expected, float(expected.detach().abs().max()), tolerance)


def _values(
    model: LanguageModel, exact: LanguageModel, here: Tensor, tokens: Tensor
) -> dict[str, tuple[Tensor, Tensor, float]]:
    """Return logits, and gradients of all weights scaled to 1 each, on the device and in float64."""
    logits, gradients = [], []
    for network, given in ((model, here), (exact, tokens)):
        network.zero_grad()
        logits.append(network(given))
        logits[-1].square().mean().backward()
        gradients.append([p.grad.cpu() for p in network.parameters() if p.grad is not None])
    largest = max(float(g.abs().max()) for g in gradients[1])
    # a gradient that is zero but for rounding is compared with the others
    sizes = [max(float(g.abs().max()), NEGLIGIBLE * largest) for g in gradients[1]]
    flat = [
        torch.cat([(g / size).flatten().double() for g, size in zip(own, sizes, strict=True)])
        for own in gradients
    ]
    return {
        "logits": (logits[0], logits[1], MODEL_TOLERANCE),
        "gradients": (flat[0], flat[1], GRADIENT_TOLERANCE),
    }


WAYS = ("prefix", "right-padded", "left-padded", "packed", "in chunks", "stepped", "ragged")
LENGTHS = (24, 13, 1)  # of the rows of three documents


@torch.no_grad()
def fed_alike(model: LanguageModel, tokens: Int[Tensor, "3 24"], way: str) -> tuple[Tensor, Tensor]:
    """Return the logits of documents fed in one of WAYS, and those of each document alone."""
    alone = [model(tokens[row : row + 1, :length])[0] for row, length in enumerate(LENGTHS)]
    if way == "prefix":
        parts = [model(tokens[:, :length]).flatten(0, 1) for length in (1, 2, 7, 23)]
        whole = model(tokens)
        return torch.cat(parts), torch.cat([whole[:, :n].flatten(0, 1) for n in (1, 2, 7, 23)])
    if way == "packed":
        row = torch.cat([tokens[index, :length] for index, length in enumerate(LENGTHS)])
        return model(row[None], offsets=[0, 24, 37, 38])[0], torch.cat(alone)
    if way.endswith("padded"):
        mask, padded = torch.zeros(3, 24, dtype=torch.bool), torch.zeros_like(tokens)
        for index, length in enumerate(LENGTHS):
            where = slice(24 - length, 24) if way.startswith("left") else slice(0, length)
            padded[index, where], mask[index, where] = tokens[index, :length], True
        return model(padded, mask=mask)[mask.to(tokens.device)], torch.cat(alone)
    if way == "ragged":  # the second row joins while the first is under way
        batch = ragged_batch(model, 24)
        batch.add(model.step(tokens[:1, :3])[1], 1)
        parts = [batch.step([int(tokens[0, place])]) for place in range(3, 8)]
        batch.add(model.step(tokens[1:2, :3])[1], 1)
        pairs = [(place, place - 5) for place in range(8, 13)]
        parts += [batch.step([int(tokens[0, a]), int(tokens[1, b])]) for a, b in pairs]
        later = [torch.stack([alone[0][a], alone[1][b]]) for a, b in pairs]
        return torch.cat(parts), torch.cat([alone[0][3:8], *later])
    pieces = [7, 1, 9, 1, 6] if way == "in chunks" else [1] * 24
    return stepped(model, tokens[:1], pieces, None if way == "in chunks" else 3)[0], alone[0]


def stepped(model: LanguageModel, tokens: Tensor, pieces: list[int], prefill: int | None) -> Tensor:
    """Return the logits of pieces of a sequence: so many are prefilled, the others decoded; None: all."""
    state, parts = model.start(), []
    for number, part in enumerate(tokens.split(pieces, 1)):
        if number == prefill:
            state.begin_decoding()
        logits, state = model.step(part, state)
        parts.append(logits)
    return torch.cat(parts, 1)
