"""A run that diverges in its last steps ends as one that diverges earlier, and leaves what was good."""

import json
import math
import shutil
import subprocess
import sys

import pytest
import torch

from tests.toy import toy_run
from tests.training.test_loop import ROOT, interrupt
from tests.training.test_train_command import ARGUMENTS, call
from toeplix import load, save
from toeplix.cli.main import main
from toeplix.training import divergence, loop
from toeplix.training.distributed import finite
from toeplix.training.loop import Diverged, fit

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]

# the update of the second step makes the weights 1e30, which are finite, and all losses not
LAST = {"steps": 2, "warmup": 1, "lr": 1e30, "log_every": 1, "save_every": 1}


def not_json(text):
    raise AssertionError(f"{text} is not JSON")


def strict_rows(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line, parse_constant=not_json) for line in lines]


@pytest.mark.parametrize(
    "settings",
    [{}, {"eval_every": 0, "sample_every": 0}, {"eval_every": 1, "grad_accum_steps": 2}],
    ids=str,
)
def test_a_run_that_diverges_in_its_last_step(store, tmp_path, settings):
    run = toy_run(store, **(LAST | settings))
    with pytest.raises(Diverged) as caught:
        fit(run, tmp_path)
    words = str(caught.value)
    assert "after the update the loss is nan at step 2 (batch " in words
    assert f"the last good checkpoint is {tmp_path}/checkpoints/step-1; a lower lr" in words
    assert not (tmp_path / "model").exists()
    assert [each.name for each in (tmp_path / "checkpoints").iterdir()] == ["step-1"]
    assert [row["step"] for row in strict_rows(tmp_path) if "loss" in row] == [1, 2]
    assert "step 2" not in (tmp_path / "samples.txt").read_text()


def test_the_command_ends_with_status_2_and_one_line(store, tmp_path, monkeypatch, capsys):
    given = ["--data", store.directory, "--out", tmp_path / "run", *ARGUMENTS]
    status, error = call(monkeypatch, capsys, *given, "--lr", "1e30", "--steps", 3)
    assert status == 2
    assert "the loss is nan at step" in error.splitlines()[-1]
    assert "prompt" not in error
    assert not (tmp_path / "run/model").exists()


def test_weights_that_are_not_finite(store, tmp_path, monkeypatch):
    """Even where the loss does not read them: the embedding of a token that the batch does not have."""
    step = loop.Training._step

    def spoil(self, asked):
        stop = step(self, asked)
        seen = {int(token) for part in self.parts for token in part["tokens"].flatten()}
        unseen = next(each for each in range(self.run.model.vocab) if each not in seen)
        with torch.no_grad():
            self.model.embedding.weight[unseen] = math.nan
        return stop

    monkeypatch.setattr(loop.Training, "_step", spoil)
    with pytest.raises(Diverged, match="the update left weights that are not finite at step 1 "):
        fit(toy_run(store, save_every=1, batch=1), tmp_path)
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_number_among_weights(value):
    weights = [torch.nn.Parameter(torch.ones(3, 5)), torch.nn.Parameter(torch.full((7,), 3e38))]
    assert finite(weights)
    weights[1].data[4] = value
    assert not finite(weights)


def test_a_validation_loss_that_is_not_finite(store, tmp_path, monkeypatch):
    found = {"val_loss": math.nan, "val_perplexity": math.nan, "val_bits_per_byte": math.nan}
    monkeypatch.setattr(loop.Validation, "evaluate", lambda *_: found)
    with pytest.raises(Diverged, match=r"val_loss is nan at step 8 .*checkpoints/step-5;"):
        fit(toy_run(store), tmp_path)
    assert not [row for row in strict_rows(tmp_path) if "val_loss" in row]


