"""Retention of a given model: a toeplix model, or any causal model that Hugging Face can load.

The protocol is that of the experiment `retention`, on text in the model's own tokens. A decoder is
trained on the hidden state of the frozen model, on that of an untrained model of the same shape, and
without a hidden state. Losses are not comparable between tokenizers. Accuracies, and losses relative to
that of the decoder without a hidden state, are approximately comparable.
"""

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, cast

import torch

from toeplix.checkpoint import is_checkpoint
from toeplix.config import Model
from toeplix.data import Store
from toeplix.experiments import retention
from toeplix.experiments.engine import (
    intervals,
    probing,
    retention_verdicts,
    rows,
    task_tuning,
)
from toeplix.experiments.engine.collect import results_file
from toeplix.experiments.engine.report import reported
from toeplix.files import read_json
from toeplix.inference.loading import model_directory
from toeplix.model import LanguageModel
from toeplix.records import check_seed

ENDLESS = 2**30  # context of a model without a limit
ENCODERS = ("as it is", "untrained", "nothing")


class ProbeLine(TypedDict, total=False):
    """What a decoder reads from one encoder, a line of the table."""

    encoder: str
    loss: float | None
    accuracy: float
    bits: float  # kept per token
    share: float  # of the bits of a text
    curve: list[list[float]]
    diverged: str | None


@dataclass(frozen=True, kw_only=True)
class Probe:
    """How a decoder is trained; the defaults are the experiment's laptop scale."""

    context: int = 8
    depth: int = 2
    batch: int = 32
    steps: int = 500
    warmup: int = 20
    lr: float = 1e-2
    seed: int = 0
    eval_sequences: int = 256
    recipe: dict[str, Any] = field(default_factory=dict)  # other fields of `Run`
    probe: dict[str, Any] = field(default_factory=lambda: dict(retention.MATCHED))

    def __post_init__(self) -> None:
        for name in ("context", "depth", "batch", "steps", "eval_sequences"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        check_seed(self.seed)
        if not 0 < self.lr < math.inf:
            raise ValueError(f"lr={self.lr} must be a number above 0")


def opened(checkpoint: str | Path, *, fresh: bool = False) -> LanguageModel:
    """Load the model of a directory, with new weights if `fresh`. No code from the directory is run."""
    folder = folder_of(checkpoint)
    if is_checkpoint(_described(folder)):
        from toeplix import build, load

        model = load(folder).float()  # as models of others: the decoder that reads it is float32
        return build(model.config).eval() if fresh else model
    return _foreign(folder, fresh=fresh)


def folder_of(checkpoint: str | Path) -> Path:
    """Return the model's directory: the given one, `model/` of a run, or a download from the hub."""
    folder = Path(checkpoint)
    if not folder.is_dir():
        folder = _fetched(str(checkpoint))
    if not (folder / "config.json").exists():
        folder = model_directory(folder)
    if not (folder / "config.json").exists():
        raise FileNotFoundError(f"{checkpoint} is no checkpoint: there is no config.json in it")
    return folder


def _fetched(name: str) -> Path:
    """Download a model of the hub by its name: weights as safetensors, no code."""
    from huggingface_hub import snapshot_download

    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.startswith("."):
        raise FileNotFoundError(f"there is no directory {name}")
    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.model"]))
    except Exception as problem:  # of the network, the hub or the disk: any class
        reason = str(problem).strip().partition("\n")[0] or type(problem).__name__
        raise FileNotFoundError(
            f"there is no directory {name}, and the Hugging Face hub does not give it: {reason}"
        ) from problem


def _described(folder: Path) -> dict[str, Any]:
    return dict(read_json(folder / "config.json"))


def _foreign(folder: Path, *, fresh: bool) -> LanguageModel:
    from transformers import AutoConfig, AutoModelForCausalLM

    from toeplix.backbones.huggingface import Attention

    safe: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
    try:
        config = AutoConfig.from_pretrained(str(folder), **safe)
        if fresh:
            whole = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        else:
            whole = AutoModelForCausalLM.from_pretrained(
                str(folder), dtype=torch.float32, use_safetensors=True, **safe
            )
    except (
        Exception
    ) as problem:  # whatever the library raises about a directory is about its content
        reason = (
            str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        )
        raise ValueError(f"{folder} cannot be loaded as a causal model: {reason}") from problem
    backbone = whole.base_model.eval()
    table = whole.get_input_embeddings().weight
    longest = getattr(config.get_text_config(), "max_position_embeddings", None)
    sizes: dict[str, Any] = {
        "dim": _width(backbone, folder),
        "vocab": int(table.shape[0]),
        "context": int(longest or ENDLESS),
    }
    return Attention(Model(arch="llama", heads=1, **sizes), backbone, bias=False).eval()


@torch.no_grad()
def _width(backbone: Any, folder: Path) -> int:
    """Return the width of the last hidden state; models that are not causal are rejected."""
    tokens = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 0]])
    hidden = backbone(tokens).last_hidden_state
    if not torch.allclose(hidden[0, :3], hidden[1, :3], rtol=1e-3, atol=1e-4):
        raise ValueError(
            f"{folder} is no causal model: a later token changes earlier hidden states"
        )
    return int(hidden.shape[-1])


