"""`toeplix quantize`: a checkpoint with weights in int8 or bfloat16, and what that changes."""

import copy
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    import torch

    from toeplix.data import Tokenizer
    from toeplix.model import LanguageModel


def quantize(
    model: Annotated[
        Path, typer.Argument(help="The directory of a run, or of a model with its tokenizer.")
    ],
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]", help="Where the quantized checkpoint is written; default: nowhere."
        ),
    ] = None,
    to: Annotated[str, typer.Option(help="int8 or bfloat16.")] = "int8",
    text: Annotated[
        Path | None,
        typer.Option(help="Text to compare both models on; default: the run's validation split."),
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of the text to predict.")] = 2048,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a checkpoint that is in DIR.")
    ] = False,
) -> None:
    """Store the weights of linear layers in fewer bits, and compare logits and bits per byte.

    generate, serve, eval, explore and `toeplix.load` read the checkpoint; training goes on from the
    float32 one.
    """
    from toeplix.files import ensure_directory
    from toeplix.mixers.quantized import check_scheme

    check_scheme(to)
    if text is not None and (text.is_dir() or not text.exists()):
        what = "a directory; name a file" if text.is_dir() else "there is no such file"
        raise FileNotFoundError(f"--text {text}: {what}")
    # better now than after the comparison
    with nullcontext() if directory is None else ensure_directory(directory):
        if directory is not None and any(directory.iterdir()) and not overwrite:
            raise ValueError(
                f"{directory} is not empty: name a new directory, or replace the checkpoint in it by "
                "--overwrite"
            )
        _compare_and_save(model, directory, to, text, tokens, overwrite)


def _compare_and_save(
    model: Path, directory: Path | None, to: str, text: Path | None, tokens: int, overwrite: bool
) -> None:
    from toeplix.inference import quantization
    from toeplix.inference.loading import load_pretrained

    found = load_pretrained(model, finite=True)
    sample = _sample(model, text, found.tokenizer, tokens)
    if sample is None and directory is None:
        raise ValueError(
            f"{model} has no validation split to compare on, and no DIR was given: give --text FILE"
        )
    quantized = copy.deepcopy(found.model)
    quantization.quantize(quantized, to)
    start = sample.tokens[: found.model.config.context] if sample else [found.tokenizer.start]
    if not _finite_logits(found.model, start):
        raise ValueError(
            f"{model}: the logits are not finite, training diverged; give an earlier checkpoint of "
            "the run, or train again with a lower lr"
        )
    if not _finite_logits(quantized, start):
        raise ValueError(f"{model}: the logits are not finite in {to}; choose another --to")
    before, after = (quantization.weight_bytes(each)[0] / 1e6 for each in (found.model, quantized))
    print(f"weights: {before:.1f} MB, in {to} {after:.1f} MB")
    if sample is not None:
        windows = quantization.windows_of(sample.tokens, found.model.config.context, tokens)
        drift = quantization.compare(found.model, quantized, windows, sample.token_bytes)
        print(
            f"{drift.tokens} tokens of {sample.name}: bits per byte "
            f"{drift.reference_bits_per_byte:.4f}, in {to} {drift.bits_per_byte:.4f} "
            f"({_signed(drift.bits_per_byte - drift.reference_bits_per_byte)})\n"
            f"logits: max abs difference {drift.max_abs:.4f}, KL divergence {drift.mean_kl:.2e} nats "
            f"per token, same argmax {drift.same_argmax:.2%}"
        )
    else:
        print("logits were not compared: there is no validation split; --text FILE compares them")
    if directory is not None:
        source = found.directory
        print(quantization.save_quantized(quantized, source, directory, overwrite=overwrite))


def _finite_logits(model: "LanguageModel", tokens: list[int]) -> bool:
    """Return whether logits are finite; weights are, even of a model that diverged."""
    import torch

    with torch.no_grad():
        return bool(torch.isfinite(model(torch.tensor([tokens]))).all())


def _signed(difference: float) -> str:
    """Return a difference with four decimals and its sign, unless all of them are zero."""
    shown = f"{difference:+.4f}"
    return shown if float(shown) else shown[1:]


class _Sample(NamedTuple):
    name: str
    tokens: list[int]
    token_bytes: "torch.Tensor"  # bytes of text of each token of the vocabulary


def _sample(model: Path, text: Path | None, tokenizer: "Tokenizer", limit: int) -> _Sample | None:
    """Return the text that both models predict: the user's, or else the run's validation split."""
    import torch

    if text is None:
        return _validation(model, limit)
    from toeplix.files import open_input

    with open_input(text) as opened:
        content = opened.read(64 * limit).decode("utf-8", errors="ignore")
    encoded = tokenizer.encode(content)
    if tokenizer.byte_level:
        sizes = torch.from_numpy(tokenizer.token_bytes()).double()
    else:
        share = len(content.encode()) / max(1, len(encoded))
        sizes = torch.full((tokenizer.vocab,), share, dtype=torch.float64)
    return _Sample(str(text), [tokenizer.start, *encoded][: limit + 1], sizes)


def _validation(model: Path, limit: int) -> _Sample | None:
    from toeplix.data import Store
    from toeplix.files import read_json, reading
    from toeplix.training.run import Run
    from toeplix.training.run_directory import RECORD
    from toeplix.training.validation import label_bytes

    if not (model / RECORD).is_file():
        return None
    with reading(model / RECORD, "give --text FILE"):
        run = Run.from_dict(read_json(model / RECORD))
    if not Path(run.data).is_dir():
        return None
    store = Store.open(run.data)
    if not store.has_validation:
        return None
    tokens = store.val.tokens[: limit + 1].tolist()
    return _Sample(f"the validation split of {run.data}", tokens, label_bytes(store))
