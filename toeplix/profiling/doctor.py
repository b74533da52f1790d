"""`toeplix doctor`: the whole contract on a device, the time of every path, and one report of it all.

The report is a JSON document to attach to a bug report: versions, properties of the device, every check
with its deviation and tolerance, timings, and the rule by which paths are selected.
"""

import dataclasses
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from toeplix.architectures import ARCHITECTURES, build
from toeplix.devices import described
from toeplix.model import LanguageModel
from toeplix.ops import RecurrentDecoder, decoder, dispatch
from toeplix.ops.decoding.base import Decoder
from toeplix.ops.decoding.ragged import RaggedDecoder
from toeplix.ops.lookup import lookup_recurrent_whole
from toeplix.ops.recurrent import multiply_recurrent
from toeplix.profiling import contract, model_contract, recurrent_contract, timing
from toeplix.profiling.bench import tune
from toeplix.profiling.bench.recurrent import filters as recurrent_filters
from toeplix.profiling.contract import Check

PACKAGES = ("torch", "triton", "numpy", "transformers", "safetensors", "toeplix")
LENGTHS = {"quick": (64, 512), "full": tune.LENGTHS}  # of timed products
SECONDS = {"quick": 0.01, "full": 0.3}  # for each path at each size
CONTEXT = 2048  # taps of timed decoders
PRODUCTS = (512, CONTEXT)  # lengths of timed products with recurrent filters and lookups


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of one check; a check that raised has an error instead of a deviation."""

    name: str
    passed: bool
    deviation: float | None
    tolerance: float | None
    seconds: float
    error: str | None = None


def examine(check: Check) -> Outcome:
    """Make a check; whatever it raises is its outcome."""
    start = time.perf_counter()
    deviation = tolerance = error = None
    try:
        compared = check.compare()
        if compared is not None:
            deviation, tolerance = compared.deviation, compared.tolerance
    except KeyboardInterrupt:
        raise
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"[:500]
    within = deviation is None or (tolerance is not None and deviation <= tolerance)
    return Outcome(
        name=check.name,
        passed=error is None and within,  # NaN is not within
        deviation=deviation if deviation is None or math.isfinite(deviation) else None,
        tolerance=tolerance,
        seconds=round(time.perf_counter() - start, 4),
        error=error or (None if within else f"deviates by {deviation:.3g} of the bound"),
    )


def checks(device: torch.device, size: str) -> Iterator[Check]:
    """Yield all checks for a device; `size` is quick or full."""
    return chain(
        contract.operator_checks(device, contract.SIZES[size]),
        recurrent_contract.recurrent_checks(device, recurrent_contract.SIZES[size]),
        recurrent_contract.lookup_checks(device, recurrent_contract.SIZES[size]),
        contract.decoder_checks(device),
        model_contract.model_checks(device),
    )


def run(
    console: Console, device: torch.device, *, quick: bool = False, tuned: bool = True
) -> dict[str, Any]:
    """Run all checks, time everything, write the rule if `tuned`, and return the report."""
    size = "quick" if quick else "full"
    file = tune.check_rule_file() if tuned else None
    console.print(f"toeplix doctor on {described(device)}", markup=False, highlight=False)
    found = list(_examined(console, checks(device, size)))
    failed = [each for each in found if not each.passed]
    console.print(outcome_table(found))
    with _current(device):
        measured = tune.measure(console, device, seconds=SECONDS[size], lengths=LENGTHS[size])
        milliseconds = _times(device, SECONDS[size])
    if file is not None and failed:
        console.print("no rule is written: a path that is wrong may be the fastest", markup=False)
    elif file is not None:
        tune.write_rule(file, device, measured)
        console.print(f"wrote the rule to {file}", markup=False, highlight=False)
    return {
        "report": "doctor",
        "passed": not failed,
        "quick": quick,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": versions(),
        "device": properties(device),
        "checks": [dataclasses.asdict(each) for each in found],
        "timings": {
            "nanoseconds_per_element": measured,
            "milliseconds": milliseconds,
        },
        "rule": {kind: dispatch.current_rule().get(kind) for kind in measured},
        "rule_file": str(file) if file is not None and not failed else None,
    }


def _examined(console: Console, every: Iterable[Check]) -> Iterator[Outcome]:
    for check in track(list(every), "checks", console=console, transient=True):
        outcome = examine(check)
        if not outcome.passed:
            line = f"FAILED {outcome.name}: {outcome.error}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        yield outcome


def outcome_table(found: list[Outcome]) -> Table:
    """Return the number of checks by group, those that failed, and the worst deviation."""
    table = Table(title="deviations as shares of what is allowed")
    for column in ("checks", "made", "failed", "worst"):
        table.add_column(column, justify="left" if column == "checks" else "right")
    groups: dict[str, list[Outcome]] = {}
    for each in found:
        groups.setdefault(each.name.partition(":")[0].partition(",")[0], []).append(each)
    for name, own in groups.items():
        shares = [e.deviation / e.tolerance for e in own if e.deviation is not None and e.tolerance]
        worst = f"{max(shares):.2f}" if shares else ""
        table.add_row(name, str(len(own)), str(sum(not e.passed for e in own)), worst)
    return table


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Make a CUDA device the current one, for which timings wait."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _times(device: torch.device, seconds: float) -> dict[str, float]:
    """Return median milliseconds: decode steps, products of recurrent filters, lookup, and models."""
    calls = _decode_steps(device) | _products(device)
    for arch in ARCHITECTURES:
        config = model_contract.small_model(arch, context=128, dim=128)
        model = build(config).to(device)
        tokens = torch.randint(config.vocab, (1, 128)).to(device)
        calls[f"{arch}, forward+backward"] = partial(_passes, model, tokens)
    taken = timing.interleaved(calls, seconds=seconds, least=2, most=20)
    return {name: round(statistics.median(each) * 1e3, 4) for name, each in taken.items()}


def _decode_steps(device: torch.device) -> dict[str, Callable[[], object]]:
    """Return a step of every decoder, after a prompt of the length of its filter."""
    kernel = timing.randn(1, CONTEXT, seed=1).to(device)
    past, x = (timing.randn(1, count, 1, 256).to(device) for count in (CONTEXT, 1))
    free, weights, decays = (each.to(device) for each in recurrent_filters(1, CONTEXT))
    states: dict[str, Decoder] = {
        kind: decoder(kernel, past, kind=kind) for kind in ("history", "online")
    }
    states["ragged"] = RaggedDecoder(kernel, past, CONTEXT)
    states["recurrent"] = RecurrentDecoder(free, weights, decays, past)
    return {f"{kind} decoder, a step": partial(each.step, x[:, 0]) for kind, each in states.items()}


def _products(device: torch.device) -> dict[str, Callable[[], object]]:
    """Return the operators of the default model, forward and backward, at the lengths of PRODUCTS."""
    calls: dict[str, Callable[[], object]] = {}
    for time_ in PRODUCTS:
        x = timing.randn(2, time_, 1, 512).to(device).requires_grad_()
        filters = [each.to(device).requires_grad_() for each in recurrent_filters(1, CONTEXT)]
        product = partial(multiply_recurrent, x, *filters)
        calls[f"recurrent product, t={time_}, forward+backward"] = partial(_backward, product)
        q, k, v = (
            timing.randn(2, time_, 4, width, seed=seed).to(device).requires_grad_()
            for seed, width in enumerate((8, 8, 128))
        )
        weights = timing.randn(4, 8).to(device).requires_grad_()
        decays = filters[2].detach()
        product = partial(lookup_recurrent_whole, q, k, v, weights, decays)
        calls[f"lookup, t={time_}, forward+backward"] = partial(_backward, product)
    return calls


def _backward(product: Callable[[], torch.Tensor]) -> None:
    product().sum().backward()


def _passes(model: LanguageModel, tokens: torch.Tensor) -> None:
    model(tokens).mean().backward()


def versions() -> dict[str, str | None]:
    """Return the versions of Python, of the packages that compute, and of the device's libraries."""
    found: dict[str, str | None] = {"python": sys.version.split()[0], "system": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    cudnn = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    return found | {
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": None if cudnn is None else str(cudnn),
    }


def properties(device: torch.device) -> dict[str, Any]:
    """Return what PyTorch tells about a device."""
    found: dict[str, Any] = {"type": device.type, **timing.describe_machine(device)}
    if device.type == "cuda":
        told = torch.cuda.get_device_properties(device)
        names = (name for name in dir(told) if not name.startswith("_"))
        values = ((name, getattr(told, name)) for name in names)
        found |= {k: v for k, v in values if isinstance(v, int | float | str)}
        found["allow_tf32"] = torch.backends.cuda.matmul.allow_tf32
    return found
