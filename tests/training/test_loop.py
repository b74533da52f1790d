"""Training: it learns, it goes on exactly, and it says what is wrong."""

import json
import math
import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.kill_worker import contents
from tests.toy import toy_lines, toy_run
from toeplix import load
from toeplix.data import Recipe, Tokenizer, build
from toeplix.training import batches
from toeplix.training.batches import Batches, digest
from toeplix.training.loop import Diverged, fit
from toeplix.training.signals import Abandoned, Stopped

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]


def rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def losses(folder):
    return [row["loss"] for row in rows(folder) if "loss" in row]


class Accident(Exception):
    pass


def interrupt(run, folder, step, accident=Accident):
    """Train until `step` is done, and lose what comes after the last checkpoint."""

    def report(row):
        if row["step"] == step:
            raise accident

    with pytest.raises(accident):
        fit(run, folder, report=report)


@pytest.mark.parametrize("protocol", ["packed", "padded"])
def test_it_learns_and_leaves_everything(store, tmp_path, protocol):
    run = toy_run(store, protocol=protocol, steps=120, dropout=0.0, trackers="tensorboard")
    model = load(fit(run, tmp_path))
    seen = rows(tmp_path)
    trained = [row for row in seen if "loss" in row]
    held = [row for row in seen if "val_loss" in row]
    assert trained[0]["loss"] > 4.5
    assert trained[-1]["loss"] < 2
    assert held[-1]["val_loss"] < 2
    assert [row["step"] for row in trained] == list(range(3, 121, 3))
    assert [row["step"] for row in held] == list(range(8, 121, 8))
    keys = {"step", "tokens", "seconds", "loss", "lr", "grad_norm", "tokens_per_second", "waiting"}
    assert all(set(row) == keys for row in trained)
    assert all(0 <= row["waiting"] < 1 for row in trained)
    assert [row["tokens"] for row in trained] == sorted({row["tokens"] for row in trained})
    names = {each.name for each in tmp_path.iterdir() if not each.name.startswith(".")}
    assert names >= {"run.json", "samples.txt", "summary.md", "tensorboard", "model", "checkpoints"}
    assert list((tmp_path / "tensorboard").iterdir())
    checkpoints = {each.name for each in (tmp_path / "checkpoints").iterdir()}
    assert checkpoints == {"step-115", "step-120"}  # `keep` of them
    assert Tokenizer.load(tmp_path / "model").vocab == model.config.vocab
    again = load(tmp_path / "checkpoints/step-120").state_dict()
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())
    summary = (tmp_path / "summary.md").read_text()
    assert f"{trained[-1]['loss']:.4f} nats per token" in summary
    waited = sum(row["waiting"] for row in trained) / len(trained)
    assert f"| waiting for data | {waited:.2%} of the time of steps |" in summary


def test_held_out_loss_by_hand(store, tmp_path):
    """All validation documents, one by one, against the row of a run that saw all rows."""
    run = replace(toy_run(store, protocol="padded", steps=1, warmup=0), eval_sequences=1000)
    folder = tmp_path
    model = load(fit(run, folder))
    nats = labels = size = 0
    for index in range(len(store.val)):
        document = torch.from_numpy(store.val.document(index).astype("int64"))[: 32 + 1]
        logprobs = model(document[None, :-1]).detach().log_softmax(-1)[0]
        nats -= float(logprobs.gather(1, document[1:, None]).sum())
        labels += len(document) - 1
        size += len(store.tokenizer.decode(document[1:].tolist()).encode())
    (row,) = [row for row in rows(folder) if "val_loss" in row]
    assert row["val_loss"] == pytest.approx(nats / labels, rel=1e-5)
    assert row["val_bits_per_byte"] == pytest.approx(nats / math.log(2) / size, rel=1e-5)


