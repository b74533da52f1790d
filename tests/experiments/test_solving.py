"""Learning tasks: the same case gives the same weights, and easy tasks are learned."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from toeplix.experiments import SCALES, copying
from toeplix.experiments.engine import task_training, task_tuning
from toeplix.experiments.engine.models import PAPER_FLAT
from toeplix.experiments.engine.task_batches import TASKS
from toeplix.experiments.engine.task_training import Case
from toeplix.experiments.engine.task_tuning import best_rate, identity, tuned
from toeplix.tasks import IGNORED

CASE = Case(
    task="repeated",
    options={},
    model="paper flat",
    settings=PAPER_FLAT,
    data="",
    vocab=8,
    val_fraction=0.0,
    dim=16,
    depth=1,
    context=8,
    batch=16,
    steps=120,
    warmup=5,
    lr=1e-2,
    eval_sequences=32,
)
pytestmark = [pytest.mark.usefixtures("unchecked"), pytest.mark.slow]


def test_a_filter_learns_a_constant_lag(tmp_path):
    found = task_training.measure(CASE, tmp_path)
    assert found["accuracy"] > task_training.TARGET_ACCURACY
    assert found["solved"] <= 120
    assert found["curve"][-1][0] <= 120
    assert 0 < found["area"] < 1


def test_a_run_that_ends_early_is_solved_for_the_choice_of_its_rate_too(monkeypatch, tmp_path):
    """The reported batches reach the target; the tuning batches, scored after them, do not yet."""
    accuracies = iter((0.5, 0.4, 0.95, 0.949))
    monkeypatch.setattr(task_training, "score", lambda *_: (1.0, next(accuracies)))
    monkeypatch.setattr(Case, "stop_at", task_training.TARGET_ACCURACY)
    found = task_training.measure(CASE, tmp_path)
    assert found["solved"] == found["tune_solved"] == found["curve"][-1][0] == 4


def test_autoencoders_do_not_end_early():
    """They are compared at the end of training, after the learning rate's decay."""
    assert CASE.stop_at < 1 < replace(CASE, task="autoencode").stop_at


def test_the_same_case_gives_the_same_weights(tmp_path):
    short = replace(CASE, steps=10)
    first, found = task_training.trained(short, tmp_path / "a")
    second, again = task_training.trained(short, tmp_path / "b")
    read, known = task_training.trained(short, tmp_path / "a")
    assert found == again == known
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name])
        assert torch.equal(value, read.state_dict()[name])
    other, _ = task_training.trained(replace(short, seed=1), tmp_path / "a")
    assert not torch.equal(first.head.weight, other.head.weight)


def test_held_out_batches_are_not_those_of_training(tmp_path):
    seen, looked, tuned_on = [], [], []

    def spied(model, case, batch, held, tune, **_):
        seen.extend(batch(step).inputs.tobytes() for step in range(20))
        looked.extend(each.inputs.tobytes() for each in held)
        tuned_on.extend(each.inputs.tobytes() for each in tune)
        return {}

    task_training.fit, kept = spied, task_training.fit
    try:
        task_training.learn(task_training.network(CASE), CASE, tmp_path)
    finally:
        task_training.fit = kept
    assert not set(seen) & set(looked)
    assert not set(tuned_on) & set(seen + looked)
    assert len(tuned_on) == len(looked) > 0
    assert len(set(seen)) == 20


def test_steps_to_the_target_are_interpolated():
    """Evaluations every 10 steps tell 13 from 19."""
    target = task_training.TARGET_ACCURACY
    assert task_training.solved([[10, 1.0, 0.0], [20, 0.1, 2 * target]]) == 15
    assert task_training.solved([[10, 1.0, 0.5], [20, 0.1, target]]) == 20
    assert task_training.solved([[10, 1.0, 0.5]]) is None


def test_a_loss_that_is_no_number_ends_the_run(tmp_path):
    network = task_training.network(CASE)
    with torch.no_grad():
        network.head.weight.fill_(torch.nan)
    found = task_training.learn(network, CASE, tmp_path)
    assert found["diverged"] == "the loss is nan at step 0"
    assert found["loss"] is None


def test_longer_than_trained(tmp_path):
    case = replace(CASE, task="delimited", context=9, stretch=2, steps=5)
    found = task_training.measure(case, tmp_path)
    assert 0 <= found["longer"] <= 1
    assert case.record.context == 18


def test_an_autoencoder_is_a_case_too(tmp_path):
    case = replace(CASE, task="autoencode", context=2, vocab=4, steps=150, options={"norm": True})
    model, found = task_training.trained(case, tmp_path)
    assert found["accuracy"] > 0.5, "chance is a quarter"
    read, _ = task_training.trained(case, tmp_path)
    tokens = torch.randint(4, (3, 2))
    assert torch.equal(model(tokens), read(tokens))


@pytest.mark.parametrize("task", TASKS)
def test_tasks_fit_their_models(task):
    """Tokens are below the vocabulary of the model, and rows no longer than its context."""
    numbers = {"pairs": 2, "entries": 3, "letters": 2, "digits": 3, "length": 2}
    case = replace(CASE, task=task, context=25 if task == "delimited" else 24, options=numbers)
    batch = TASKS[task].batch(case, np.random.default_rng(0), None)
    assert batch.inputs.max() < TASKS[task].vocab(case)
    assert batch.inputs.shape == batch.labels.shape
    assert batch.inputs.shape[0] == case.batch
    assert batch.inputs.shape[1] <= case.context
    assert (batch.labels != IGNORED).any(1).all()


def test_rates_are_tuned_before_seeds():
    scale = SCALES["laptop"]
    case = Case.at(scale, copying.SIZES, "paper flat", PAPER_FLAT, task="repeated")
    first = tuned([case], scale, [], (0.2, 0.1))
    assert [(each.lr, each.seed) for each in first] == [(0.1, 0), (0.2, 0)]

    def measured(cases):
        """Rows whose best rate on the tuning batches is 0.1, and on the reported ones 0.2."""
        level = {0.05: 3.0, 0.1: 1.0, 0.2: 2.0}
        return [
            vars(each)
            | {"solved": 9, "tune_solved": None, "loss": 1.0, "tune_loss": level[each.lr]}
            for each in cases
        ]

    rows = measured(first)
    assert best_rate(case, scale, rows, (0.2, 0.1)) is None, "the best is at the end of the grid"
    wider = tuned([case], scale, rows, (0.2, 0.1))
    assert [each.lr for each in wider] == [0.05, 0.1, 0.2]
    rows = measured(wider)
    assert best_rate(case, scale, rows, (0.2, 0.1)) == 0.1
    assert task_tuning.edge(rows, task_tuning.groups(rows)[0]) == "inside"
    then = tuned([case], scale, rows, (0.2, 0.1))
    assert [(each.lr, each.seed) for each in then[3:]] == [(0.1, 1), (0.1, 2)]
    more = tuned([case], scale, rows, (0.2, 0.1), undecided={"paper flat"})
    assert [each.seed for each in more[3:]] == [1, 2, 3, 4, 5]
    assert len({identity(vars(each)) for each in then}) == 1
    paper = tuned([case], SCALES["paper"], [], (0.1, 0.2))
    assert [each.lr for each in paper] == [5e-4]
