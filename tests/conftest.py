"""Shapes written in signatures are checked in every test; runs are repeatable."""

import os
import signal

import pytest
import torch
from hypothesis import settings
from jaxtyping import config, install_import_hook

import tests.checked
from toeplix.amx import avoid_broken_amx

avoid_broken_amx()

if "TOEPLIX_UNCHECKED" not in os.environ:
    install_import_hook("toeplix", f"{tests.checked.__name__}.checked")

# a rule that somebody tuned on this machine must not decide what the tests see
os.environ["TOEPLIX_RULE"] = "/nowhere/paths.json"

# a shell starts background jobs with SIGINT ignored, and so would be what tests start and interrupt
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# processes side by side have a core each, and so has whatever they start
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)

# transformers replaces torch.linspace while it loads a model, and PyTorch remembers its constructors at
# the first use of a device: let that be now
with torch.device("meta"):
    torch.linspace(0, 1, 2)

# registers a device for the whole process when it is imported: test_devices.py runs it in one of its own
collect_ignore = ["pretend_cases.py"]
settings.register_profile("toeplix", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("toeplix")

# files of more than half a minute begin first, so that no process ends alone with one of them
LONG_FILES = (
    "test_interpreted", "test_compiled", "test_combinations", "test_devices", "test_bench_models",
    "test_smoke", "test_distributed", "test_exits", "test_command", "test_sequence_parallel",
    "test_report", "test_slice", "test_cluster", "test_loop", "test_document_blocks",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.stem not in LONG_FILES)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def unchecked():
    """As a user meets the package: without run-time type checks, which would refuse first."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def one_thread():
    """For modules of products so small that they only wait for the second."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
