"""Help needs no torch, which takes seconds to import."""

import subprocess
import sys

import pytest

import toeplix

HEAVY = {"torch", "transformers", "datasets", "matplotlib", "numpy", "scipy"}

# one process for all commands: what the help of any of them imports is there at the end
SHOW_ALL_HELP = """
import sys
import typer
from toeplix.cli.main import app

root = typer.main.get_command(app)

def show(command, words):
    root.main([*words, "--help"], prog_name="toeplix", standalone_mode=False)
    print("command", *words, file=sys.stderr)
    for name, each in getattr(command, "commands", {}).items():
        show(each, [*words, name])

show(root, [])
print("loaded", *sys.modules, file=sys.stderr)
"""


def run(code: str) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_the_help_of_every_command_imports_no_torch():
    *shown, loaded = run(SHOW_ALL_HELP).splitlines()
    assert {"command", "command train", "command bench ops", "command data build"} <= set(shown)
    assert not HEAVY & {name.partition(".")[0] for name in loaded.split()}


@pytest.mark.parametrize(
    "module", ["toeplix", "toeplix.config", "toeplix.training.run", "toeplix.training.presets"]
)
def test_records_are_described_without_torch(module):
    run(f"import sys, {module}; assert 'torch' not in sys.modules")


def test_public_names_are_there_when_they_are_used():
    run(
        "import toeplix, sys\n"
        "assert set(toeplix.__all__) <= set(dir(toeplix))\n"
        "assert toeplix.ops.toeplitz is toeplix.toeplitz\n"
        "assert all(hasattr(toeplix, name) for name in toeplix.__all__)\n"
        "from toeplix import *\n"
        "assert Model(dim=8).dim == 8 and callable(build)\n"
    )


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = toeplix.nothing
