"""Started by torchrun: `toeplix train` for each protocol, in every process. See test_train.py."""

import sys

import torch

from toeplix.cli import main
from toeplix.processes import joined

if __name__ == "__main__":
    torch.set_num_threads(1)
    out, *arguments = sys.argv[1:]
    with joined():  # once: processes that parted do not meet again
        for protocol in ("packed", "rows"):
            sys.argv = ["toeplix", "train", *arguments, "--protocol", protocol]
            sys.argv += ["--out", f"{out}/{protocol}"]
            main()
