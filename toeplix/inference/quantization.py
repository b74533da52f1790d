"""What quantized weights change: logits and bits per byte beside those of the float32 model.

    quantized = copy.deepcopy(model); quantize(quantized, "int8")
    compare(model, quantized, windows, token_bytes)      a `Drift`

Windows are read from their first token on, so every position is predicted in both models from the same
context. The quantized model reads them in short pieces, which go through the kernel of decode steps; it
rounds more than that of prefill. `save_quantized` writes a checkpoint with the tokenizer beside it.
"""

import dataclasses
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from jaxtyping import Float, Int
from torch import Tensor

from toeplix.checkpoint import save
from toeplix.mixers.quantized import MAX_FEW_ROWS, QuantizedLinear, quantization_of, quantize
from toeplix.model import LanguageModel
from toeplix.pretrained_files import TOKENIZER_CONFIG, TOKENS

__all__ = ["Drift", "compare", "quantize", "save_quantized", "weight_bytes", "windows_of"]

# files beside the weights that belong to the tokenizer
BESIDE = (
    TOKENS,
    TOKENIZER_CONFIG,
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drift:
    """Differences between the logits of two models, and how well both predict a text."""

    tokens: int  # predicted ones
    max_abs: float  # largest difference of a logit
    mean_kl: float  # of the reference's distribution to the other's, nats per token
    same_argmax: float  # share of positions with the same most likely token
    reference_bits_per_byte: float
    bits_per_byte: float


def windows_of(tokens: Sequence[int], context: int, limit: int) -> list[Int[Tensor, "1 _"]]:
    """Return windows of `context + 1` tokens, of which all but the first are predicted, `limit` in all.

    Every window begins with the last token of the one before it.
    """
    tokens = tokens[: limit + 1]
    if len(tokens) < 2:
        raise ValueError(f"the text has {len(tokens)} tokens: at least 2 are needed to predict one")
    starts = range(0, len(tokens) - 1, context)
    return [torch.tensor([list(tokens[first : first + context + 1])]) for first in starts]


@torch.no_grad()
def compare(
    reference: LanguageModel,
    other: LanguageModel,
    windows: Sequence[Int[Tensor, "1 _"]],
    token_bytes: Float[Tensor, " v"],
) -> Drift:
    """Predict all windows with both models; `token_bytes` has the bytes of text of each token."""
    count, size, max_abs, divergence, same = 0, 0.0, 0.0, 0.0, 0
    nats = [0.0, 0.0]
    for window in windows:
        labels = window[0, 1:]
        logits = [_logits(model, window[:, :-1]).double() for model in (reference, other)]
        logprobs = [each.log_softmax(-1) for each in logits]
        max_abs = max(max_abs, float((logits[0] - logits[1]).abs().max()))
        divergence += float((logprobs[0].exp() * (logprobs[0] - logprobs[1])).sum())
        same += int((logits[0].argmax(-1) == logits[1].argmax(-1)).sum())
        for place, each in enumerate(logprobs):
            nats[place] -= float(each.gather(1, labels[:, None]).sum())
        count, size = count + len(labels), size + float(token_bytes[labels].sum())
    bits = [found / math.log(2) / max(size, 1.0) for found in nats]
    return Drift(
        tokens=count,
        max_abs=max_abs,
        mean_kl=divergence / count,
        same_argmax=same / count,
        reference_bits_per_byte=bits[0],
        bits_per_byte=bits[1],
    )


def _logits(model: LanguageModel, tokens: Int[Tensor, "1 t"]) -> Float[Tensor, "t v"]:
    if quantization_of(model) is None:
        return model(tokens)[0]
    state, parts = None, []
    for part in tokens.split(MAX_FEW_ROWS, dim=1):
        logits, state = model.step(part, state)
        parts.append(logits[0])
    return torch.cat(parts)


def weight_bytes(model: LanguageModel) -> tuple[int, int]:
    """Return the bytes of all weights, and those of linear layers alone, which a decode step reads."""
    everything = sum({id(v): v.nbytes for v in model.state_dict().values()}.values())
    kinds = (torch.nn.Linear, QuantizedLinear)
    linear = [m for m in model.modules() if isinstance(m, kinds)]
    return everything, sum(v.nbytes for m in linear for v in m.state_dict().values())


def save_quantized(
    model: LanguageModel, source: Path, directory: Path, *, overwrite: bool = False
) -> Path:
    """Write a quantized model as `toeplix.save` does, with the tokenizer that lies in `source`."""
    if quantization_of(model) is None:
        raise ValueError("the model is not quantized: see toeplix.inference.quantization.quantize")
    with TemporaryDirectory() as aside:
        for name in BESIDE:
            if (source / name).is_file():
                shutil.copyfile(source / name, Path(aside) / name)
        return save(model, directory, tokenizer=aside, overwrite=overwrite)
