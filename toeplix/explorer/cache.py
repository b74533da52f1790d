"""A cache of loaded models and filters, kept until their files change."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError

from toeplix.checkpoint import WEIGHTS
from toeplix.data import Tokenizer
from toeplix.explorer.weights import Weights
from toeplix.files import reading
from toeplix.inference.loading import load_pretrained
from toeplix.model import LanguageModel
from toeplix.reports.filter_curves import Filters

MAX_KEPT = 3  # of each kind: models, filters, headers of weights


class Loaded(NamedTuple):
    """A model and the tokenizer beside it."""

    model: LanguageModel
    tokenizer: Tokenizer


class ModelCache:
    """Keeps the models and filters read last until their files change; hold `alone` to compute."""

    def __init__(
        self, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> None:
        self._load = partial(_loaded, device=device, dtype=dtype)
        self.alone = threading.Lock()
        self._reading = threading.Lock()
        self._kept: OrderedDict[tuple[Any, ...], Any] = OrderedDict()

    def loaded(self, checkpoint: Path) -> Loaded:
        found: Loaded = self._have(self._load, checkpoint)
        return found

    def filters(self, checkpoint: Path) -> Filters:
        found: Filters = self._have(Filters, checkpoint)
        return found

    def weights(self, checkpoint: Path) -> Weights:
        found: Weights = self._have(Weights, checkpoint)
        return found

    def _have(self, read: Callable[[Path], Any], checkpoint: Path) -> Any:
        stamp = (checkpoint / WEIGHTS).stat()
        key = (read, checkpoint, stamp.st_mtime_ns, stamp.st_size)
        with self._reading:
            if key not in self._kept:
                self._kept[key] = _read(read, checkpoint)
            self._kept.move_to_end(key)
            same = [other for other in self._kept if other[0] is read]
            for old in same[:-MAX_KEPT]:
                del self._kept[old]
            return self._kept[key]


def _read(read: Callable[[Path], Any], checkpoint: Path) -> Any:
    """What was read, or an error that names the checkpoint, whatever is wrong with its files."""
    with reading(checkpoint):
        return read_checked(partial(read, checkpoint))


def read_checked(read: Callable[[], Any]) -> Any:
    """Return what was read; an error of PyTorch or safetensors becomes a ValueError."""
    try:
        return read()
    except (RuntimeError, SafetensorError) as problem:
        raise ValueError(str(problem)) from problem


def _loaded(checkpoint: Path, **where: Any) -> Loaded:
    model, tokenizer, _ = load_pretrained(checkpoint, **where, decoding_layout=True)
    return Loaded(model, tokenizer)
