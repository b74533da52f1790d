"""Initialisation of the linear layers, the embedding and the output layer of a model.

scaled    matrices N(0, 1/fan_in), those that write to the residual stream divided by sqrt(2 depth),
          biases 0, embedding and output N(0, 0.02^2): the first loss is ln(vocab)
kaiming   Kaiming noise on every matrix, biases 0: the paper's Toeplitz models (first loss 30 to 50)
pytorch   PyTorch's defaults: the paper's other models
output    PyTorch's defaults, but the output layer N(0, 0.02^2): Hyena learns better from these

A mixer names its rule for every value of `Model.init` in `TokenMixer.INITIALISATION`, and initialises its
filters itself (`TokenMixer.reset`).
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch import nn

EMBEDDING_STD = 0.02  # of embedding and output


@torch.no_grad()
def scaled(
    model: nn.Module,
    embedding: nn.Embedding,
    head: nn.Linear,
    outputs: Iterable[nn.Linear],
    depth: int,
) -> None:
    embedding.weight.normal_(std=EMBEDDING_STD)
    for linear in linears(model):
        linear.weight.normal_(std=1 / math.sqrt(linear.in_features))
    for output in outputs:
        output.weight /= math.sqrt(2 * depth)
    head.weight.normal_(std=EMBEDDING_STD)
    zero_biases(model)


@torch.no_grad()
def kaiming(
    model: nn.Module,
    embedding: nn.Embedding,
    head: nn.Linear,
    outputs: Iterable[nn.Linear],
    depth: int,
) -> None:
    for linear in linears(model):
        nn.init.kaiming_normal_(linear.weight)
    zero_biases(model)


def pytorch(
    model: nn.Module,
    embedding: nn.Embedding,
    head: nn.Linear,
    outputs: Iterable[nn.Linear],
    depth: int,
) -> None:
    """PyTorch has initialised every module as it was built."""


@torch.no_grad()
def output(
    model: nn.Module,
    embedding: nn.Embedding,
    head: nn.Linear,
    outputs: Iterable[nn.Linear],
    depth: int,
) -> None:
    head.weight.normal_(std=EMBEDDING_STD)


Rule = Callable[[nn.Module, nn.Embedding, nn.Linear, Iterable[nn.Linear], int], None]
RULES: dict[str, Rule] = {
    "scaled": scaled,
    "kaiming": kaiming,
    "pytorch": pytorch,
    "output": output,
}


def linears(model: nn.Module) -> list[nn.Linear]:
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


def zero_biases(model: nn.Module) -> None:
    for linear in linears(model):
        if linear.bias is not None:
            linear.bias.zero_()
