"""A core model and its twin for transformers, and batches of prompts of different lengths."""

import pytest
import torch

from tests.models import FREE, OURS
from tests.test_architectures import CASES as ALL
from tests.test_architectures import SMALL
from toeplix import Model, build
from toeplix.hub import from_core

CASES = {name: config for name, config in ALL.items() if config.arch in OURS} | {
    "toeplitz-three-layers": Model(**FREE, heads=2, sequential=3, kernels=2, gate=True, **SMALL),
    "linear-channel-first": Model(
        arch="linear", block_order="mlp_first", tie_embeddings=True, **SMALL
    ),
}
ARCHS = [
    *("toeplitz", "masked", "hyena", "linear", "toeplitz-three-layers"),
    "lookup-free",
    "hybrid",  # toeplitz and lookup, as the default model: both with recurrent filters
    "hybrid-recurrent",  # toeplitz and attention
]
PROMPTS = [[1, 2, 3, 4, 5], [7], list(range(1, 31))]


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small only wait for a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=CASES)
def twins(request):
    return pair(CASES[request.param])


def pair(config, sharp=True):
    """Biases that tell positions apart, and logits so large that rounding decides no argmax."""
    torch.manual_seed(0)
    core = build(config).eval()
    with torch.no_grad():
        for name, parameter in core.named_parameters():
            if name.endswith("bias"):
                parameter.add_(0.3 * torch.randn_like(parameter))
            if sharp and parameter.shape == (37, 32):
                parameter.mul_(20)
    return core, from_core(core)


def padded(rows, left):
    """Tokens and mask; what stands at pads is a token like any other."""
    length = max(map(len, rows))
    tokens, mask = torch.full((len(rows), length), 11), torch.zeros(len(rows), length).long()
    for i, row in enumerate(rows):
        where = slice(length - len(row), None) if left else slice(len(row))
        tokens[i, where], mask[i, where] = torch.tensor(row), 1
    return {"input_ids": tokens, "attention_mask": mask}
