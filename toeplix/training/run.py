"""The record `Run`: how a model is trained. It is frozen and varied only by `replace`.

    run = Run(model=Model(dim=256, depth=4), data="runs/python/store", steps=1000)
    longer = replace(run, steps=2000)

The help text of each field is also shown by `toeplix train --help`.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toeplix import compat
from toeplix.config import Model
from toeplix.records import MAX_SEED, check_fields

CHOICES: dict[str, tuple[str, ...]] = {
    "protocol": ("packed", "padded"),
    "schedule": ("linear", "cosine", "constant"),
    "precision": ("float32", "bfloat16", "float16"),
    "val_documents": ("all", "even", "odd"),
    "parallel": ("ddp", "fsdp", "sequence", "sequence+fsdp"),
}
MIN_VALUES = {
    "warmup": 0,
    "seed": 0,
    "data_seed": -1,
    "eval_every": 0,
    "sample_every": 0,
    "sequence_processes": 0,
}  # other integers: 1
MAX_VALUES = {"seed": MAX_SEED, "data_seed": MAX_SEED}
# leave the weights alone; that the data are the same ones is checked by their sha256
FIELDS_WITHOUT_EFFECT = (
    "data",
    "val_documents",
    "save_every",
    "keep_checkpoints",
    "log_every",
    "sample_every",
    "trackers",
)


def _means(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True, kw_only=True)
class Run:
    """A training run: its result is a function of this record and of the number of processes."""

    model: Model = field(default_factory=Model)
    data: str = field(metadata={"help": "A token store, as `toeplix data build` makes it."})
    protocol: str = _means(
        "packed", "Batches: documents packed end to end, or padded, one document per sequence."
    )
    steps: int = _means(1000, "Optimizer steps.")
    batch: int = _means(
        16, "Sequences of `context` tokens per process and gradient accumulation step."
    )
    grad_accum_steps: int = _means(1, "Gradient accumulation: batches per optimizer step.")
    lr: float = _means(5e-4, "Peak learning rate.")
    filter_lr: float = _means(
        0.0, "Peak learning rate of implicit filters (Hyena's); 0: that of the other weights."
    )
    warmup: int = _means(100, "Linear warmup steps of the learning rate.")
    schedule: str = _means(
        "linear", "Learning rate schedule after warmup: linear, cosine or constant."
    )
    weight_decay: float = _means(0.0, "AdamW weight decay, on all weights.")
    beta1: float = _means(0.9, "AdamW beta1.")
    beta2: float = _means(0.999, "AdamW beta2.")
    max_grad_norm: float = _means(1.0, "Clip the gradient norm at this value; 0: never.")
    precision: str = _means(
        "float32", "Autocast dtype: float32, bfloat16 or float16 (weights stay float32)."
    )
    compile: bool = _means(False, "Compile blocks with torch.compile.")
    gradient_checkpointing: bool = _means(
        False, "Recompute activations in the backward pass instead of keeping them."
    )
    parallel: str = _means(
        "ddp",
        "Processes share rows: ddp (replicated) or fsdp (sharded weights and optimizer state), or the "
        "positions of a row: sequence (replicated) or sequence+fsdp.",
    )
    sequence_processes: int = _means(
        0, "Processes that divide a row, with --parallel sequence; 0: all. Others have other rows."
    )
    seed: int = _means(0, "Random seed of initialisation, dropout and data order.")
    data_seed: int = _means(-1, "Random seed of the data order; -1: same as seed.")
    eval_every: int = _means(500, "Steps between evaluations on the validation split; 0: never.")
    eval_sequences: int = _means(256, "Validation sequences per evaluation.")
    val_documents: str = _means(
        "all",
        "Validation documents that are evaluated: all, or those of even or odd number, so that settings "
        "can be chosen on other documents than are reported.",
    )
    save_every: int = _means(500, "Steps between checkpoints.")
    keep_checkpoints: int = _means(2, "Checkpoints to keep; older ones are deleted.")
    log_every: int = _means(10, "Steps between lines of metrics.jsonl.")
    sample_every: int = _means(500, "Steps between text samples; 0: never.")
    trackers: str = _means(
        "tensorboard", "Experiment trackers: tensorboard,wandb,... (any that accelerate supports)."
    )

    def __post_init__(self) -> None:
        if not isinstance(self.model, Model):
            raise TypeError(f"model={self.model!r} must be a Model")
        if not isinstance(self.data, str) or not self.data:
            raise ValueError(f"data={self.data!r} must name a token store")
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if each.type is float and isinstance(value, int | float) and not 0 <= value < math.inf:
                raise ValueError(f"{each.name}={value!r} must be a number of at least 0")
        check_fields(self, CHOICES, MIN_VALUES, MAX_VALUES)
        if self.lr == 0:
            raise ValueError("lr=0.0 must be above 0")
        for name in ("beta1", "beta2"):
            if getattr(self, name) >= 1:
                raise ValueError(f"{name}={getattr(self, name)} must be below 1")
        if self.sequence_processes and not self.divides_sequences:
            raise ValueError(
                f"sequence_processes={self.sequence_processes} has no effect on "
                f"parallel={self.parallel!r}: leave it out, or choose parallel='sequence'"
            )
        if self.warmup > self.steps:
            raise ValueError(f"warmup={self.warmup} must be at most steps={self.steps}")
        if not isinstance(self.trackers, str):
            raise TypeError(
                f"trackers={self.trackers!r} must be names with commas between, or none"
            )

    @property
    def divides_sequences(self) -> bool:
        """Whether the positions of a row are divided among processes."""
        return self.parallel.startswith("sequence")

    @property
    def digest(self) -> str:
        """A hash of this record, 16 hexadecimal digits."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "Run":
        """Fields that are not known are named; those that are left out take their defaults."""
        if isinstance(record, Mapping):
            record = compat.run_record(record)
        model = record.get("model", {}) if isinstance(record, Mapping) else {}
        for kind, given in ((cls, record), (Model, model)):
            if not isinstance(given, Mapping):
                raise TypeError(f"settings of {kind.__name__} are a record, not {given!r:.40}")
            known = {each.name for each in dataclasses.fields(kind)}
            if unknown := sorted(set(given) - known):
                raise ValueError(f"{kind.__name__} has no setting {', '.join(unknown)}")
        if "data" not in record:
            raise ValueError("Run has no 'data': it names a token store")
        return cls(**{**record, "model": Model(**model)})

    def differences(self, other: "Run") -> list[str]:
        """Return, as text, the settings that differ from `other` and change the trained weights."""
        here, there = self.to_dict(), other.to_dict()
        here, there = here | here.pop("model"), there | there.pop("model")
        return [
            f"{name}={value!r} instead of {there[name]!r}"
            for name, value in here.items()
            if value != there[name] and name not in FIELDS_WITHOUT_EFFECT
        ]
