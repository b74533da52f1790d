"""What is run on a device to see that it stays there: operators, decoders, training and decoding."""

import torch
from torch import Tensor

from tests.models import OURS
from toeplix import Model
from toeplix.architectures import ARCHITECTURES
from toeplix.config import IGNORED
from toeplix.model import LanguageModel
from toeplix.ops import (
    RecurrentDecoder,
    decoder,
    toeplitz,
    toeplitz_continued,
    toeplitz_lookup,
    toeplitz_lookup_recurrent,
    toeplitz_packed,
    toeplitz_padded,
    toeplitz_recurrent,
    toeplitz_windowed,
)
from toeplix.ops.decoding.ragged import RaggedDecoder
from toeplix.ops.lookup import lookup_recurrent_whole, lookup_step
from toeplix.ops.paths import runnable
from toeplix.profiling.model_contract import OTHER, SMALL
from toeplix.training.distributed import clip
from toeplix.training.objective import Objective, OnHost

# every architecture, and free filters, which keep positions and histories
MODELS = {arch: Model(arch=arch, **SMALL, **OTHER.get(arch, {})) for arch in ARCHITECTURES} | {
    f"{arch}-free": Model(arch=arch, filter="free", **SMALL) for arch in ("toeplitz", "lookup")
}
OWN_MODELS = tuple(name for name, config in MODELS.items() if config.arch in OURS)
TIME = 70
OFFSETS = [0, 3, 40, 41, TIME]
FORMS = {  # how the product is called, with sequences, filters and a path
    "whole": lambda x, kernel, how: toeplitz(x, kernel, path=how),
    "windowed": lambda x, kernel, how: toeplitz_windowed(x, kernel[:, :9], path=how),
    "continued": lambda x, kernel, how: toeplitz_continued(x[:, 8:], kernel, x[:, :8], path=how),
    "packed": lambda x, kernel, how: toeplitz_packed(x[:1], kernel, OFFSETS, path=how),
    "padded": lambda x, kernel, how: toeplitz_padded(x, kernel, padding(2, TIME), path=how),
}


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def padding(rows: int, time: int) -> Tensor:
    """Return a mask, on the host: the first row has two thirds, the last is padded on the left."""
    mask = torch.ones(rows, time, dtype=torch.bool)
    mask[0, 2 * time // 3 :] = False
    mask[-1, : time // 4] = False
    return mask


def _product(form, path):
    def run(device, dtype=torch.float32):
        x = noise(2, TIME, 2, 4).to(device, dtype).requires_grad_()
        kernel = noise(2, TIME + 3, seed=1).to(device, dtype).requires_grad_()
        y = FORMS[form](x, kernel, path)
        return [y, *torch.autograd.grad(y.square().sum(), (x, kernel))]

    return run


def _recurrent(**documents):
    def run(device, dtype=torch.float32):
        x = noise(1 if "offsets" in documents else 2, TIME, 2, 4).to(device, dtype)
        filters = [noise(2, 3, seed=1), noise(2, 5, seed=2), noise(2, 5, seed=3).sigmoid()]
        given = [each.to(device).requires_grad_() for each in (x, *filters)]
        y, state = toeplitz_recurrent(*given, **documents)
        value = y.float().square().sum() + state.sums.sum()
        return [y, *state, *torch.autograd.grad(value, given)]

    return run


LOOKUPS = {  # with queries, keys, values and filters; decays are on the device of the others
    "lookup-tiles": lambda q, k, v, kernel, _: toeplitz_lookup(q, k, v, kernel, path="tiles"),
    "lookup-products": lambda q, k, v, kernel, _: toeplitz_lookup(q, k, v, kernel, path="products"),
    "lookup-continued": lambda q, k, v, kernel, _: toeplitz_lookup(q[:, 30:], k, v, kernel[:, :9]),
    "lookup-chunks": lambda q, k, v, kernel, decays: lookup_in_two(q, k, v, kernel[:, :5], decays),
    "lookup-whole": lambda q, k, v, kernel, decays: lookup_recurrent_whole(
        q, k, v, kernel[:, :5], decays
    ),
}


def lookup_in_two(q, k, v, weights, decays):
    """Return outputs by chunks, the second part after the state of the first."""
    first, state = toeplitz_lookup_recurrent(q[:, :30], k[:, :30], v[:, :30], weights, decays)
    rest = q[:, 30:], k[:, 30:], v[:, 30:]
    return torch.cat([first, toeplitz_lookup_recurrent(*rest, weights, decays, state=state)[0]], 1)


def _lookup(form):
    def run(device, dtype=torch.float32):
        parts = noise(2, TIME, 2, 3), noise(2, TIME, 2, 3, seed=1), noise(2, TIME, 2, 4, seed=2)
        given = [x.to(device, dtype).requires_grad_() for x in (*parts, noise(2, TIME, seed=3))]
        y = LOOKUPS[form](*given, noise(5, seed=4).sigmoid().to(device))
        return [y, *torch.autograd.grad(y.square().sum(), given)]

    return run


# kernels for one kind of device run on no other, and are compared with the definition on their own
ABLE = ("auto", *runnable(torch.empty(1, 1, 1, 1)))
OPERATORS = {f"{form}-{path}": _product(form, path) for form in FORMS for path in ABLE} | {
    "recurrent": _recurrent(),
    "recurrent-packed": _recurrent(offsets=OFFSETS),
    "recurrent-padded": _recurrent(mask=padding(2, TIME)),
}
OPERATORS |= {form: _lookup(form) for form in LOOKUPS}


def _stepped(state, device, keep=True):
    """Return outputs of many steps, with rows selected among them."""
    outputs = [state.step(noise(2, 2, 4, seed=step).to(device)) for step in range(80)]
    if keep:
        state.select(torch.tensor([1, 0, 1]))
        outputs += [state.step(noise(3, 2, 4, seed=step).to(device)) for step in range(40)]
    return outputs


def _ragged_steps(state, joins, device):
    outputs = _stepped(state, device)
    state.append(joins)
    outputs += [state.step(noise(5, 2, 4, seed=step).to(device)) for step in range(40)]
    state.select(torch.tensor([4, 1]))
    return outputs + [state.step(noise(2, 2, 4, seed=step).to(device)) for step in range(9)]


def _filters(device):
    parts = noise(2, 3, seed=1), noise(2, 5, seed=2), noise(2, 5, seed=3).sigmoid()
    return [each.to(device) for each in parts]


@torch.no_grad()
def _looked_up(device):
    """Return outputs of lookup steps, and the state after them."""
    sums = noise(2, 5, 2, 3, 4, seed=5).transpose(1, 2).contiguous().transpose(1, 2).to(device)
    filters = noise(2, 5, seed=3).to(device), noise(5, seed=4).sigmoid().to(device)
    outputs = []
    for step in range(9):
        q, k, v = (noise(2, 2, size, seed=step).to(device) for size in (3, 3, 4))
        outputs.append(lookup_step(q, k, v, *filters, sums))
    return [*outputs, sums]


DECODERS = {
    "lookup": _looked_up,
    "history": lambda device: _stepped(
        decoder(noise(2, 90).to(device), noise(2, 30, 2, 4).to(device), kind="history"), device
    ),
    "online": lambda device: _stepped(
        decoder(noise(2, 200).to(device), noise(2, 30, 2, 4).to(device), kind="online"), device
    ),
    "ragged": lambda device: _ragged_steps(
        RaggedDecoder(noise(2, 200).to(device), noise(2, 30, 2, 4).to(device), 190),
        noise(2, 17, 2, 4).to(device),
        device,
    ),
    "recurrent": lambda device: _ragged_steps(
        RecurrentDecoder(*_filters(device), noise(2, 30, 2, 4).to(device)),
        noise(2, 17, 2, 4).to(device),
        device,
    ),
}


def trained(
    model: LanguageModel, device: torch.device, protocol: str, precision: str = "float32"
) -> list[Tensor]:
    """Take one optimizer step as the training loop does; return loss, norm and gradients."""
    generator = torch.Generator().manual_seed(0)
    rows = 1 if protocol == "packed" else 3
    tokens = torch.randint(37, (rows, 24), generator=generator)
    labels = tokens.roll(-1, 1).masked_fill(tokens % 5 == 0, IGNORED)
    layout = {}
    if protocol == "packed":
        layout["offsets"] = OnHost(torch.tensor([0, 5, 19, 24]))
    if protocol == "padded":
        layout["mask"] = OnHost(padding(3, 24))
        labels = labels.masked_fill(~padding(3, 24), IGNORED)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, fused=device.type != "meta")
    loss = Objective(model, precision)(tokens.to(device), OnHost(labels), **layout)
    (loss / 24).backward()
    norm = clip(weights, 1.0)
    optimizer.step()
    assert {weight.device.type for weight in weights} == {device.type}
    return [loss.detach(), norm, *(weight.grad for weight in weights)]


@torch.no_grad()
def decoded(model: LanguageModel, device: torch.device) -> list[Tensor]:
    """Return the logits of a prompt in two chunks, and of steps beyond the context."""
    tokens = torch.randint(37, (2, 40), generator=torch.Generator().manual_seed(0)).to(device)
    state, parts = model.start(), []
    for number, part in enumerate(tokens.split([6, 3, *[1] * 31], 1)):
        if number == 2:
            state.begin_decoding(31)
        logits, state = model.step(part, state)
        parts.append(logits)
    return parts


@torch.no_grad()
def ragged(model: LanguageModel, device: torch.device) -> list[Tensor]:
    """Return the logits of rows that join and leave."""
    tokens = torch.randint(37, (4, 40), generator=torch.Generator().manual_seed(0)).to(device)
    _, state = model.step(tokens[:2, :9])
    _, other = model.step(tokens[2:, :5])
    state.begin_ragged(2, 60)
    parts = [model.step(tokens[:2, step : step + 1], state)[0] for step in range(9, 30)]
    state.append(other, 2)
    parts += [model.step(tokens[:, step : step + 1], state)[0] for step in range(5, 15)]
    state.select(torch.tensor([3, 0]))
    return parts + [model.step(tokens[:2, step : step + 1], state)[0] for step in range(5)]
