"""A token store, and a run that nothing happened to, once for every module of tests."""

import pytest

from tests.toy import toy_run, toy_store
from toeplix.training.loop import fit


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def whole(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    fit(toy_run(store), folder)
    return folder