def texts(checkpoint: str | Path, data: str, work: Path, val_fraction: float = 0.05) -> Store:
    """Return a store in the tokens of a model: opened if `data` is one, else built from it once."""
    from toeplix.data import Recipe, build
    from toeplix.data.store import MANIFEST
    from toeplix.data.tokenizer import digest
    from toeplix.pretrained_files import TOKENS

    if (Path(data) / MANIFEST).exists():
        return Store.open(data)
    folder = folder_of(checkpoint)
    if not (folder / TOKENS).exists():
        raise FileNotFoundError(
            f"{folder} has no {TOKENS}: save the tokenizer beside the model, or give a store of its "
            "tokens with --data"
        )
    recipe = Recipe(sources=(data,), tokenizer=str(folder.resolve()), val_fraction=val_fraction)
    name = hashlib.sha256(f"{recipe!r} {digest(folder)}".encode()).hexdigest()[:12]
    return build(recipe, work / "probe" / name)


def probe(
    checkpoint: str | Path,
    store: Store,
    how: Probe,
    say: Callable[[str], None] = lambda line: None,
    *,
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> list[ProbeLine]:
    """Return loss, bits kept per token, share and accuracy for each encoder of ENCODERS.

    `dtype` is that of the encoder; the decoder is float32.
    """
    from toeplix import build
    from toeplix.experiments.engine.models import model as sized

    found: list[ProbeLine] = []
    for name in reversed(ENCODERS):
        say(f"a decoder learns to read: {name}")
        torch.manual_seed(how.seed)
        encoder = opened(checkpoint, fresh=name == "untrained")
        if store.vocab > encoder.config.vocab:
            raise ValueError(
                f"{store.directory} has {store.vocab} tokens, the model {encoder.config.vocab}: "
                "take a store of the model's own tokens"
            )
        if how.context > encoder.config.context:
            raise ValueError(
                f"texts of {how.context} tokens are longer than the {encoder.config.context} that the "
                "model reads: take a smaller --context"
            )
        sizes = {"dim": encoder.config.dim, "depth": how.depth, "context": how.context}
        torch.manual_seed(how.seed)
        decoder = build(sized(retention.DECODER, vocab=encoder.config.vocab, **sizes))
        encoder, decoder = encoder.to(device, dtype), decoder.to(device)
        signal = {"signal": "none"} if name == "nothing" else {}
        case = replace(how, probe=how.probe | signal)
        measured = probing.probed(encoder, decoder, case, store.train, store.val)
        found.append(cast("ProbeLine", {"encoder": name, **measured}))
    without_state = found[0]["loss"]
    for row in found:
        if without_state is not None and row["loss"] is not None:
            row["bits"] = (without_state - row["loss"]) / math.log(2)
            row["share"] = 1 - row["loss"] / without_state
    return found[::-1]


def beside(results: Path, scale: str = "laptop") -> list[ProbeLine]:
    """What the experiment found about our models, matched, for comparison; nothing if it never ran."""
    file = results_file("retention", scale, results)
    with rows.interpreting(file):
        measured, _ = reported("retention", scale, results)
        return _compared(cast("list[retention_verdicts.RetentionRow]", measured))


def _compared(measured: list[retention_verdicts.RetentionRow]) -> list[ProbeLine]:
    without_state = retention_verdicts.control_losses(measured)
    found: list[ProbeLine] = []
    for name in retention.COMPARED:
        for training in retention.TRAININGS:
            group = retention_verdicts.chosen(measured, name, training)
            losses = task_tuning.by_seed(group, "loss")
            if not set(losses) & set(without_state):
                continue
            loss, nothing = (
                intervals.mean(list(losses.values())),
                intervals.mean(list(without_state.values())),
            )
            found.append(
                {
                    "encoder": f"{name}, {training}",
                    "loss": loss.value,
                    "bits": (nothing.value - loss.value) / math.log(2),
                    "share": 1 - loss.value / nothing.value,
                    "accuracy": intervals.mean([row["accuracy"] for row in group]).value,
                }
            )
    return found
