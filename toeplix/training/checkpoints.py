"""Checkpoints of a training run: complete or absent, and verified before they are used.

    step-400/model.safetensors, config.json   written by `toeplix.save`, readable by `toeplix.load`
    step-400/optimizer.safetensors            optimizer state of AdamW, by the names of the weights
    step-400/state.json                       step, tokens, seconds, lengths of the logs
    step-400/manifest.json                    bytes and sha256 of the others

All files are written to a temporary directory and synced to disk, then the directory is renamed.
Nothing is pickled.
"""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from toeplix.checkpoint import CONFIG, WEIGHTS, contents, fill, restored, save_weights
from toeplix.files import DamagedFile, field, read_json, sha256
from toeplix.files.tensors import save_file
from toeplix.model import LanguageModel
from toeplix.training.distributed import part

OPTIMIZER, STATE, MANIFEST = "optimizer.safetensors", "state.json", "manifest.json"
FILES = (WEIGHTS, CONFIG, OPTIMIZER, STATE)
ADAMW = ("step", "exp_avg", "exp_avg_sq")  # its state of a weight


class Snapshot(NamedTuple):
    """A checkpoint whose files were verified."""

    directory: Path
    state: dict[str, Any]


def write(
    folder: Path,
    model: LanguageModel,
    memory: dict[str, Tensor],
    state: dict[str, Any],
    keep: int,
) -> Path:
    """Write `folder/step-N`, with `memory` the optimizer state; delete all but the last `keep`."""
    target = folder / f"step-{state['step']}"
    aside = folder / f".{target.name}"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(aside, ignore_errors=True)  # left by a process that was killed
    try:
        save_weights(model, aside)
        save_file(memory, aside / OPTIMIZER)
        (aside / STATE).write_text(json.dumps(state) + "\n")
        files = {
            file.name: {"bytes": file.stat().st_size, "sha256": sha256(file)}
            for file in sorted(aside.iterdir())
        }
        (aside / MANIFEST).write_text(json.dumps(files, indent=1) + "\n")
        for file in [*aside.iterdir(), aside]:
            _to_disk(file)
        if target.exists():
            shutil.rmtree(target)
        aside.rename(target)
        _to_disk(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.rmdir()  # of the first checkpoint
        raise
    for old in _steps(folder)[:-keep]:
        shutil.rmtree(old)
    return target


def newest(folder: Path, say: Callable[[str], None], *, restart: bool = False) -> Snapshot | None:
    """The last checkpoint that is whole, None if there is none at all.

    Damaged ones are named and kept under another name. Where all of them are damaged this is an error,
    and nothing is touched, unless `restart` allows to start over.
    """
    damaged: dict[Path, str] = {}
    found = None
    for directory in reversed(_steps(folder)):
        trouble = _trouble(directory)
        if trouble is None:
            found = Snapshot(directory, read_json(directory / STATE))
            break
        damaged[directory] = trouble
    if damaged and found is None and not restart:
        listed = ", ".join(f"{each.name} ({trouble})" for each, trouble in damaged.items())
        raise DamagedFile(
            f"{folder} has no checkpoint to go on from, all are damaged: {listed}; nothing was changed: "
            "copy one back from elsewhere, or start over at step 0 with --restart, which keeps them"
        )
    for directory, trouble in damaged.items():
        away = _kept(directory)
        directory.rename(away)
        then = f"using {found.directory.name} before it" if found else "starting over at step 0"
        say(f"{directory} is damaged ({trouble}): kept as {away.name}, {then}")
    return found


def _kept(directory: Path) -> Path:
    """A name for a damaged checkpoint that no other one has."""
    away, number = directory.with_name(f"damaged-{directory.name}"), 1
    while away.exists():
        number += 1
        away = directory.with_name(f"damaged-{directory.name}-{number}")
    return away


def last(folder: Path, before: int | None = None) -> str:
    """Return a sentence that names the newest checkpoint, of a step below `before`, for messages."""
    found = [each for each in _steps(folder) if before is None or _number(each) < before]
    if found:
        return f"the last good checkpoint is {found[-1]}"
    return "there is no earlier checkpoint" if _steps(folder) else "there is no checkpoint yet"


def moments(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer state, with keys `NAME:WHAT` for every weight."""
    return {
        f"{name}:{what}": value.contiguous()
        for name, weight in model.named_parameters()
        for what, value in optimizer.state.get(weight, {}).items()
    }


def restore_weights(snapshot: Snapshot, model: LanguageModel) -> None:
    """Of a model that is not yet divided."""
    weights = contents(snapshot.directory / WEIGHTS, check=False)[0]
    fill(model, restored(weights, model.config), snapshot.directory)


def restore_moments(
    snapshot: Snapshot, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Load the optimizer state of a checkpoint; each process keeps its shard."""
    weights = dict(model.named_parameters())
    file = snapshot.directory / OPTIMIZER
    stored = contents(file, check=False)[0]
    for key, value in stored.items():
        name, _, what = key.rpartition(":")
        if name not in weights or what not in ADAMW:
            raise DamagedFile(f"{file} is damaged: {key} is not the state of a weight")
        weight = weights[name]
        if missing := [each for each in ADAMW if f"{name}:{each}" not in stored]:
            raise DamagedFile(f"{file} is damaged: {name}:{missing[0]} is missing")
        shape = () if what == "step" else weight.shape
        if value.shape != shape or value.dtype != torch.float32:
            raise DamagedFile(
                f"{file} is damaged: {key} is {tuple(value.shape)} of {value.dtype}, "
                f"not {tuple(shape)} of torch.float32"
            )
        # AdamW counts its steps on the device only if it is fused there
        counted = value.to(weight.device if weight.is_cuda else "cpu")
        optimizer.state[weight][what] = part(value, weight) if value.ndim else counted


def _steps(folder: Path) -> list[Path]:
    found = folder.iterdir() if folder.is_dir() else []
    named = [each for each in found if re.fullmatch(r"step-\d+", each.name)]
    return sorted(named, key=_number)


def _number(directory: Path) -> int:
    return int(directory.name.removeprefix("step-"))


def _trouble(directory: Path) -> str | None:
    try:
        files = read_json(directory / MANIFEST)
        for name in FILES:
            known = files[name]
            if (directory / name).stat().st_size != known["bytes"]:
                return f"{name} is not {known['bytes']} bytes long"
            if sha256(directory / name) != known["sha256"]:
                return f"the sha256 of {name} disagrees"
        step = field(read_json(directory / STATE), "step", int, least=1)
        if directory.name != f"step-{step}":
            return f"{STATE} is of step {step}"
    except FileNotFoundError as problem:
        return f"{Path(problem.filename).name} is missing"
    except OSError as problem:
        return f"it cannot be read: {problem.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} cannot be read"
    return None


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
