"""Runs the files named compiled.py as users would meet the package: without run-time type checks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


@pytest.mark.parametrize("file", ["ops/compiled.py", "compiled.py"])
def test_compiled(file):
    options = ["-p", "no:cacheprovider", "--show-capture=no"]
    command = [sys.executable, "-m", "pytest", *options, str(HERE / file)]
    environment = os.environ | {"TOEPLIX_UNCHECKED": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