@pytest.mark.parametrize("step", [2, 13, 24])
def test_an_interrupted_run_ends_with_the_same_bits(store, whole, tmp_path, step):
    run = toy_run(store)
    interrupt(run, tmp_path, step)
    said = []
    fit(run, tmp_path, say=said.append)
    assert contents(tmp_path) == contents(whole)
    good = {2: [], 13: ["step-10"], 24: ["step-20"]}[step]
    assert [line.rsplit("/", 1)[1].rstrip(")") for line in said] == good


def test_kill_9(tmp_path):
    """At random moments; by hand: python -m tests.kill_worker DIRECTORY 20."""
    command = [sys.executable, "-m", "tests.kill_worker", str(tmp_path), "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same bits" in done.stdout


def spoil(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda step: spoil(step / "model.safetensors"), "the sha256 of model.safetensors"),
        (lambda step: os.truncate(step / "optimizer.safetensors", 100), "bytes long"),
        (lambda step: (step / "state.json").unlink(), "state.json is missing"),
        (lambda step: (step / "manifest.json").write_text("{"), "manifest.json cannot be read"),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(
    store, whole, tmp_path, damage, words
):
    run = toy_run(store)
    interrupt(run, tmp_path, 13)
    damage(tmp_path / "checkpoints/step-10")
    said = []
    fit(run, tmp_path, say=said.append)
    assert "step-10 is damaged" in said[0]
    assert words in said[0]
    assert "after step 5" in said[1]
    assert (tmp_path / "checkpoints/damaged-step-10").is_dir()
    assert contents(tmp_path) == contents(whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_saves_first(store, whole, tmp_path, number):
    run = toy_run(store)
    with pytest.raises(
        Stopped, match=r"after step 8, which is saved in .*step-8; the same command"
    ):
        fit(run, tmp_path, report=lambda row: row["step"] == 7 and os.kill(os.getpid(), number))
    fit(run, tmp_path)
    assert contents(tmp_path) == contents(whole)


@pytest.mark.parametrize("step", [23, 24])
def test_a_request_in_the_last_step_completes_the_run_and_stops(store, whole, tmp_path, step):
    run = toy_run(store)
    with pytest.raises(Stopped, match=r"after the last step; .* is complete"):
        fit(run, tmp_path, report=lambda row: row["step"] == step and os.kill(os.getpid(), 15))
    assert (tmp_path / "model/model.safetensors").is_file()
    assert contents(tmp_path) == contents(whole)


def test_a_request_within_a_step_stops_after_that_step(store, whole, tmp_path, monkeypatch):
    moved = batches.moved
    monkeypatch.setattr(batches, "moved", lambda *a: os.kill(os.getpid(), 2) or moved(*a))
    with pytest.raises(Stopped, match="stopped after step 1,"):
        fit(toy_run(store), tmp_path)
    monkeypatch.undo()
    fit(toy_run(store), tmp_path)
    assert contents(tmp_path) == contents(whole)


@pytest.mark.parametrize(
    ("step", "words"), [(2, "there is no checkpoint yet"), (7, "checkpoint is .*/step-5$")]
)
def test_a_second_request_ends_without_saving(store, whole, tmp_path, monkeypatch, step, words):
    monkeypatch.setattr("toeplix.training.signals.REPEATED_WITHIN", -1)

    def report(row):
        for _ in range(2 * (row["step"] == step)):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Abandoned, match=f"quit at step {step} without saving: .*{words}"):
        fit(toy_run(store), tmp_path, report=report)
    assert not (tmp_path / f"checkpoints/step-{step}").exists()
    fit(toy_run(store), tmp_path)
    assert contents(tmp_path) == contents(whole)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lr": 1e30}, "nan at step"),
        ({"lr": 30.0, "beta1": 0.0, "beta2": 0.0}, "and began at 5.7"),
    ],
)
def test_divergence_names_step_batch_and_checkpoint(store, tmp_path, settings, words):
    run = toy_run(store, max_grad_norm=0.0, save_every=1, warmup=1, **settings)
    with pytest.raises(Diverged) as caught:
        fit(run, tmp_path)
    assert words in str(caught.value)
    step = int(str(caught.value).split(" at step ")[1].split()[0])
    batch = digest(Batches(run, store, 0, 1).of(step - 1))
    assert f"(batch {batch})" in str(caught.value)
    assert f"the last good checkpoint is {tmp_path}/checkpoints/step-{step - 1};" in str(
        caught.value
    )


