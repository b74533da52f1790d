"""The operators of a run, one for each kind of block with long filters: path, dtype and estimates.

A path is what `path="auto"` or the recurrence takes for the run's batch and context:

    blocked, fft, halving, triton   a product with one tap for every lag (toeplix.ops.dispatch)
    recurrent                       recurrent filters in linear time, by chunks (ops/recurrent.py)
    tiles, chunks, products         lookup (ops/lookup.py)

On GPUs that run the Triton kernels, Triton is taken to be there. Under autocast an operator gets the
dtype that the layers before it give it (`TokenMixer.operator_precision`), which may be float32 in a run
in half precision.
"""

from collections.abc import Callable
from typing import NamedTuple

from toeplix.architectures import ARCHITECTURES
from toeplix.config import Model
from toeplix.ops import dispatch, lookup
from toeplix.ops.recurrent import takes_tiles
from toeplix.ops.triton.lookup import MAX_CHANNELS
from toeplix.profiling import chunk_roofline, roofline
from toeplix.profiling.roofline import GPU, ITEM_BYTES, Estimate, Shape
from toeplix.training.run import Run


class Device(NamedTuple):
    """A type of device as PyTorch names it, whether Triton kernels run there, and the rule of paths."""

    kind: str
    kernels: bool
    rule: dispatch.Rule


class Operator(NamedTuple):
    """The operator of one kind of block; `shape` is that of what its filters multiply."""

    model: Model
    shape: Shape
    precision: str

    def choose(self, mode: str, device: Device) -> str:
        """Return the path that the rule selects for filters with one tap for every lag."""
        kind = dispatch.kind_of(device.kind, ITEM_BYTES[self.precision])
        columns = self.shape.batch * self.shape.channels
        return dispatch.choose(
            mode,
            kind,
            self.shape.time,
            columns,
            self.shape.channels,
            rule=device.rule,
            usable=lambda path: path != "triton" or device.kernels,
        )


def operators(run: Run) -> dict[str, Operator]:
    """Return the operators by the kind of their block; none if the model has no long filters."""
    model, found = run.model, {}
    for kind, mixer in ARCHITECTURES[model.arch].filter_mixers(model).items():
        heads = mixer.filter_heads(model)
        shape = Shape(run.batch, model.context, heads, model.dim // heads)
        found[kind] = Operator(model, shape, mixer.operator_precision(model, run.precision))
    return found


def paths(run: Run, kind: str, *, kernels: bool) -> dict[str, str]:
    """Return the path of every operator; a tuned rule is used for this machine's CPU only."""
    rule = dispatch.current_rule() if kind == "cpu" else dispatch.RULE
    device = Device(kind, kernels, rule)
    return {
        kind: PATHS.get((kind, run.model.filter), _free_path)(operator, device)
        for kind, operator in operators(run).items()
    }


def estimates(run: Run, gpu: GPU) -> list[Estimate]:
    """Return the kernels of one layer of each kind, forward and backward, beside other paths."""
    found = []
    for kind, operator in operators(run).items():
        found += ESTIMATES.get((kind, run.model.filter), _free_estimates)(operator, gpu)
    return found


def _free_path(operator: Operator, device: Device) -> str:
    return operator.choose(dispatch.AUTO, device)


def _recurrent_path(operator: Operator, device: Device) -> str:
    if takes_tiles(operator.shape.time, operator.shape.channels):
        return operator.choose(dispatch.AUTO_EXACT, device)
    return "recurrent"


def _lookup_path(operator: Operator, device: Device) -> str:
    widest = max(operator.model.keys, operator.shape.channels)
    fused = device.kernels and widest <= MAX_CHANNELS
    return "chunks" if fused or lookup.takes_chunks(device.kind, operator.shape.time) else "tiles"


def _free_lookup_path(operator: Operator, device: Device) -> str:
    return lookup.free_path(device.kind, operator.shape.time, operator.model.keys)


def _free_estimates(operator: Operator, gpu: GPU) -> list[Estimate]:
    return roofline.estimates(operator.shape, operator.precision, gpu)


def _recurrent_estimates(operator: Operator, gpu: GPU) -> list[Estimate]:
    model, shape, precision = operator
    filters = (model.free_taps, model.decays)
    step = chunk_roofline.decode_step(shape, *filters, precision, gpu)
    if takes_tiles(shape.time, shape.channels):
        return [*_free_estimates(operator, gpu), step]
    kernels = chunk_roofline.recurrent_kernels(shape, *filters, precision, gpu)
    # what free filters of this length would need without kernels
    return [*kernels, roofline.fft_path(shape, precision, gpu), step]


def _lookup_estimates(operator: Operator, gpu: GPU) -> list[Estimate]:
    model, shape, precision = operator
    kernels = chunk_roofline.lookup_kernels(shape, model.keys, model.decays, precision, gpu)
    return [*kernels, *_free_lookup_estimates(operator, gpu)]


def _free_lookup_estimates(operator: Operator, gpu: GPU) -> list[Estimate]:
    model, shape, precision = operator
    return [
        chunk_roofline.lookup_tiles_path(shape, model.keys, precision, gpu),
        chunk_roofline.lookup_products_path(shape, model.keys, precision, gpu),
    ]


# by kind of block and of filter; every other operator is a product with one tap for every lag
PATHS: dict[tuple[str, str], Callable[[Operator, Device], str]] = {
    ("toeplitz", "recurrent"): _recurrent_path,
    ("lookup", "recurrent"): _lookup_path,
    ("lookup", "free"): _free_lookup_path,
}
ESTIMATES: dict[tuple[str, str], Callable[[Operator, GPU], list[Estimate]]] = {
    ("toeplitz", "recurrent"): _recurrent_estimates,
    ("lookup", "recurrent"): _lookup_estimates,
    ("lookup", "free"): _free_lookup_estimates,
}
