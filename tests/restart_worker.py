"""Started by torchrun with --max-restarts 1: one of the processes dies, torchrun starts all anew.

The run `whole` is left alone; in `killed` the last process ends itself at step 13 of its first life.
"""

import os
import signal
import sys
from pathlib import Path

import torch

from tests.toy import toy_run
from toeplix.data import Store
from toeplix.training.loop import fit
from toeplix.training.processes import joined

if __name__ == "__main__":
    torch.set_num_threads(1)
    store, out = Store.open(sys.argv[1]), Path(sys.argv[2])
    first_life = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    with joined() as processes:
        last = processes.rank == processes.count - 1

        def report(row):
            if row["step"] == 13 and last and first_life:
                os.kill(os.getpid(), signal.SIGKILL)

        fit(toy_run(store, parallel="fsdp"), out / "whole")
        fit(toy_run(store, parallel="fsdp"), out / "killed", report=report)