@contextmanager
def small_files(size):
    """What a full disk is like: no file may grow beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_loses_nothing(store, whole, tmp_path):
    run = toy_run(store)
    interrupt(run, tmp_path, 13)
    with small_files(20_000), pytest.raises(OSError, match="cannot be written") as caught:
        fit(run, tmp_path)
    assert f"the last good checkpoint is {tmp_path}/checkpoints/step-10" in str(caught.value)
    assert {each.name for each in (tmp_path / "checkpoints").iterdir()} == {"step-5", "step-10"}
    fit(run, tmp_path)
    assert contents(tmp_path) == contents(whole)


def test_a_directory_belongs_to_its_run(store, whole, tmp_path):
    with pytest.raises(ValueError, match=r"belongs to another run: lr=0\.5 instead of 0\.01"):
        fit(toy_run(store, lr=0.5), whole)
    interrupt(toy_run(store), tmp_path, 6)
    lines = toy_lines(tmp_path / "toy.jsonl", 100)
    other = build(Recipe(sources=(str(lines),), vocab=300, val_fraction=0.1), tmp_path / "other")
    with pytest.raises(ValueError, match="is not the store that"):
        fit(toy_run(other), tmp_path)


def test_what_does_not_fit_the_store(store, tmp_path):
    with pytest.raises(
        ValueError, match="300 tokens, the last of them 299: vocab=299 is too small"
    ):
        fit(toy_run(store, vocab=299), tmp_path)
    with pytest.raises(ValueError, match="less than a row of context=99999"):
        fit(toy_run(store, context=99999), tmp_path)
    with pytest.raises(FileNotFoundError, match="no token store"):
        fit(replace(toy_run(store), data=str(tmp_path)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("protocol", ["packed", "padded"])
def test_several_processes_share_the_rows_of_one(store, protocol):
    """Three steps of two processes and three parts: what one with a larger batch reads, in order."""
    run = toy_run(store, protocol=protocol, batch=2, grad_accum_steps=3, steps=300)
    several = [Batches(run, store, rank, 2) for rank in range(2)]
    one = Batches(replace(run, batch=12, grad_accum_steps=1), store, 0, 1)
    for step in (0, 5, 70):  # the last in a later epoch
        parts = [each.of(step) for each in several]
        tokens = [parts[rank][part]["tokens"].flatten() for part in range(3) for rank in range(2)]
        assert torch.equal(torch.cat(tokens), one.of(step)[0]["tokens"].flatten())
    assert one.rows.epoch > 0


@pytest.mark.parametrize(
    "settings", [{"batch": 2, "grad_accum_steps": 2}, {"gradient_checkpointing": True}]
)
def test_the_same_in_another_way(store, tmp_path, settings):
    """Rows are padded unevenly, so a mean of means would differ."""
    run = toy_run(store, protocol="padded", dropout=0.0)
    fit(run, tmp_path / "plain")
    fit(replace(run, **settings), tmp_path / "other")
    assert losses(tmp_path / "other") == pytest.approx(losses(tmp_path / "plain"), rel=1e-5)


def test_half_precision_goes_on_exactly_too(store, tmp_path):
    for precision in ("bfloat16", "float16"):
        run = toy_run(store, precision=precision, dropout=0.0)
        one, two = tmp_path / precision / "one", tmp_path / precision / "two"
        fit(run, one)
        interrupt(run, two, 8)
        fit(run, two)
        assert contents(one) == contents(two)
        assert losses(one)[-1] < 0.9 * losses(one)[0]
    full = fit(toy_run(store, dropout=0.0), tmp_path / "full").parent
    assert losses(full) == pytest.approx(losses(tmp_path / "bfloat16/one"), rel=0.05)
    assert losses(full) != losses(tmp_path / "bfloat16/one")
