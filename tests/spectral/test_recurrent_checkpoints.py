"""Recurrent filters and those of lookup blocks in checkpoints, from the file to the page."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.spectral.witness import by_numerator
from toeplix.files import DamagedFile
from toeplix.reports import spectrum_page, spectrum_rows, spectrum_table
from toeplix.reports.filter_curves import Filters
from toeplix.reports.filters import amplitudes, layers, read
from toeplix.reports.symbol_plot import symbol_curve
from toeplix.spectral import RationalFilter, rational_index

DECAYS = torch.tensor([0.5, 0.75, 0.9])
CONFIG = {"arch": "toeplitz", "context": 48}


def weights(**change: Tensor) -> dict[str, Tensor]:
    """A model of four blocks: recurrent, recurrent lookup, free, free lookup."""
    generator = torch.Generator().manual_seed(0)
    mixer = "blocks.{}.token_mixer.".format
    found = {
        f"{mixer(0)}filters.0.free": torch.randn(2, 4, generator=generator),
        f"{mixer(0)}filters.0.weights": torch.randn(2, 3, generator=generator),
        f"{mixer(0)}filters.0.decays": DECAYS.clone(),
        f"{mixer(1)}weights": torch.randn(2, 3, generator=generator),
        f"{mixer(1)}decays": DECAYS.clone(),
        f"{mixer(1)}project.weight": torch.randn(4, 4, generator=generator),
        f"{mixer(2)}filters.0.kernel": torch.randn(1, 1, 48, generator=generator),
        f"{mixer(3)}kernel": torch.randn(2, 48, generator=generator),
    }
    return found | change


def checkpoint(folder: Path, found: dict[str, Tensor], config: dict[str, object] = CONFIG) -> Path:
    folder.mkdir(exist_ok=True)
    save_file(found, folder / "model.safetensors", metadata={"model": json.dumps(config)})
    return folder


def toeplix(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "toeplix", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_all_filters_are_found_by_name(tmp_path):
    found, config = read(checkpoint(tmp_path, weights()))
    assert config["context"] == 48
    assert [(layer.name, layer.kind, tuple(layer.kernel.shape)) for layer in found] == [
        ("blocks.0", "recurrent", (2, 1, 48)),
        ("blocks.1, lookup", "recurrent", (2, 1, 48)),
        ("blocks.2", "free", (1, 1, 48)),
        ("blocks.3, lookup", "free", (2, 1, 48)),
    ]
    assert [name for name, *_ in found[1].filters()] == [
        "blocks.1, lookup, head 0",
        "blocks.1, lookup, head 1",
    ]


def test_taps_follow_from_the_parameters():
    """w[l] = free[l] + sum of weights[j] sqrt(1 - rho_j^2) rho_j^l, by hand, at every lag."""
    state = weights()
    first, lookup = layers(state, section=6)[:2]
    for layer, prefix in (
        (first, "blocks.0.token_mixer.filters.0."),
        (lookup, "blocks.1.token_mixer."),
    ):
        for head in range(2):
            for lag in range(6):
                expected = sum(
                    weight * math.sqrt(1 - decay**2) * decay**lag
                    for weight, decay in zip(
                        state[f"{prefix}weights"][head].tolist(), DECAYS.tolist(), strict=True
                    )
                )
                if layer is first and lag < 4:
                    expected += float(state[f"{prefix}free"][head, lag])
                assert float(layer.kernel[head, 0, lag]) == pytest.approx(expected, rel=1e-12)
            exact = layer.exact(head, 0, "it")
            assert isinstance(exact, RationalFilter)
            torch.testing.assert_close(exact.taps(6), layer.kernel[head, 0])
    energy = amplitudes(torch.ones(1, 3), DECAYS) ** 2 / (1 - DECAYS.double() ** 2)
    torch.testing.assert_close(energy, torch.ones(1, 3).double())  # each has energy 1


def test_sections_without_a_context(tmp_path):
    for context, section in ((None, 512), (0, 512), ("many", 512), (10**9, 2**16)):
        found, _ = read(checkpoint(tmp_path, weights(), {"context": context}))
        assert found[0].kernel.shape[-1] == section


def test_rows_of_both_kinds(tmp_path):
    found, _ = read(checkpoint(tmp_path, weights()))
    rows = spectrum_rows.rows(found)
    assert [row["kind"] for row in rows] == ["recurrent"] * 4 + ["free"] * 3
    for row, filter in zip(rows, _exact(found), strict=True):
        assert row["status"] == "certified"
        assert 1 <= row["stable_rank"] <= row["section"] == 48
        assert row["half"] <= row["receptive_field"]
        if isinstance(filter, RationalFilter):
            numbers = (value.tolist() for value in (filter.free, filter.weights, filter.decays))
            assert row["index"] == -by_numerator(*numbers)
            assert "z_noise" not in row
            away = f"{row['index']} from start" if row["index"] else "at start"
            assert spectrum_table.index_change(row) == away
            assert row["all_states"] == max(0, row["taps"] - 1) + 3
            assert row["largest"] <= row["symbol_largest"] * (1 + 1e-9)
            assert spectrum_table.taps(row) == f"{row['taps']} + 3 decays"
        else:
            assert row["z_noise"] is not None
            assert row["start"] == ("ones" if "lookup" in row["layer"] else "kaiming")
            assert spectrum_table.states(row) == str(row["states"])


def _exact(found):
    return [
        layer.exact(head, number, name)
        for layer in found
        for name, head, number, _ in layer.filters()
    ]


@pytest.mark.slow
def test_from_a_checkpoint_to_a_page(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")  # names of filters are not folded
    done = toeplix("spectrum", checkpoint(tmp_path / "model", weights()), "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "blocks.1, lookup, head 1" in done.stdout
    assert done.stdout.count("certified") == 7
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("<tr>") == 8
    assert page.count("4 + 3 decays") == page.count("0 + 3 decays") == 2
    assert page.count("data:image/png") == len(spectrum_page.FIGURES)
    rows = json.loads((tmp_path / "out" / "rows.json").read_text())["rows"]
    assert {row["layer"] for row in rows if row["kind"] == "recurrent"} == {
        "blocks.0",
        "blocks.1, lookup",
    }


@pytest.mark.slow
def test_recurrent_filters_alone_have_figures(tmp_path):
    """No free filter is there to have a band of noise, and one head is zero."""
    state = {name: value for name, value in weights().items() if "blocks.1" in name}
    state["blocks.1.token_mixer.weights"][0] = 0
    found, config = read(checkpoint(tmp_path, state))
    rows = spectrum_rows.rows(found)
    assert [row["status"] for row in rows] == ["zero filter", "certified"]
    assert [len(spectrum_table.cells(row)) for row in rows] == [len(spectrum_table.COLUMNS)] * 2
    spectrum_page.write(found, rows, tmp_path / "out", "it", config)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        file.name for file in spectrum_page.outputs(tmp_path / "out")
    }


def test_the_explorer_reads_them(tmp_path):
    filters = Filters(checkpoint(tmp_path, weights()))
    row = filters.rows[2]
    assert (row["name"], row["kind"]) == ("blocks.1, lookup, head 0", "recurrent")
    exact = filters.exact("blocks.1, lookup", 0, 0)
    assert isinstance(exact, RationalFilter)
    assert row["index"] == rational_index(exact).index
    sent = filters.one("blocks.1, lookup", 0, 0)
    assert len(sent["taps"]) == 48
    assert sent["re"][0] == pytest.approx(exact.taps(1000).sum().item(), rel=1e-5)
    assert sent["re"][-1] == pytest.approx(
        exact.taps(1000)[::2].sum().item() * 2 - sent["re"][0], rel=1e-4
    )


@pytest.mark.parametrize("decay", [0.5, 0.9999, 1.0])
def test_drawn_symbols_are_closed_curves(decay):
    """The step between neighbouring points stays small beside a near pole, too."""
    one = torch.ones(1)
    curve = symbol_curve(RationalFilter(free=one, weights=one, decays=one * decay), normalise=True)
    assert curve.isfinite().all()
    assert curve[0] == curve[-1]
    if decay < 1:
        steps = (curve[1:] - curve[:-1]).abs()
        assert steps.max() < 0.02
        assert curve.abs().max() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"blocks.1.token_mixer.decays": torch.ones(4)}, r"has free \(2, 0\), weights \(2, 3\)"),
        ({"blocks.1.token_mixer.decays": torch.ones(1, 3)}, r"and decays \(1, 3\)"),
        ({"blocks.0.token_mixer.filters.0.free": torch.ones(3, 4)}, r"has free \(3, 4\)"),
        ({"blocks.0.token_mixer.filters.0.decays": DECAYS + 1}, r"decays must be in \[0, 1\]"),
        ({"blocks.0.token_mixer.filters.0.decays": DECAYS * math.nan}, r"decays must be in"),
        ({"blocks.9.token_mixer.filters.0.free": torch.ones(1, 4)}, "has free but no weights and"),
        ({"blocks.0.token_mixer.filters.0.weights": torch.ones(2, 3).int()}, "is no filter, but"),
    ],
)
def test_damaged_parameters_are_named(tmp_path, change, words):
    with pytest.raises(DamagedFile, match=words):
        read(checkpoint(tmp_path, weights(**change)))


def test_weights_of_other_mixers_are_no_filters():
    assert layers({"blocks.0.token_mixer.weights": torch.ones(2, 3)}) == []
    assert layers({"head.weights": torch.ones(2, 3), "head.decays": torch.ones(3)}) == []


def test_weights_that_are_not_finite(tmp_path):
    broken = weights()
    broken["blocks.1.token_mixer.weights"][1, 2] = math.nan
    found, _ = read(checkpoint(tmp_path, broken))
    with pytest.raises(ValueError, match=r"^blocks.1, lookup, head 1 has nan in weights\[2\]$"):
        spectrum_rows.rows(found)
    rows = Filters(tmp_path).rows
    assert [row["status"] for row in rows][2:4] == ["certified", "not finite"]
