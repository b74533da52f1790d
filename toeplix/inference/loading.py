"""Loading a trained model with its tokenizer, from a run directory or a model directory.

model, tokenizer, directory = load_pretrained("runs/mine")    the same as "runs/mine/model"
"""

from pathlib import Path
from typing import NamedTuple

import torch

from toeplix.checkpoint import WEIGHTS, load, require_numbers
from toeplix.data import Tokenizer
from toeplix.files import printable, reading
from toeplix.inference.weight_layout import for_decoding
from toeplix.mixers import quantized
from toeplix.model import LanguageModel
from toeplix.pretrained_files import TOKENIZER_CONFIG as CONFIG


class Pretrained(NamedTuple):
    """A model, its tokenizer, and the model directory that both were read from."""

    model: LanguageModel
    tokenizer: Tokenizer
    directory: Path


def model_directory(directory: str | Path) -> Path:
    """Return the model directory: the given one, or `model/` of a run directory."""
    folder = Path(directory)
    if folder.is_file():
        raise NotADirectoryError(
            f"{printable(folder)} is a file: give the directory of a run or of a model"
        )
    here = any((folder / name).exists() for name in (WEIGHTS, f"{WEIGHTS}.index.json"))
    return folder if here or not (folder / "model").is_dir() else folder / "model"


def load_pretrained(
    directory: str | Path,
    *,
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
    decoding_layout: bool = False,
    finite: bool = False,
    quantize: str | None = None,
) -> Pretrained:
    """Load a model and its tokenizer, ready for inference.

    Args:
        directory: of a run or of a model.
        device: where it runs; None: the CPU.
        dtype: of the weights that are not quantized; None: as stored, with `quantize` float32.
        decoding_layout: lay out the weights for fast decoding on a CPU (see weight_layout.py).
        finite: reject weights that are infinite or not a number.
        quantize: store the weights of linear layers as this, "int8" or "bfloat16" (mixers/quantized.py).
    """
    if quantize is not None:
        quantized.check_scheme(quantize)
    folder = model_directory(directory)
    model = load(folder)
    with reading(folder / CONFIG, "copy the tokenizer again from where it came"):
        tokenizer = Tokenizer.load(folder)
    if tokenizer.vocab > model.config.vocab:
        raise ValueError(
            f"{folder}: the tokenizer has {tokenizer.vocab} tokens, the model {model.config.vocab}"
        )
    if finite:
        require_numbers(model, folder)
    if quantize is not None and quantize != quantized.quantization_of(model):
        quantized.quantize(model, quantize)
    model.to(device=device, dtype=dtype)
    if decoding_layout:
        for_decoding(model)
    return Pretrained(model, tokenizer, folder)
