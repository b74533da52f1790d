"""Kill a training run with SIGKILL at random moments, let it end, and compare every bit.

    python -m tests.kill_worker DIRECTORY 20
    python -m tests.kill_worker DIRECTORY 20 2 fsdp     two processes, each with a part of the model

The parent imports everything once and never computes; children are forked from it, so that a kill
costs no start. One thread, as its pool would not survive the fork. Of several processes one is killed
first, then the others, as torchrun ends them.
"""

import json
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch
import torch._dynamo  # which the first step of AdamW would import in every child
from safetensors.torch import load_file

from tests.toy import toy_run, toy_store
from toeplix.data import Store
from toeplix.training.loop import fit


class Case(NamedTuple):
    store: Path
    processes: int = 1
    parallel: str = "ddp"


def children(case: Case, folder: Path) -> list[int]:
    """Processes of one run, as torchrun would start them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": case.processes}
    return [_child(case, folder, place | {"RANK": rank}) for rank in range(case.processes)]


def _child(case: Case, folder: Path, place: dict[str, object]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.environ.update({name: str(value) for name, value in place.items()})
        run = toy_run(Store.open(case.store), steps=60, save_every=4, parallel=case.parallel)
        fit(run, folder, say=lambda line: print(line, flush=True))
        status = 0
    finally:
        os._exit(status)


def bits(file: Path) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in load_file(file).items()}


def contents(folder: Path) -> dict[str, object]:
    """What must not depend on interruptions: weights, samples, rows but for their times."""
    timed = ("seconds", "tokens_per_second", "waiting")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "weights": bits(folder / "model/model.safetensors"),
        "moments": bits(max(folder.glob("checkpoints/*/optimizer.safetensors"))),
        "samples": (folder / "samples.txt").read_bytes(),
        "rows": [{k: v for k, v in row.items() if k not in timed} for row in rows],
    }


def ended(pids: list[int]) -> list[int]:
    return [os.waitpid(pid, 0)[1] for pid in pids]


def main(root: Path, times: int, processes: int = 1, parallel: str = "ddp") -> None:
    torch.set_num_threads(1)
    case = Case(toy_store(root).directory, processes, parallel)
    chosen = random.Random(0)
    start = time.monotonic()
    assert set(ended(children(case, root / "whole"))) == {0}
    took = time.monotonic() - start
    truth = contents(root / "whole")
    kills = runs = 0
    while kills < times:
        runs += 1
        folder = root / f"killed-{runs}"
        while not (folder / "summary.md").exists():
            pids = children(case, folder)
            killing = kills < times
            if killing:
                time.sleep(chosen.uniform(0, 0.7 * took))
                for pid in chosen.sample(pids, len(pids)):
                    os.kill(pid, signal.SIGKILL)  # nothing happens to one that has ended
                    time.sleep(chosen.uniform(0, 0.02))
            statuses = ended(pids)
            # of several, one may have found that another is gone
            assert killing or set(statuses) == {0}, f"the processes ended with {statuses}"
            kills += signal.SIGKILL in statuses
        assert contents(folder) == truth, f"{folder} differs from {root / 'whole'}"
    print(f"{kills} kills in {runs} runs: the same bits as without")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:4]), *sys.argv[4:])
