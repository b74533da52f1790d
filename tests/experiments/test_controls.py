"""Settings of controls: initialisation, a learning rate of filters, and that they reach the run."""

import math
from dataclasses import replace

import pytest
import torch

from toeplix import Model, build
from toeplix.experiments import SCALES, controls
from toeplix.experiments.engine.models import MODELS, published
from toeplix.experiments.engine.rows import record
from toeplix.experiments.engine.text_rows import Case
from toeplix.experiments.engine.text_runs import run_of
from toeplix.training.loop import weight_groups
from toeplix.training.run import Run

SIZES = {"dim": 64, "depth": 2, "context": 16, "vocab": 300}


@pytest.mark.parametrize("arch", ["llama", "window"])
def test_matrices_by_fan_in(arch):
    torch.manual_seed(0)
    other = {"window": 8} if arch == "window" else {}
    model = build(Model(arch=arch, init="fan_in", **SIZES, **other))
    for name, weight in model.named_parameters():
        if weight.ndim < 2:
            continue
        expected = 1 / math.sqrt(weight.shape[1])
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            expected /= math.sqrt(2 * SIZES["depth"])
        if name.startswith("head"):
            expected = 0.02
        if "embed" in name:
            expected = 1.0
        assert weight.std().item() == pytest.approx(expected, rel=0.05), name
    tied = build(Model(arch=arch, init="fan_in", tie_embeddings=True, **SIZES, **other))
    assert tied.input_embedding().weight.std().item() == pytest.approx(0.02, rel=0.05)
    plain = build(Model(arch=arch, **SIZES, **other))
    assert plain.backbone.layers[0].mlp.up_proj.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_initialisations_that_an_architecture_does_not_have():
    with pytest.raises(ValueError, match="init='fan_in' is not one of arch='toeplitz'"):
        Model(arch="toeplitz", init="fan_in")
    with pytest.raises(ValueError, match="init='paper' has no effect"):
        Model(arch="llama", init="paper")


def test_filters_have_a_learning_rate_of_their_own():
    run = Run(data="x", model=Model(arch="hyena", **SIZES), lr=2e-3, filter_lr=1e-3)
    model = build(run.model)
    groups = {group["lr_ratio"]: group["params"] for group in weight_groups(model, run)}
    assert set(groups) == {0.5, 1.0}
    filters = [weight for name, weight in model.named_parameters() if ".filter." in name]
    assert {id(weight) for weight in groups[0.5]} == {id(weight) for weight in filters}
    assert sum(map(len, groups.values())) == len(list(model.parameters()))
    (alone,) = weight_groups(model, replace(run, filter_lr=0.0))
    assert alone["lr_ratio"] == 1.0


def measured(scale, gains=()):
    """Rows of all lines; the loss of a change is 0.3 above that without it, or below if it is a gain."""
    found = []
    for name, (settings, fields) in controls.compared(scale, {}).items():
        for lr, extra in zip(scale.rates, (0.1, 0.0, 0.1), strict=True):
            for seed in scale.seeds if extra == 0 else (0,):
                case = Case.of(scale, name, settings, lr=lr, seed=seed, **fields)
                # the first change of Llama is not decided, all others are
                noise = (name == "llama + beta2 0.95") * (seed - 1) + 0.001 * seed
                change = 0.3 * (" + " in name) * (-1 if name in gains else 1)
                loss = 4.0 + extra + noise + change
                found.append(record(case) | {"loss": loss, "tune_loss": 4 + extra})
    return found


def test_the_model_without_a_change_gets_as_many_seeds_as_the_changed_one():
    """The difference is paired by seed: seeds of one model alone decide nothing."""
    scale, seeds = SCALES["laptop"], {}
    for case in controls.cases(scale, measured(scale)):
        seeds.setdefault(case.model, set()).add(case.seed)
    more = {name for name, several in seeds.items() if several == set(range(6))}
    assert more == {"llama", "llama + beta2 0.95"}


def test_other_models_get_the_changes_that_help_the_control():
    scale = SCALES["laptop"]
    rows = measured(scale, gains=("llama + beta2 0.98", "llama + init"))
    found = {case.model for case in controls.cases(scale, rows)}
    assert {name for name in found if not name.startswith("llama")} == {
        *controls.HYENAS,
        *(name for other in controls.OTHERS for name in (other, f"{other} + beta2 0.98")),
    }
    part = [row for row in rows if row["seed"] < 2]  # a seed is missing
    found = {case.model for case in controls.cases(scale, part)}
    assert not any("beta2" in name for name in found if not name.startswith("llama"))


def test_the_scale_of_the_paper_has_the_published_initialisation():
    paper = SCALES["paper"]
    assert Case.of(paper, "llama", MODELS["llama"], lr=1e-3, seed=0).settings == {"arch": "llama"}
    desk = Case.of(SCALES["desk"], "llama", MODELS["llama"], lr=1e-3, seed=0)
    assert desk.settings == {"arch": "llama", "init": "fan_in"}
    assert MODELS["hyena"]["init"] == "paper" == published(MODELS["hyena"])["init"]
    found = {case.model: case.settings.get("init") for case in controls.cases(paper, [])}
    assert (found["llama"], found["llama + init"], found["llama + all"]) == (
        None,
        "fan_in",
        "fan_in",
    )


@pytest.mark.slow
def test_changes_reach_the_run(tmp_path):
    smoke = SCALES["smoke"]
    cases = {
        name: Case.of(smoke, name, settings, lr=smoke.rates[0], seed=0, **fields)
        for name, (settings, fields) in controls.compared(smoke, controls.changes(smoke)).items()
    }
    assert run_of(cases["llama + beta2 0.95"], tmp_path).beta2 == 0.95
    assert run_of(cases["llama + init"], tmp_path).model.init == "fan_in"
    larger = run_of(cases["hyena + batch"], tmp_path)
    assert (larger.batch, larger.steps) == (controls.TIMES * smoke.batch, 2)
    authors = run_of(cases["hyena + 33 features"], tmp_path)
    assert (authors.filter_lr, authors.model.filter_features) == (1e-3, 33)
    assert run_of(cases["hyena + 3 features"], tmp_path).model.filter_features == 3
