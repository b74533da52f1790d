"""Figures: letters, one legend outside the panels, captions, legible text, small files."""

import math
from pathlib import Path

import numpy as np
import pytest

from toeplix.experiments import load, lookup
from toeplix.experiments.engine import accuracies, chance, curves, intervals, report, rows, style
from toeplix.experiments.engine.accuracies import draw
from toeplix.experiments.engine.collect import published_file

RESULTS = Path(__file__).parents[2] / "results"
MAX_BYTES = 400_000


def drawn(name):
    found, _ = report.reported(name, "laptop", RESULTS)
    published = rows.flat(published_file(name))
    return load(name).figure(found, published)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["frozen", "index", "benchmarks", "window"])
def test_figures_of_the_rows_on_disk(name):
    from matplotlib.text import Text

    figure = drawn(name)
    text = style.svg(figure)
    assert len(text) < MAX_BYTES
    shown = [
        each for each in figure.findobj(Text) if each.get_visible() and each.get_text().strip()
    ]
    assert min(each.get_fontsize() for each in shown) >= style.MIN_POINTS
    panels = [panel for panel in figure.axes if panel.get_title(loc="left")]
    letters = [panel.get_title(loc="left")[:3] for panel in panels]
    assert letters == [f"({letter})" for letter in "abcdefgh"[: len(panels)]]
    assert not any(panel.get_legend() for panel in panels), "one legend, above the panels"
    assert figure.get_supxlabel().endswith(".")
    words = [each for panel in panels for each in panel.texts]
    beyond = [each.get_text() for each in words if each.get_window_extent().x1 > figure.bbox.x1]
    assert not beyond, "cut off at the right border"


def test_models_look_different():
    names = ["paper flat", "paper 4 heads", "flat", "two layers", "toeplitz", "free", "llama", "x"]
    found = style.looks(names)
    assert len({(each["color"], each["linestyle"]) for each in found.values()}) == len(names)
    assert found["paper 4 heads"]["linestyle"] == "--"
    assert style.look("llama")["color"] == found["llama"]["color"], "the same in all figures"
    windows = style.looks(f"window n/{each}" for each in (8, 4, 2))
    assert len({each["color"] for each in windows.values()}) == len(windows)


def test_names_beside_points_do_not_overlap():
    _, (axes,) = style.panels()
    axes.set_ylim(0, 1)
    points = [(1.0, 0.5), (1.0, 0.51), (1.0, 0.0), (0.5, 0.5)]
    style.names(axes, [(point, f"{number}", "red") for number, point in enumerate(points)])
    heights = {each.get_text(): each.xyann[1] for each in axes.texts}
    assert heights["1"] - heights["0"] >= 0.99 * style.NAME_HEIGHT, "in the order of the points"
    assert heights["2"] > 0, "within the panel"
    assert heights["3"] == pytest.approx(0.5), "names far to the left do not overlap"
    joined = {each.get_text() for each in axes.texts if each.arrow_patch is not None}
    assert joined == {"0", "1", "2"}, "those that were moved"


def test_a_panel_begins_where_its_first_curve_is_visible():
    def row(model, seed, *losses):
        curve = [[100 * (1 + step), loss] for step, loss in enumerate(losses)]
        same = {"part": "", "diverged": None, "lr": 1e-3, "tune_loss": losses[-1]}
        return same | {"model": model, "seed": seed, "curve": curve, "loss": losses[-1]}

    _, (axes,) = style.panels()
    found = [row("llama", 0, 9.0, 8.0, 7.0, 4.0, 3.0, 2.5, 2.2, 2.0)]
    found.append(row("hyena", 0, 9.0, 9.0, 8.0, 7.0, 5.0, 4.0, 3.0, 2.0))
    curves.draw(axes, found, "steps")
    top = axes.get_ylim()[1]
    llama = next(line for line in axes.lines if line.get_label() == "llama")
    assert np.interp(axes.get_xlim()[0], *llama.get_xydata().T) == pytest.approx(top)


def test_an_interval_is_drawn_from_three_seeds_on():
    assert curves.bars([intervals.mean([1.0, 2.0]), intervals.mean([1.0, 2.0, 3.0])])[0] == 0
    assert curves.bars([intervals.mean([1.0, 2.0, 3.0])])[0] > 0


def test_a_line_is_interrupted_where_its_model_is_not_measured():
    def row(model, context, seed):
        same = {"options": {}, "task": "repeated", "vocab": 10, "accuracy": 0.5, "area": 0.5}
        return same | {"model": model, "context": context, "seed": seed}

    _, (axes,) = style.panels()
    sizes = {"llama": (4, 8, 16), "hyena": (4, 16)}
    found = [[row(name, size, 0)] for name, several in sizes.items() for size in several]
    accuracies.along(axes, found, "context", x="length")
    gaps = [sum(map(math.isnan, each[0].get_ydata())) for each in axes.containers]
    assert gaps == [0, 1]


def test_mean_and_interval_instead_of_a_line_for_every_seed():
    def row(seed, *accuracies):
        curve = [[10 * (1 + step), 1.0, each] for step, each in enumerate(accuracies)]
        return {"model": "llama", "curve": curve, "seed": seed, "batch": 2}

    _, (axes,) = style.panels()
    draw(axes, [[row(0, 0.1, 0.2), row(1, 0.2, 0.4), row(2, 0.9)]])
    (line,) = axes.lines
    assert line.get_ydata().tolist() == pytest.approx([0.4, 0.5]), (
        "a run that ended keeps its last value"
    )
    assert len(axes.collections) == 1, "one band"


def test_chance_levels():
    book = {"entries": 1, "letters": 3, "digits": 10, "length": 2}
    row = {"task": "phonebook", "context": 32, "vocab": 14, "options": book}
    assert chance.chance(row)[0] == 1.0, "one number is always the one that is asked for"
    many = row | {"options": book | {"entries": 4}}
    assert chance.chance(many)[0] == pytest.approx(1 / 4 + 3 / 40, abs=0.03)
    assert chance.chance({"task": "repeated", "vocab": 500, "options": {}})[0] == 1 / 500


@pytest.mark.slow
def test_a_stopped_lookup_can_be_drawn():
    """Its first cases are those of the default model, which are a part of their own."""
    found, _ = report.reported("lookup", "laptop", RESULTS)
    first = [row for row in found if row["part"] == lookup.DEFAULT_PART]
    assert first
    assert style.svg(lookup.figure(first, [])).startswith("<?xml")
