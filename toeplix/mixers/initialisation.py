"""Initialisation of the linear layers, the embedding and the output layer of a model.

scaled    matrices N(0, 1/fan_in), those that write to the residual stream divided by sqrt(2 depth),
          biases 0, embedding and output N(0, 0.02^2): the first loss is ln(vocab)
kaiming   Kaiming noise on every matrix, biases 0: the paper's Toeplitz models (first loss 30 to 50)
pytorch   PyTorch's defaults: the paper's other models
output    PyTorch's defaults (embeddings N(0, 1)), but the output layer N(0, 0.02^2): Hyena and linear
          attention learn better from these

A mixer names its rule for every value of `Model.init` in `TokenMixer.INITIALISATION`, and initialises its
filters itself (`TokenMixer.reset`).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

STD = 0.02  # of embedding and output


class Layers(NamedTuple):
    """What a rule initialises."""

    model: nn.Module
    embedding: nn.Embedding
    head: nn.Linear
    residual_outputs: list[nn.Linear]
    depth: int

    @property
    def linears(self) -> list[nn.Linear]:
        return [module for module in self.model.modules() if isinstance(module, nn.Linear)]


@torch.no_grad()
def scaled(layers: Layers) -> None:
    layers.embedding.weight.normal_(std=STD)
    for linear in layers.linears:
        linear.weight.normal_(std=1 / math.sqrt(linear.in_features))
    for output in layers.residual_outputs:
        output.weight /= math.sqrt(2 * layers.depth)
    layers.head.weight.normal_(std=STD)
    _zero_biases(layers)


@torch.no_grad()
def kaiming(layers: Layers) -> None:
    for linear in layers.linears:
        nn.init.kaiming_normal_(linear.weight)
    _zero_biases(layers)


def pytorch(layers: Layers) -> None:
    """PyTorch has initialised every module as it was built."""


@torch.no_grad()
def output(layers: Layers) -> None:
    layers.head.weight.normal_(std=STD)


RULES: dict[str, Callable[[Layers], None]] = {
    "scaled": scaled,
    "kaiming": kaiming,
    "pytorch": pytorch,
    "output": output,
}


def _zero_biases(layers: Layers) -> None:
    for linear in layers.linears:
        if linear.bias is not None:
            linear.bias.zero_()
