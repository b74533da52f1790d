"""`toeplix spectrum` from a checkpoint to the page."""

import json
import math
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from toeplix import Model, build, save
from toeplix.files import DamagedFile
from toeplix.profiling.bench import spectrum as bench
from toeplix.reports import filters as layers_module
from toeplix.reports import spectrum_page, spectrum_rows, spectrum_table
from toeplix.reports.errata import TABLE, published_rule, sampled, table
from toeplix.reports.filters import Layer, layers

pytestmark = pytest.mark.slow

SMALL = {"arch": "toeplitz", "filter": "free", "vocab": 20, "context": 32, "dim": 8, "depth": 2}


def toeplix(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "toeplix", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_from_a_checkpoint_to_a_page(tmp_path):
    torch.manual_seed(0)
    model = build(Model.paper(**SMALL))
    save(model, tmp_path / "model")
    done = toeplix("spectrum", tmp_path / "model", "--out", tmp_path / "seen")
    assert done.returncode == 0, done.stderr
    assert "blocks.1, head 3" in done.stdout
    written = {file.name for file in (tmp_path / "seen").iterdir()}
    pictures = {f"{name}.{kind}" for name in spectrum_page.FIGURES for kind in ("svg", "png")}
    assert written == {"index.html", "rows.json", *pictures}
    rows = json.loads((tmp_path / "seen" / "rows.json").read_text())["rows"]
    assert len(rows) == 8
    for row, kernel in zip(rows, _kernels(model), strict=True):
        zeros = abs(np.roots(kernel.double().numpy()[::-1]))
        assert (row["index"], row["status"]) == (-int((zeros < 1).sum()), "certified")
        assert row["z_noise"] == row["z_start"] != 0
    text = (tmp_path / "seen" / "index.html").read_text()
    parser = Cells()
    parser.feed(text)
    assert parser.cells.count("certified") == 8
    assert text.count("data:image/png") == 6


def _kernels(model):
    return [kernel for layer in layers(model) for *_, kernel in layer.filters()]


class Cells(HTMLParser):
    """The text of every table cell."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []

    def handle_data(self, data: str) -> None:
        self.cells.append(data.strip())


@pytest.mark.parametrize(
    ("change", "status", "start"),
    [
        ({}, "certified", "decay"),
        ({"heads": 2}, "certified", "decay"),
        ({"kernels": 2}, "zero filter", "decay"),
        ({"sequential": 2, "filter_init": "kaiming"}, "certified", "kaiming"),
        ({"frozen": "ones"}, "not fredholm within eps", "ones"),
        ({"frozen": "random"}, "certified", "kaiming"),
    ],
)
def test_every_kind_of_model(change, status, start, tmp_path):
    torch.manual_seed(1)
    config = Model(**SMALL, **change)
    found = layers(build(config))
    rows = spectrum_rows.rows(found, start)
    assert rows[0]["status"] == status
    written = spectrum_page.write(found, rows, tmp_path, "it", {}).read_text()
    assert written.count("<tr>") == len(rows) + 1
    json.loads((tmp_path / "rows.json").read_text())


def test_a_row_says_where_the_index_went():
    """From decaying filters there is no spread to measure by, and the distance is given."""
    shifted = torch.zeros(1, 1, 16)
    shifted[0, 0, 3] = 1.0
    row = spectrum_rows.rows([Layer(name="a", kernel=shifted)], "decay")[0]
    assert (row["index"], row["z_start"], spectrum_table.index_change(row)) == (
        -3,
        None,
        "-3 from start",
    )
    assert spectrum_table.nearest_shift(row) == "3 (+1.00)"
    assert spectrum_table.condition(row) == "singular"
    assert spectrum_table.energy_in(row, 16) == "100%"
    assert spectrum_table.energy_in(row, 2) == "0%"


def test_bad_weights_are_named(tmp_path):
    model = build(Model(**SMALL, heads=2))
    kernel = layers(model)[1].kernel  # shares its memory with the model
    kernel[1, 0, 5] = math.inf
    with pytest.raises(ValueError, match=r"blocks\.1, head 1 has inf at tap 5"):
        spectrum_rows.rows(layers(model))
    kernel[1, 0, 5] = math.nan
    save(model, tmp_path)
    done = toeplix("spectrum", tmp_path)
    assert done.returncode == 2
    assert done.stderr == "toeplix: blocks.1, head 1 has nan at tap 5\n"
    assert not (tmp_path / "spectrum").exists()
    with pytest.raises(ValueError, match="all filters"):
        spectrum_rows.rows([Layer(name="a", kernel=torch.zeros(1, 1, 4))])


def test_every_column_is_explained_under_its_table(tmp_path):
    assert set(spectrum_table.MEANINGS) == set(spectrum_table.COLUMNS) - {"filter"}
    save(build(Model(**SMALL)), tmp_path)
    shown = " ".join(toeplix("spectrum", tmp_path, "--no-figures").stdout.split())
    for column in spectrum_table.MEANINGS:
        assert f"{column}: " in shown


def test_bad_arguments():
    for arguments, words in (
        (["spectrum"], "name a checkpoint"),
        (["spectrum", "x", "--errata"], "--errata needs no checkpoint"),
    ):
        done = toeplix(*arguments)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert words in done.stderr


def test_the_benchmark_counts_what_is_wrong():
    generator = torch.Generator().manual_seed(0)
    row = bench.measure(torch.randn(3, 512, generator=generator), seconds=0.0)
    assert (row["certified"], row["filters"]) == (3, 3)
    assert row["companion_over_ours"] is not None
    assert 0 <= row["uniform_wrong"] <= 3
    assert bench.table([row], {"other": 1.0}).row_count == 2


def test_the_published_rule_is_wrong_by_its_crossings():
    """The shift: 1/z turns clockwise and crosses once a turn, a step counted the wrong way round."""
    kernel = torch.zeros(1, 9, dtype=torch.float64)
    kernel[0, 8] = 1.0
    assert sampled(kernel, 50_000) == -8
    assert published_rule(kernel, 50_000) == -8  # 2 x 8 steps of 50,000 are not seen
    few = published_rule(
        kernel, 64
    )  # with steps of an eighth of a turn each crossing costs a quarter
    assert few == -6
    noise = torch.randn(20, 512, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    bias = published_rule(noise).mean() - sampled(noise, 2**18).mean()
    assert 3 < bias < 9  # towards 0


def test_the_table_has_sixteen_layers_a_row():
    assert {len(values) for values in table().values()} == {16}
    assert min(table()["untrained"]) < -(TABLE["untrained"][0] - 1)  # the caption's 512 cannot be


def test_files_of_the_user_stay(tmp_path):
    save(build(Model(**SMALL)), tmp_path / "model")
    out = tmp_path / "out"
    out.mkdir()
    (out / "index.html").write_text("mine")
    done = toeplix("spectrum", tmp_path / "model", "--out", out)
    assert done.returncode == 2
    assert "index.html was not written by toeplix" in done.stderr
    assert [(file.name, file.read_text()) for file in out.iterdir()] == [("index.html", "mine")]
    for more in (["--overwrite"], []):
        assert toeplix("spectrum", tmp_path / "model", "--out", out, *more).returncode == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int32])
def test_filters_of_other_kinds(tmp_path, dtype):
    model = build(Model(**SMALL))
    kernels = {name: value for name, value in model.state_dict().items() if "kernel" in name}
    save_file(
        {name: value.to(dtype) for name, value in kernels.items()}, tmp_path / "model.safetensors"
    )
    done = toeplix("spectrum", tmp_path, "--no-figures")
    if dtype == torch.int32:
        assert done.returncode == 2
        assert "is no filter, but torch.int32" in done.stderr
    else:
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", ["5", "{", "[" * 10**5, '{"frozen": [], "filters": {}}'])
def test_a_configuration_that_is_none(tmp_path, text):
    model = build(Model(**SMALL))
    kernels = {name: value for name, value in model.state_dict().items() if "kernel" in name}
    save_file(kernels, tmp_path / "model.safetensors", metadata={"model": text})
    try:
        found = layers_module.read(tmp_path)[1]
    except DamagedFile:
        return
    assert layers_module.initialisation(found) == "kaiming"
