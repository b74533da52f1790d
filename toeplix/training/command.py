"""The command that trains a run, and what a model card says about it (model_card.py).

Neither has absolute paths: a model directory is the same bytes wherever it was written.
"""

import dataclasses
import shlex
from pathlib import Path
from typing import Any

from toeplix.data import Store
from toeplix.data.sources import HUB
from toeplix.model_card import Trained
from toeplix.training.run import Run

WITHOUT_EFFECT = ("trackers", "log_every", "sample_every", "save_every", "keep_checkpoints")


def command(run: Run, data: str | None = None) -> str:
    """Return the command line of a run: settings that differ from their defaults."""
    words = ["toeplix", "train", "--data", data or _relative(run.data), "--out", "DIRECTORY"]
    for record in (run, run.model):
        for field in dataclasses.fields(record):
            value = getattr(record, field.name)
            # blocks are empty where all have one mixer, which `arch` names
            if field.name in ("model", "data", *WITHOUT_EFFECT) or value in (_default(field), ()):
                continue
            words += _option(field.name, value)
    return " ".join(shlex.quote(word) for word in words)


def trained(
    run: Run, store: Store, folder: Path, rows: list[dict[str, Any]], data_license: str
) -> Trained:
    """Return what the card of a finished run says; `rows` are its metrics."""
    recipe = store.manifest["recipe"]
    sources = [_relative(str(source)) for source in recipe.get("sources", ())]
    made_here = store.directory.resolve().parent == folder.resolve() and len(sources) == 1
    count = store.manifest["splits"]["train"]["tokens"]
    validation = [row for row in rows if "val_loss" in row]
    return Trained(
        data=f"{', '.join(sources) or _relative(run.data)}: {count:,} tokens, {run.protocol}",
        tokens=rows[-1]["tokens"] if rows else 0,
        val_loss=validation[-1]["val_loss"] if validation else None,
        val_bits_per_byte=validation[-1]["val_bits_per_byte"] if validation else None,
        command=command(run, sources[0] if made_here else None),
        data_license=data_license,
    )


def _option(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", ",".join(value) if isinstance(value, tuple) else str(value)]


def _default(field: "dataclasses.Field[Any]") -> Any:
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


def _relative(path: str) -> str:
    """Return a source or a directory; of an absolute path the last part."""
    kind = HUB if path.startswith(HUB) else ""
    bare = path.removeprefix(kind)
    return kind + (Path(bare).name if Path(bare).is_absolute() else bare)
