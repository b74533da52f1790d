"""The ways of lookup take turns, each where it is compared."""

from rich.console import Console

from toeplix.profiling.bench import lookup


def test_ways_of_lookup(monkeypatch, capsys):
    monkeypatch.setattr(lookup, "PRODUCTS_FROM", 128)
    monkeypatch.setattr(lookup, "TOKENS", 128)
    console = Console(width=140)
    rows = lookup.lookup_rows(console, rounds=1, lengths=(64, 128))
    assert [(row["time"], row["backward"]) for row in rows] == [
        (64, False),
        (64, True),
        (128, False),
        (128, True),
    ]
    ways = {"tiles", "chunks", "products"}
    assert [ways & set(row) for row in rows] == [{"tiles"}] * 2 + [ways] * 2
    assert all(row["tiles"]["ratio"] == row["tiles"]["cpu_ratio"] == 1 for row in rows)
    assert all(row[way]["milliseconds"] > 0 for row in rows for way in ways & set(row))
    console.print(lookup.lookup_table(rows))
    assert "the time of tiles over others" in capsys.readouterr().out
