"""How far a run is, as `state.json` of a checkpoint stores it, and where a run goes on."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toeplix.data import Store
from toeplix.files import printable, read_json, reading
from toeplix.training import checkpoints
from toeplix.training.processes import Processes
from toeplix.training.run import Run

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


def resumed(
    run: Run,
    folder: Path,
    store: Store,
    processes: Processes,
    say: Callable[[str], None],
    restart: bool,
) -> tuple[Progress, checkpoints.Snapshot | None]:
    """Return the newest whole checkpoint in `folder`, or the start. The first process looks for all."""
    fresh = Progress(data=_digest(store), processes=processes.count)
    snapshot = checkpoints.newest(folder, say, restart=restart) if processes.first else None
    (step,) = processes.total(snapshot.state["step"] if snapshot else 0)
    if not step:
        return fresh, None
    directory = folder / f"step-{int(step)}"
    state = read_json(directory / checkpoints.STATE)
    with reading(directory / checkpoints.STATE):
        found = Progress(**state)
    if found.data != fresh.data:
        raise ValueError(
            f"{run.data} is not the store that {directory} was trained on "
            f"({fresh.data} instead of {found.data}): give that one, or choose a new directory"
        )
    if found.processes != fresh.processes:
        raise ValueError(
            f"{directory} was trained by {found.processes} processes, not {fresh.processes}: "
            "start as many, or choose a new directory"
        )
    if found.step < run.steps:
        say(f"going on after step {found.step} of {run.steps} ({directory})")
    return found, checkpoints.Snapshot(directory, state)


def _digest(store: Store) -> str:
    """Return a digest of the contents of a store."""
    sums = {name: known["sha256"] for name, known in store.manifest["files"].items()}
    return hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()[:16]
