"""Settings of controls: initialisation, a learning rate of filters, and that they reach the run."""

import math
from dataclasses import replace

import pytest
import torch

from toeplix import Model, build
from toeplix.experiments import SCALES, controls, training
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
        if "embed" in name or name.startswith("head"):
            expected = 0.02
        assert weight.std().item() == pytest.approx(expected, rel=0.05), name
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


def test_the_model_without_a_change_gets_as_many_seeds_as_the_changed_one():
    """The difference is paired by seed: seeds of one model alone decide nothing."""
    scale, found = SCALES["laptop"], []
    for name, (settings, fields) in controls.compared(scale).items():
        for lr, extra in zip(scale.rates, (0.1, 0.0, 0.1), strict=True):
            for seed in scale.seeds if extra == 0 else (0,):
                case = Case.of(scale, name, settings, lr=lr, seed=seed, **fields)
                # the first change of Llama is not decided, all others are
                noise = (name == "llama + beta2 0.95") * (seed - 1) + 0.001 * seed
                loss = 4.0 + extra + noise + 0.3 * (" + " in name)
                found.append(record(case) | {"loss": loss, "tune_loss": 4 + extra})
    seeds = {}
    for case in controls.cases(scale, found):
        seeds.setdefault(case.model, set()).add(case.seed)
    more = {name for name, several in seeds.items() if several == set(range(6))}
    assert more == {"llama", "llama + beta2 0.95"}


@pytest.mark.slow
def test_changes_reach_the_run(tmp_path):
    smoke = SCALES["smoke"]
    cases = {case.model: case for case in controls.cases(smoke, [])}
    assert run_of(cases["llama + beta2 0.95"], tmp_path).beta2 == 0.95
    assert run_of(cases["llama + init"], tmp_path).model.init == "fan_in"
    larger = run_of(cases["hyena + batch"], tmp_path)
    assert (larger.batch, larger.steps) == (controls.TIMES * smoke.batch, 2)
    hyenas = {case.model: case for case in training.cases(smoke, []) if "features" in case.model}
    features = {name: case.settings["filter_features"] for name, case in hyenas.items()}
    assert sorted(features.values()) == [3, 33]
    authors = next(case for case in hyenas.values() if case.settings["filter_features"] == 33)
    assert run_of(authors, tmp_path).filter_lr == 1e-3
