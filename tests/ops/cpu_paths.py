"""The paths that run on CPU tensors: all but "triton", which tests/ops/triton tests."""

import torch

from toeplix.ops.paths import PATHS, runnable

CPU_PATHS = {name: PATHS[name] for name in runnable(torch.empty(1, 1, 1, 1))}
