"""Device placement without the device: on meta, and on a pretend device in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.device_cases import DECODERS, MODELS, OPERATORS, OWN_MODELS, decoded, ragged, trained
from toeplix import build

META = torch.device("meta")
ROOT = Path(__file__).parents[1]


def on_meta(name):
    with META:
        return build(MODELS[name])


def all_on_meta(found):
    assert found
    assert {value.device.type for value in found} == {"meta"}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_on_meta(name):
    """Shapes and dtypes are those of the CPU, and no value is needed to know them."""
    found, expected = OPERATORS[name](META), OPERATORS[name](torch.device("cpu"))
    all_on_meta(found)
    assert [(x.shape, x.dtype) for x in found] == [(x.shape, x.dtype) for x in expected]


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_on_meta(name):
    all_on_meta(DECODERS[name](META))


@pytest.mark.parametrize("protocol", ["plain", "packed", "padded"])
@pytest.mark.parametrize("name", OWN_MODELS)
def test_a_training_step_on_meta(name, protocol):
    """Only ours: the masks of Hugging Face's Transformers read positions, which meta does not have."""
    all_on_meta(trained(on_meta(name), META, protocol))


@pytest.mark.parametrize("name", MODELS)
def test_decoding_on_meta(name):
    all_on_meta(decoded(on_meta(name).eval(), META))


@pytest.mark.parametrize("name", OWN_MODELS)
def test_ragged_decoding_on_meta(name):
    all_on_meta(ragged(on_meta(name).eval(), META))


@pytest.mark.slow
def test_on_a_pretend_device():
    """All of it with values; a tensor of the host among the arguments of an operator is an error."""
    options = ["-q", "-p", "no:cacheprovider", "--show-capture=no"]
    command = [sys.executable, "-m", "pytest", *options, "tests/pretend_cases.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
