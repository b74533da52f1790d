"""Batches: their order, and those that are made ahead, in a thread."""

import threading
from concurrent.futures import CancelledError
from dataclasses import replace

import pytest

from tests.toy import toy_run, toy_store
from toeplix.training.batches import Ahead, Batches, digest


def test_a_batch_that_is_being_made_does_not_hold_up_the_end(tmp_path):
    """Of two billion sequences: Python waits for its threads before the process ends."""
    store = toy_store(tmp_path)
    run = replace(toy_run(store), batch=2**31 - 1)
    ahead = Ahead(Batches(run, store, 0, 1), run.steps)
    cancelled = []

    def wait() -> None:
        with pytest.raises(CancelledError):
            ahead.of(0)
        cancelled.append(True)

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    ahead.close()
    waiting.join(10)
    assert cancelled


def test_the_order_of_the_data_apart_from_the_seed(tmp_path):
    """Another initialisation, the same batches."""
    store = toy_store(tmp_path)
    run = toy_run(store, seed=1)

    def first(run):
        return digest(Batches(run, store, 0, 1).of(0))

    assert first(run) == first(replace(run, seed=2, data_seed=1))
    assert first(run) != first(replace(run, seed=2))
