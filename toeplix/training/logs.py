"""The logs of a run: metrics.jsonl, samples.txt, and experiment trackers such as tensorboard.

A checkpoint stores the lengths of the files. A run that resumes from it truncates them to these lengths,
so every line occurs exactly once.
"""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from toeplix import compat
from toeplix.data import Tokenizer
from toeplix.files import DamagedFile, check_input, field, parse_json
from toeplix.inference.generation import generate
from toeplix.inference.sampling import Sampling
from toeplix.model import LanguageModel
from toeplix.training.run import Run

METRICS, SAMPLES, TENSORBOARD = "metrics.jsonl", "samples.txt", "tensorboard"
SAMPLE_COUNT, SAMPLE_TOKENS = 2, 100
# every row has the first of these; one with a loss has those that belong to it
COLUMNS = {
    "step": ("tokens", "seconds"),
    "loss": ("lr", "grad_norm"),
    "val_loss": ("val_perplexity", "val_bits_per_byte"),
}


@runtime_checkable
class Tracker(Protocol):
    """An experiment tracker: one of accelerate's, or a class with the same methods."""

    def log(self, values: dict[str, Any], step: int | None) -> None: ...

    def finish(self) -> None: ...


class Logs:
    """The open log files and trackers; files are truncated to the lengths stored in the checkpoint."""

    def __init__(self, folder: Path, run: Run, step: int, lengths: dict[str, int]) -> None:
        self._trackers = [
            _tracker(name, folder, run, step) for name in filter(None, run.trackers.split(","))
        ]
        self._files = {}
        for name in (METRICS, SAMPLES):
            check_input(folder / name)
            file = self._files[name] = open(folder / name, "ab")  # noqa: SIM115 - closed below
            file.truncate(min(lengths.get(name, 0), file.tell()))

    def row(self, values: dict[str, Any]) -> None:
        self._write(METRICS, json.dumps(values, allow_nan=False) + "\n")
        numbers = {name: value for name, value in values.items() if name != "step"}
        for tracker in self._trackers:
            tracker.log(numbers, values["step"])

    def samples(self, step: int, texts: list[str]) -> None:
        parts = [f"--- step {step}, sample {number}\n{text}\n" for number, text in enumerate(texts)]
        self._write(SAMPLES, "".join(parts))

    def lengths(self) -> dict[str, int]:
        """Sync the files to disk and return their lengths in bytes."""
        for file in self._files.values():
            os.fsync(file.fileno())
        return {name: file.tell() for name, file in self._files.items()}

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        for tracker in self._trackers:
            tracker.finish()

    def _write(self, name: str, text: str) -> None:
        self._files[name].write(text.encode())
        self._files[name].flush()


def sample_texts(model: LanguageModel, tokenizer: Tokenizer, seed: int) -> list[str]:
    """Return texts that the model generates from the start token."""
    with torch.compiler.set_stance("force_eager"):  # shapes change at every decode step
        rows = generate(
            model,
            [[tokenizer.start]] * SAMPLE_COUNT,
            max_new_tokens=min(SAMPLE_TOKENS, model.config.context),
            sampling=Sampling(temperature=0.8, top_k=50),
            seed=seed,
            stop_tokens=[tokenizer.end],
        )
    # the vocabulary of a model may be larger than that of its tokenizer
    return [tokenizer.decode([each for each in row if each < tokenizer.vocab]) for row in rows]


def read(folder: Path, say: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl. A damaged line is an error, or said and left out."""
    file = folder / METRICS
    rows = []
    check_input(file)
    lines = file.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if number == len(lines) and not line.endswith(b"}"):
            continue  # nothing, or what a process that was killed was writing
        try:
            rows.append(_row(line))
        except (ValueError, TypeError, KeyError, OverflowError) as problem:
            why = f"field {problem} is missing" if isinstance(problem, KeyError) else problem
            message = f"{file}, line {number}, is damaged: {why}"
            if say is None:
                raise DamagedFile(f"{message}; delete that line to go on without it") from problem
            say(f"{message}; it is left out")
    return rows


def _row(line: bytes) -> dict[str, Any]:
    """A row: every value a number, and none missing that belongs to another."""
    row = compat.metrics_row(parse_json(line))
    field(row, "step", int, least=0)
    field(row, "tokens", int, least=0)
    for name, others in COLUMNS.items():
        for other in others if name in row else ():
            row[other]
    for name, value in row.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise TypeError(f"field {name!r} must be a number")
        math.isfinite(value)  # an integer beyond all floats is an OverflowError
    return row


def check_trackers(trackers: str) -> None:
    """Complain about names that are not known, or not installed, before anything is written."""
    for name in filter(None, trackers.split(",")):
        if name == TENSORBOARD:
            import torch.utils.tensorboard  # noqa: F401 - complains by itself
        else:
            _kind(name)


class _Tensorboard:
    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # hide what an interrupted run logged after its checkpoint
        self._writer = SummaryWriter(str(folder / TENSORBOARD), purge_step=step + 1)

    def log(self, values: dict[str, Any], step: int | None) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def finish(self) -> None:
        self._writer.close()


def _tracker(name: str, folder: Path, run: Run, step: int) -> Tracker:
    if name == TENSORBOARD:
        return _Tensorboard(folder, step)
    kind = _kind(name)
    place = {"logging_dir": str(folder)} if kind.requires_logging_directory else {}
    try:
        tracker = kind(folder.name or "toeplix", **place)
        tracker.start()
        tracker.store_init_configuration(run.to_dict())
    except ImportError as problem:
        raise ValueError(f"tracker {name} is not installed ({problem})") from problem
    return tracker


def _kind(name: str) -> Any:
    """The class of a tracker of accelerate."""
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    if name not in LOGGER_TYPE_TO_CLASS:
        known = ", ".join(sorted(LOGGER_TYPE_TO_CLASS))
        raise ValueError(f"trackers: {name!r} must be one of {known}, or leave all out: ''")
    return LOGGER_TYPE_TO_CLASS[name]
