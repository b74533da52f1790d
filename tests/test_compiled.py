"""Runs compiled.py as its users would meet the package: without run-time type checks."""

import os
import subprocess
import sys
from pathlib import Path


def test_compiled():
    options = ["-p", "no:cacheprovider", "--show-capture=no"]
    command = [sys.executable, "-m", "pytest", *options, str(Path(__file__).parent / "compiled.py")]
    environment = os.environ | {"TOEPLIX_UNCHECKED": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
