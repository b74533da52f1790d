"""The model card: README.md beside the weights, as on the Hugging Face hub.

A card that was edited is kept by taking the comment of its first lines out of it (`files.MARK`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toeplix.architectures import parameters
from toeplix.config import Model
from toeplix.files import MARK, generated, replace_file

CARD = "README.md"
UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Trained:
    """How a model was trained, as its card tells it: without dates and absolute paths."""

    data: str
    tokens: int
    val_loss: float | None = None  # nats per token
    val_bits_per_byte: float | None = None
    command: str
    data_license: str = UNKNOWN


def write_card(
    folder: Path, config: Model, described: Mapping[str, Any], trained: Trained | None
) -> None:
    """Write README.md, unless somebody else wrote the one that is there; `described` is config.json."""
    file = folder / CARD
    if file.is_symlink() or (file.exists() and not (file.is_file() and generated(file))):
        return
    tokenizer = (folder / "tokenizer.json").is_file()
    text = card(config, described, trained, tokenizer=tokenizer)
    replace_file(file, lambda aside: aside.write_text(text, encoding="utf-8"))


def card(
    config: Model, described: Mapping[str, Any], trained: Trained | None, *, tokenizer: bool
) -> str:
    """Return the text of a card; `tokenizer`: one lies beside the model."""
    names = f" ({', '.join(config.blocks[: config.depth])})" if config.blocks else ""
    rows = {
        "architecture": f"{config.arch}{names}, dim {config.dim}, depth {config.depth}, heads "
        f"{config.heads}, context {config.context}, vocabulary {config.vocab}",
        "parameters": f"{parameters(config):,}",
    }
    if trained:
        rows |= {"data": trained.data, "training tokens": f"{trained.tokens:,}"}
        loss = "not measured"
        if trained.val_loss is not None:
            loss = f"{trained.val_loss:.4f} nats per token"
        if trained.val_loss is not None and trained.val_bits_per_byte is not None:
            loss += f", {trained.val_bits_per_byte:.4f} bits per byte"
        rows["validation loss"] = loss
    data_license = trained.data_license if trained else UNKNOWN
    rows |= {
        "licence of the data": data_license,
        "written by": f"toeplix {described['toeplix_version']}",
    }
    table = "\n".join(f"| {name} | {_cell(value)} |" for name, value in rows.items())
    command = f"\n## Training\n\n```bash\n{trained.command}\n```\n" if trained else ""
    return (
        f"---\nlibrary_name: toeplix\nlicense: {UNKNOWN}\n"
        "pipeline_tag: text-generation\ntags:\n- toeplix\n---\n"
        f"<!-- {MARK}; take this line out to keep your edits -->\n\n"
        f"# {config.arch} language model, {_millions(parameters(config))} parameters\n\n"
        f"| | |\n|---|---|\n{table}\n{command}\n## Loading\n\n{_loading(described, tokenizer)}"
    )


def _loading(described: Mapping[str, Any], tokenizer: bool) -> str:
    ours = (
        "`toeplix.load(directory)`, `toeplix generate` and `toeplix serve` read this directory.\n"
    )
    if "architectures" not in described:  # quantized weights
        return ours
    names = "AutoModelForCausalLM, AutoTokenizer" if tokenizer else "AutoModelForCausalLM"
    lines = [
        f"from transformers import {names}",
        "",
        "model = AutoModelForCausalLM.from_pretrained(directory)",
    ]
    if tokenizer:
        lines.append("tokenizer = AutoTokenizer.from_pretrained(directory)")
    note = ""
    if "auto_map" in described:
        lines = ["import toeplix.hub  # registers the model with the Auto classes", *lines]
        note = (
            "Without toeplix, pass `trust_remote_code=True`: this runs the code in the directory. "
        )
        if tokenizer:
            note += (
                "The tokenizer needs no code: `PreTrainedTokenizerFast.from_pretrained(directory)` "
                "loads it without a question. "
            )
    code = "\n".join(lines)
    return f"```python\n{code}\n```\n\n{note}{ours}"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", r"\|").split())


def _millions(count: int) -> str:
    return f"{count / 1e6:.3g} million" if count >= 1e6 else f"{count:,}"
