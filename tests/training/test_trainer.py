"""Our loop against Hugging Face's Trainer: another origin of the same steps."""

import re
from pathlib import Path

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from tests.toy import toy_run, toy_store
from toeplix import build, load
from toeplix.data import Padded
from toeplix.hub import from_core, to_core
from toeplix.training.logs import read
from toeplix.training.loop import fit

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*pin_memory:UserWarning"),  # without a GPU
    pytest.mark.usefixtures("one_thread"),
]


class Steps(TrainerCallback):
    """What Trainer logs after every step."""

    def __init__(self):
        self.rows = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.rows.append(logs | {"step": state.global_step})


def collate(rows):
    batch = Padded.collate(rows)
    names = {"input_ids": batch["tokens"], "attention_mask": batch["mask"]}
    return names | {"labels": batch["labels"], "shift_labels": batch["labels"]}


def trained(run, store, folder):
    """The same run under Trainer: its rows of logs, and the model."""
    torch.manual_seed(run.seed)
    model = from_core(build(run.model)).train()
    steps = Steps()
    arguments = TrainingArguments(
        str(folder),
        max_steps=run.steps,
        per_device_train_batch_size=run.batch,
        gradient_accumulation_steps=run.grad_accum_steps,
        learning_rate=run.lr,
        warmup_steps=run.warmup,
        lr_scheduler_type=run.schedule,
        adam_beta1=run.beta1,
        adam_beta2=run.beta2,
        weight_decay=0.0,
        max_grad_norm=run.max_grad_norm,
        train_sampling_strategy="sequential",
        remove_unused_columns=False,
        gradient_checkpointing=run.gradient_checkpointing,
        logging_steps=1,
        save_strategy="no",
        disable_tqdm=True,
        report_to=[],
        use_cpu=True,
    )
    rows = Padded(store.train, context=run.model.context, seed=run.seed)
    Trainer(
        model=model, args=arguments, train_dataset=rows, data_collator=collate, callbacks=[steps]
    ).train()
    return steps.rows, model


@pytest.mark.parametrize(
    "settings",
    [
        {"grad_accum_steps": 2, "lr": 2e-2},
        {"arch": "hyena", "batch": 3, "max_grad_norm": 0.3, "schedule": "cosine", "beta2": 0.95},
        {"heads": 2, "gradient_checkpointing": True},
    ],
    ids=["accumulated", "hyena", "checkpointed"],
)
def test_steps_are_those_of_trainer(store, tmp_path, settings):
    """Loss, rate and norm of every step, and the weights after the last.

    Rows are padded unevenly, so a mean of means over the parts of a step would differ.
    """
    quick = {"steps": 16, "eval_every": 0, "sample_every": 0, "log_every": 1}
    run = toy_run(store, protocol="padded", dropout=0.0, **quick | settings)
    ours = load(fit(run, tmp_path / "ours"))
    theirs, model = trained(run, store, tmp_path / "theirs")
    mine = read(tmp_path / "ours")
    assert [row["step"] for row in mine] == [row["step"] for row in theirs] == list(range(1, 17))
    assert max(row["grad_norm"] for row in mine) > run.max_grad_norm > 0  # some are clipped
    for row, other in zip(mine, theirs, strict=True):
        assert row["loss"] == pytest.approx(float(other["loss"]), rel=1e-4)
        assert row["lr"] == pytest.approx(other["learning_rate"], rel=1e-9, abs=1e-12)
        assert row["grad_norm"] == pytest.approx(float(other["grad_norm"]), rel=1e-3)
    assert mine[-1]["loss"] < 0.9 * mine[0]["loss"]
    weights = to_core(model).state_dict()
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, weights[name], rtol=1e-2, atol=1e-3)


def test_the_recipe_in_the_docs_runs(tmp_path, monkeypatch):
    """As it is written, but for its length."""
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/training.md").read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    toy_store(tmp_path).directory.rename(tmp_path / "python")
    (tmp_path / "runs").mkdir()
    (tmp_path / "python").rename(tmp_path / "runs/python")
    assert "max_steps=200" in block
    shorter = block.replace("max_steps=200", "max_steps=4").replace(
        "warmup_steps=20", "warmup_steps=1"
    )
    names = {}
    exec(shorter, names)
    batch = collate([names["rows"][0], names["rows"][1]])
    written = names["collate"]([names["rows"][0], names["rows"][1]])
    assert batch.keys() == written.keys()
    assert all(torch.equal(batch[name], written[name]) for name in batch)
    again = load(tmp_path / "runs/trainer/model").state_dict()
    for name, value in to_core(names["model"]).state_dict().items():
        assert torch.equal(value, again[name])
