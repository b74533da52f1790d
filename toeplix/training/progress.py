"""How far a run is, as `state.json` of a checkpoint stores it."""

from dataclasses import dataclass, field
from typing import Any

from toeplix.files import printable

# of the fields of `Progress` that are not numbers
KINDS: dict[str, tuple[type, ...]] = {
    "first_loss": (int, float, type(None)),
    "lengths": (dict,),
    "scaler": (dict,),
    "data": (str,),
}


@dataclass(kw_only=True)
class Progress:
    """The state of a run that a checkpoint stores in addition to weights and optimizer state."""

    step: int = 0  # steps done
    tokens: int = 0  # labels trained on
    seconds: float = 0.0
    # since the last line of metrics.jsonl:
    nats: float = 0.0  # sum of losses
    labels: int = 0
    busy: float = 0.0  # seconds in steps
    waited: float = 0.0  # seconds of `busy` spent waiting for batches
    exchanged: float = 0.0  # bytes that mixers of divided sequences sent, over all processes
    first_loss: float | None = None
    lengths: dict[str, int] = field(default_factory=dict)  # bytes of the log files
    scaler: dict[str, Any] = field(default_factory=dict)  # state of the loss scaler, float16 only
    data: str = ""  # digest of the token store
    processes: int = 1

    def __post_init__(self) -> None:
        """Read from a file, whose fields may be of any kind."""
        for name, value in vars(self).items():
            kinds = KINDS.get(name, (int, float))
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise TypeError(f"field {name!r} must not be {printable(value)[:40]}")
        if not all(type(length) is int and length >= 0 for length in self.lengths.values()):
            raise ValueError("field 'lengths' must hold lengths of files")
