"""What the tests run in processes of their own, to be killed, interrupted or kept from writing."""

import contextlib
import resource
import time
from multiprocessing.connection import Connection
from pathlib import Path

from toeplix.data import Progress, Recipe, build, building

SMALL = 2**11  # characters of a batch


def slow_build(recipe: Recipe, directory: Path) -> None:
    """Batch by batch, each one safe on disk, with time to be hit."""
    building.BATCH_CHARACTERS = SMALL
    build(recipe, directory, processes=1, every=0, report=_rest)


def _rest(progress: Progress) -> None:
    time.sleep(0.3 if progress.stage == "sha256" else 0.01)


def build_with_little_room(recipe: Recipe, directory: Path, room: int, told: Connection) -> None:
    """No file may grow beyond `room` bytes: what a full disk looks like to a process."""
    building.BATCH_CHARACTERS = SMALL
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    with contextlib.closing(told):
        try:
            build(recipe, directory, processes=1, every=0)
        except OSError as problem:
            told.send(str(problem))
