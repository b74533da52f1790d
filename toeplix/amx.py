"""Some virtual machines announce AMX and then trap on it: a product in bfloat16 ends the process.

The kernel grants the permission, so nothing but trying tells. Where the trial dies, oneDNN is told to do
without, in this process and in all that it starts. oneDNN reads the setting at its first product.
"""

import os
import subprocess
import sys
from pathlib import Path

TRIAL = (
    "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(a, a)"
)
LIMIT, BELOW_AMX = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16"


def avoid_broken_amx() -> None:
    """Try AMX once, before the first product in bfloat16; where there is no AMX this costs nothing."""
    cpu = Path("/proc/cpuinfo")
    if LIMIT in os.environ or not cpu.exists() or "amx_tile" not in cpu.read_text():
        return
    tried = subprocess.run([sys.executable, "-c", TRIAL], capture_output=True, check=False)
    os.environ[LIMIT] = BELOW_AMX if tried.returncode < 0 else "DEFAULT"
