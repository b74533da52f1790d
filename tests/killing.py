"""Kill a training run with SIGKILL at random moments, let it end, and compare every bit.

    python -m tests.killing DIRECTORY 20

The parent imports everything once and never computes; children are forked from it, so that a kill
costs no start. One thread, as its pool would not survive the fork.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # which the first step of AdamW would import in every child
from safetensors.torch import load_file

from tests.toy import toy_run, toy_store
from toeplix.data import Store
from toeplix.train import fit


def child(store: Path, folder: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        run = toy_run(Store.open(store), steps=60, save_every=4)
        fit(run, folder, say=lambda line: print(line, flush=True))
        status = 0
    finally:
        os._exit(status)


def bits(file: Path) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in load_file(file).items()}


def contents(folder: Path) -> dict[str, object]:
    """What must not depend on interruptions: weights, samples, rows but for their times."""
    timed = ("seconds", "tokens_per_second")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "weights": bits(folder / "model/model.safetensors"),
        "moments": bits(max(folder.glob("checkpoints/*/optimizer.safetensors"))),
        "samples": (folder / "samples.txt").read_bytes(),
        "rows": [{k: v for k, v in row.items() if k not in timed} for row in rows],
    }


def main(root: Path, times: int, seed: int = 0) -> None:
    torch.set_num_threads(1)
    store = toy_store(root).directory
    chosen = random.Random(seed)
    start = time.monotonic()
    assert os.waitpid(child(store, root / "whole"), 0)[1] == 0
    took = time.monotonic() - start
    truth = contents(root / "whole")
    kills = runs = 0
    while kills < times:
        runs += 1
        folder = root / f"killed-{runs}"
        while not (folder / "report.md").exists():
            pid = child(store, folder)
            if kills < times:
                time.sleep(chosen.uniform(0, 0.7 * took))
                os.kill(pid, signal.SIGKILL)  # nothing happens to one that has ended
            status = os.waitpid(pid, 0)[1]
            assert status in (0, signal.SIGKILL), f"the child ended with {status}"
            kills += status == signal.SIGKILL
        assert contents(folder) == truth, f"{folder} differs from {root / 'whole'}"
    print(f"{kills} kills in {runs} runs: the same bits as without")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
