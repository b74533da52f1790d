"""Benchmarks measure the right things: contenders are correct, numbers add up, files are whole."""

import json
import sys

import pytest
import torch
from rich.console import Console

from tests.ops.oracle import random_pair, spelled_out
from toeplix.ops import dispatch
from toeplix.profiling import timing
from toeplix.profiling.bench import decoding, operator, recurrent, tune
from toeplix.profiling.bench.alternatives import ALTERNATIVES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ALTERNATIVES)
@pytest.mark.parametrize("heads", [1, 3])
def test_the_alternatives_compute_the_same(name, heads):
    x, kernel = random_pair(2, 37, heads, 4)
    y = ALTERNATIVES[name].function(x, kernel)
    torch.testing.assert_close(y, spelled_out(x, kernel))


def test_contenders_take_turns():
    order = []
    times = timing.interleaved(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, seconds=0, least=2, most=2
    )
    assert order == [*"ab", *"aaaabbbb", *"aaaabbbb"], (
        "each runs once, then warms up and is timed in turn"
    )
    assert [len(taken) for taken in times.values()] == [2, 2], "one number a round"


def test_the_ratio_is_that_of_the_same_round():
    """A slow round of the machine falls on both."""
    assert timing.median_ratio([2.0, 20.0, 2.0], [1.0, 10.0, 1.0]) == 2


def _holding(megabytes):
    """Prepares nothing; the call then holds that much at once."""
    return lambda: torch.ones(megabytes, 2**18)


def test_peak_memory_counts_what_was_held():
    peak = timing.peak_extra_bytes(_holding, 64)
    if sys.platform.startswith("linux"):
        assert 60 * 2**20 < peak < 100 * 2**20
    else:
        assert peak is None, "only Linux tells the high-water mark of memory"


def _made(device, dtype):
    """Fails in a process with other defaults; tensors of the device `meta` need no hardware."""
    found = torch.ones(())
    assert (found.device.type, found.dtype) == (device, dtype)
    return lambda: found


def test_a_new_process_has_the_same_defaults():
    before = torch.get_default_dtype()
    try:
        for device, dtype in (("cpu", torch.float64), ("meta", torch.bfloat16)):
            torch.set_default_dtype(dtype)
            with torch.device(device):
                cost = timing.cost_apart(_made, device, dtype)
            assert cost.seconds > 0
    finally:
        torch.set_default_dtype(before)
    assert cost.peak_bytes is None, "memory of the host says nothing about another device"


def test_a_row_and_its_tables():
    rows = [
        operator.measure(operator.Size(1, time, 8, 1), backward, timing.Limits(1e-3, 1e-3), 0.0)
        for time in (128, 1024)
        for backward in (False, True)
    ]
    assert [row["path"] for row in rows] == ["blocked", "blocked", "fft", "fft"]
    assert set(rows[0]["ratios"]) == set(ALTERNATIVES)
    assert "scipy" not in rows[1]["ratios"], "scipy has no backward"
    assert all(row["limit"] > 0 for row in rows)
    console = Console(width=200, record=True)
    console.print(operator.operator_table(rows))
    console.print(operator.summary_table(rows))
    text = console.export_text()
    assert "blocked" in text
    assert "gathered" in text


def test_the_sizes_are_those_that_were_asked_for():
    assert len(operator.sizes(2**62)) == 44
    assert any(size.heads == size.dim for size in operator.sizes(operator.QUICK_ELEMENTS))
    assert {size.time for size in operator.sizes(operator.QUICK_ELEMENTS)} == set(operator.TIMES)


def test_decoding_rows(monkeypatch):
    monkeypatch.setattr(decoding, "CONTEXTS", (64, 2048))
    rows = decoding.decoding_rows(Console(quiet=True), dim=4)
    assert [row["context"] for row in rows] == [64, 2048]
    assert all(value > 0 for row in rows for value in row["microseconds"].values())
    assert decoding.decoding_table(rows).row_count == 2


def test_recurrent_products_alone(monkeypatch):
    """The command's document has the tables that `bench ops` has too."""
    monkeypatch.setattr(recurrent, "CASES", (recurrent.Case(1, 64, 4, 1),))
    monkeypatch.setattr(recurrent, "growth_rows", lambda seconds: [])
    monkeypatch.setattr(recurrent, "recurrent_memory_rows", lambda: iter(()))
    found = recurrent.run(Console(quiet=True), seconds=0)
    assert found["benchmark"] == "recurrent"
    assert [row["backward"] for row in found["beside_fft"]] == [False, True]
    assert found["growth"] == found["memory"] == []


def test_recurrent_rows_and_their_tables(monkeypatch):
    monkeypatch.setattr(recurrent, "CASES", (recurrent.Case(1, 40, 4, 2, asked=1.0),))
    monkeypatch.setattr(recurrent, "GROWTH_ELEMENTS", 2**10)
    rows = recurrent.recurrent_rows(Console(quiet=True), most=2**10, seconds=0)
    assert [row["backward"] for row in rows] == [False, True]
    assert not recurrent.recurrent_rows(Console(quiet=True), most=1, seconds=0)
    growth = recurrent.growth_rows(seconds=0, times=(64, 256))
    memory = list(recurrent.recurrent_memory_rows(time=512, dim=8))
    console = Console(width=120, record=True)
    console.print(*recurrent.recurrent_tables(rows, growth, memory))
    text = console.export_text()
    assert "(>= 1.0)" in text
    assert "256" in text


def test_the_contenders_of_the_recurrent_benchmark_compute_the_same():
    case = recurrent.Case(2, 70, 6, 2)
    ours, fft = (recurrent._call(name, case, backward=False)() for name in ("recurrent", "fft"))
    torch.testing.assert_close(ours, fft)


def test_tuning_writes_a_rule_that_is_followed(tmp_path, monkeypatch):
    monkeypatch.setenv("TOEPLIX_RULE", str(tmp_path / "deep" / "paths.json"))
    groups = {tune.PER_CHANNEL: (2, 4, 1), "4": (1, 1, 4), "8": (2, 1, 4)}
    monkeypatch.setattr(tune, "GROUPS", {n: tune.Group(*sizes) for n, sizes in groups.items()})
    file = tune.tune(Console(quiet=True), seconds=0, lengths=(16, 700))
    try:
        document = json.loads(file.read_text())
        dispatch.check(document["rule"])
        assert dispatch.current_rule()["cpu"] == document["rule"]["cpu"]
        bands = document["rule"]["cpu"][dispatch.AUTO]
        limits = [(band.get("channels"), band["columns"]) for band in bands]
        assert limits == [(1, None), (None, 4), (None, None)]
        assert [entry.name for entry in file.parent.iterdir()] == ["paths.json"], (
            "nothing half-written"
        )
    finally:
        dispatch.current_rule.cache_clear()


def test_boundaries_lie_between_the_lengths():
    measured = {64: {"a": 1.0, "b": 2.0}, 256: {"a": 3.0, "b": 2.0}}
    assert tune._boundaries(measured, ["a", "b"]) == [(128, "a"), (None, "b")]