def test_two_processes_end_together(store, tmp_path):
    """torchrun would wait for a process that did not notice; both of them say why."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["-m", "toeplix", "train", "--data", str(store.directory), *ARGUMENTS]
    for parallel in ("ddp", "fsdp"):
        out = tmp_path / parallel
        more = ["--lr", "1e30", "--steps", "2", "--warmup", "1", "--save-every", "1"]
        more += ["--parallel", parallel, "--out", str(out)]
        done = subprocess.run(
            [*command, *more], capture_output=True, text=True, check=False, cwd=ROOT
        )
        assert done.returncode != 0
        assert done.stderr.count("the loss is nan at step 2 ") == 2, done.stderr
        assert [each.name for each in (out / "checkpoints").iterdir()] == ["step-1"]
        assert not (out / "model").exists()


def test_skipped_updates_of_float16_leave_valid_json(store, tmp_path, monkeypatch):
    run = toy_run(store, precision="float16", steps=3, warmup=1, log_every=1, eval_every=0)
    norms = iter([math.inf, 1.0, math.nan])
    clip = loop.distributed.clip
    monkeypatch.setattr(loop.distributed, "clip", lambda *a: clip(*a) * 0 + next(norms))
    fit(run, tmp_path)
    assert [row["grad_norm"] for row in strict_rows(tmp_path)] == [0.0, 1.0, 0.0]


def test_other_steps_compute_nothing_more(store, tmp_path, monkeypatch):
    checked, check = [], loop.Training._check_update
    monkeypatch.setattr(
        loop.Training,
        "_check_update",
        lambda self: (checked.append(self.progress.step), check(self)),
    )
    fit(toy_run(store), tmp_path)
    due = {n for n in range(1, 25) if 0 in (n % 5, n % 8, n % 12)}
    assert checked == sorted(due | {24})


def test_a_finished_run_of_an_earlier_version_is_examined(store, tmp_path, monkeypatch):
    run = toy_run(store, **(LAST | {"eval_every": 0, "sample_every": 0}))
    monkeypatch.setattr(loop.Training, "_check_update", lambda self: None)
    fit(run, tmp_path)
    monkeypatch.undo()
    with pytest.raises(Diverged, match=r"nan at step 2 .*checkpoints/step-1;"):
        fit(run, tmp_path)


def test_the_progress_line_has_the_loss_of_the_log(store, tmp_path):
    reported = {}
    fit(
        toy_run(store),
        tmp_path,
        report=lambda row: reported.update({row["step"]: row["mean_loss"]}),
    )
    logged = {row["step"]: row["loss"] for row in strict_rows(tmp_path) if "loss" in row}
    assert logged == {step: reported[step] for step in logged}
    again = tmp_path / "again"
    interrupt(toy_run(store), again, 13)  # resumes at step 10, between two lines
    fit(toy_run(store), again, report=lambda row: reported.update({row["step"]: row["mean_loss"]}))
    assert logged == {step: reported[step] for step in logged}


def test_the_command_prints_it(store, tmp_path, monkeypatch, capsys):
    given = ["--data", store.directory, "--out", tmp_path, *ARGUMENTS, "--log-every", 4]
    _, error = call(monkeypatch, capsys, *given)
    last = [row for row in strict_rows(tmp_path) if "loss" in row][-1]
    assert f"step 12 of 12, loss {last['loss']:.4f}, " in error


@pytest.fixture
def spoiled(store, tmp_path):
    """A finished run as earlier versions left it: finite weights, logits that are not, no sample."""
    run = tmp_path / "run"
    fit(toy_run(store, sample_every=0), run)
    model = load(run / "model")
    for weight in model.parameters():
        weight.data.fill_(1e30)
    save(model, run / "model")
    return run


@pytest.mark.parametrize("text", [True, False])
def test_quantize_rejects_a_model_whose_logits_are_not_finite(
    spoiled, tmp_path, monkeypatch, capsys, text
):
    if not text:
        shutil.move(spoiled / "model", tmp_path / "alone")
    model = spoiled if text else tmp_path / "alone"
    monkeypatch.setattr("sys.argv", ["toeplix", "quantize", str(model), str(tmp_path / "small")])
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    assert (left.value.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "the logits are not finite, training diverged" in said.err
    assert not (tmp_path / "small").exists()


def test_page_shows_the_curves_of_a_model_that_diverged(spoiled, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["toeplix", "page", str(spoiled)])
    main()
    text = (spoiled / "page.html").read_text()
    assert "<svg" in text
    assert "A sample" not in text


def test_what_is_wrong_with_a_loss():
    assert divergence.loss_trouble(2.0, 5.0) == divergence.loss_trouble(2.0, None) == ""
    assert divergence.loss_trouble(math.inf, 5.0) == "the loss is inf"
    assert divergence.loss_trouble(51.0, 5.0) == "the loss is 51, and began at 5"
    assert divergence.gradient_trouble(math.nan, False) == "the gradient's norm is nan"
    assert divergence.gradient_trouble(math.nan, True) == ""
