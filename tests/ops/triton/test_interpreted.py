"""Runs the kernels in Triton's interpreter, each file in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton has no wheel for this platform")

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
# torch.compile cannot trace run-time type checks
FILES = {
    "interpreted.py": {},
    "interpreted_recurrent.py": {},
    "interpreted_lookup.py": {},
    "interpreted_compiled.py": {"TOEPLIX_UNCHECKED": "1"},
    "interpreted_recurrent_compiled.py": {"TOEPLIX_UNCHECKED": "1"},
}


@pytest.mark.parametrize("file", FILES)
def test_interpreted(file):
    options = ["-p", "no:cacheprovider", "--show-capture=no"]
    command = [sys.executable, "-m", "pytest", *options, str(HERE / file)]
    environment = os.environ | {"TRITON_INTERPRET": "1"} | FILES[file]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
