"""Tables of commands fit 100 columns: no line is longer, and no cell is truncated or wrapped."""

import io

import pytest
from rich.console import Console
from rich.measure import Measurement

from toeplix.cli.main import main
from toeplix.cli.spectrum import tables
from toeplix.cli.tables import WIDTH, table_console
from toeplix.profiling.bench import operator, recurrent, spectrum, training
from toeplix.profiling.bench.alternatives import ALTERNATIVES
from toeplix.profiling.progress import tracked

SIZES = {"time": 16384, "heads": 4, "batch": 16, "dim": 1024}
FILTER = {
    "layer": "blocks.15",
    "heads": 16,
    "head": 15,
    "kernels": 1,
    "kernel": 0,
    "kind": "recurrent",
    "taps": 16,
    "decays": 8,
    "index": -1023,
    "z_noise": -12.3,
    "start_mean": -512.0,
    "start_deviation": 16.0,
    "z_start": -12.3,
    "margin": 1.23e-05,
    "eps_index": -1023,
    "rank": 1024,
    "stable_rank": 123.4,
    "largest": 1.0,
    "condition": 1.234e15,
    "smallest_is_bound": True,
    "centre": 123.4,
    "receptive_field": 1024,
    "mode": 1023,
    "likeness": -0.99,
    "recency": {"16": 0.99},
    "states": 12,
    "all_states": 24,
    "status": "certified",
}


def drawn():
    """The widest tables, with numbers that are as long as they get."""
    ratios = dict.fromkeys(ALTERNATIVES, 123.4)
    product = SIZES | {"backward": True, "path": "halving", "milliseconds": 12345.67}
    product |= {"nanoseconds_per_element": 123.4, "limit": 0.99, "ratios": ratios}
    step = {"case": "toeplitz, 4 heads", "milliseconds": 123456, "tokens_per_second": 123456}
    step |= dict.fromkeys(("ratio", "published_ratio", "memory_ratio"), 12.34)
    step |= {"published_memory_ratio": 12.34, "limit": 0.99, "peak_bytes": 123 * 2**30}
    index = {"filters": 16, "taps": 65536, "seconds": 12.345, "certified": 16}
    index |= {"companion_over_ours": 1234.0, "uniform_over_ours": 12.3, "uniform_wrong": 16}
    beside = SIZES | {"backward": True, "milliseconds": 12345.67, "ratio": 12.34, "asked": 12.0}
    growth = [{"time": 1048576, "nanoseconds_per_element": 123.4}]
    yield from tables([FILTER, FILTER | {"kind": "free", "taps": 65536}])
    yield operator.operator_table([product])
    yield operator.summary_table([product | {"time": 4096, "heads": 1}])
    yield training.table([step], "training step")
    yield spectrum.table([index], {"symbols, 16 layers, 2^16 points": 1.234})
    yield from recurrent.recurrent_tables([beside], growth, [{"time": 16384, "peak": 3.21}])


@pytest.mark.parametrize("table", list(drawn()), ids=lambda table: str(table.title)[:40])
def test_a_table_fits(table):
    console = Console(width=1000)
    table.title = table.caption = None  # they are wrapped
    assert Measurement.get(console, console.options, table).maximum <= WIDTH


def test_a_file_has_100_columns(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert table_console().width == 100
    monkeypatch.setenv("COLUMNS", "72")
    assert table_console().width == 72


def test_the_list_of_experiments_fits(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["toeplix", "experiment", "list"])
    monkeypatch.setenv("COLUMNS", "100")
    main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 20
    assert max(map(len, lines)) <= 100


def test_progress_is_a_line_for_each_item_where_there_is_no_terminal(capsys):
    console = Console(file=io.StringIO())
    assert list(tracked([(1, 2), (3, 4)], "sets", console, lambda pair: f"{pair[0]} x {pair[1]}"))
    assert capsys.readouterr().err == "sets: 1 of 2: 1 x 2\nsets: 2 of 2: 3 x 4\n"
    assert console.file.getvalue() == ""
