"""The training loop: `fit(run, directory)` trains a model and resumes exactly after an interruption.

    run.json          the record of the run that owns the directory (run_directory.py)
    metrics.jsonl     metrics, one JSON object per line (logs.py); also samples.txt, tensorboard/
    checkpoints/      step-N: complete or absent (checkpoints.py)
    model/            the trained model, for toeplix.load and transformers, with tokenizer and card
    summary.md        summary of the finished run (summary.py)

Everything that a step does is a function of (run, step): its batches (batches.py), random numbers and
learning rate. So a checkpoint needs only weights, optimizer state and the step number, and a run that
was killed and resumed ends with the same bits as an uninterrupted one. Hugging Face's Trainer does not
allow this: it pickles its checkpoints, writes them in place, takes the first axis of a batch as the
number of sequences (a packed batch has one row), and reads all earlier batches again to resume. It can
train `toeplix.hub` models, with the same loss at every step (docs/training.md,
tests/training/test_trainer.py).

The loss of a step is the mean over all its labels, over all gradient accumulation steps and processes.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from toeplix.architectures import build
from toeplix.checkpoint import save
from toeplix.config import IGNORED
from toeplix.data import Store
from toeplix.data.store import TOKENIZER
from toeplix.files import replace_file
from toeplix.files.locking import locked
from toeplix.model_card import UNKNOWN
from toeplix.training import batches, checkpoints, distributed, divergence, preflight
from toeplix.training.command import trained
from toeplix.training.divergence import Diverged as Diverged
from toeplix.training.logs import Logs, read, sample_texts
from toeplix.training.objective import prepare
from toeplix.training.processes import Processes, joined
from toeplix.training.progress import resumed
from toeplix.training.run import Run
from toeplix.training.run_directory import CHECKPOINTS as CHECKPOINTS
from toeplix.training.run_directory import MODEL as MODEL
from toeplix.training.run_directory import RECORD as RECORD
from toeplix.training.run_directory import check_directory
from toeplix.training.schedule import rate
from toeplix.training.schedule import weight_groups as weight_groups
from toeplix.training.sequence_parallel import divided_processes, objective_of
from toeplix.training.signals import Abandoned, Stopped, requests
from toeplix.training.summary import summarise
from toeplix.training.validation import Validation

Say = Callable[[str], None]
Report = Callable[[dict[str, Any]], None]


def fit(
    run: Run,
    directory: str | Path,
    *,
    say: Say = lambda line: None,
    report: Report = lambda row: None,
    restart: bool = False,
    verify: bool = True,
    data_license: str = UNKNOWN,
) -> Path:
    """Train a model, or resume its training; return the directory of the model, for `toeplix.load`.

    Args:
        run: what to do.
        directory: where everything is written; it belongs to this run alone.
        say: gets lines for the user: where a run goes on, a damaged checkpoint.
        report: gets step, steps, loss, mean_loss (since the last line of metrics.jsonl, so that line's
            `loss` where one is written) and tokens_per_second after every step.
        restart: start over at step 0 where all checkpoints are damaged, instead of an error.
        verify: read the store first, if that was not done since it was written (`Store.verify`).
        data_license: the licence of the data, for the model card.
    """
    folder = Path(directory)
    with joined() as processes:
        store = Store.open(run.data)
        preflight.check_run(run)
        processes = divided_processes(run, processes)
        preflight.check_store(run, store)
        check_directory(run, folder)
        if processes.first and not store.has_validation and store.notice:
            say(store.notice)
        if processes.first and verify:
            store.verify(say)
        with locked(folder) if processes.first else contextlib.nullcontext():
            check_directory(run, folder)  # by now another process may have claimed it
            training = Training(run, folder, store, processes, say, report, restart, data_license)
            if processes.first:  # from here on the directory is this run's
                text = json.dumps(run.to_dict(), indent=1) + "\n"
                replace_file(folder / RECORD, lambda aside: aside.write_text(text))
            try:
                training.go()
            except OSError as problem:
                raise OSError(
                    f"{folder} cannot be written ({problem}): "
                    f"{checkpoints.last(folder / CHECKPOINTS)}; make room and run the same again"
                ) from problem
            processes.wait()
    return folder / MODEL


class Training:
    """A run in progress: model, optimizer, batches and logs of one process."""

    def __init__(
        self,
        run: Run,
        folder: Path,
        store: Store,
        processes: Processes,
        say: Say,
        report: Report,
        restart: bool = False,
        data_license: str = UNKNOWN,
    ) -> None:
        self.data_license = data_license
        self.run, self.folder, self.store, self.processes = run, folder, store, processes
        self.say, self.report = say, report
        self.checkpoints = folder / CHECKPOINTS
        torch.manual_seed(run.seed)
        self.model = build(run.model).train()
        prepare(self.model, run)
        self.progress, snapshot = resumed(run, folder / CHECKPOINTS, store, processes, say, restart)
        if snapshot:  # before the weights are moved, or divided
            checkpoints.restore_weights(snapshot, self.model)
        self.objective = objective_of(self.model, run, processes)
        self.shared = distributed.share(self.objective, run.parallel, processes)
        self.weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(
            weight_groups(self.model, run),
            lr=run.lr,
            betas=(run.beta1, run.beta2),
            eps=1e-8,
            weight_decay=run.weight_decay,
            fused=True,
        )
        self.scaler = torch.amp.GradScaler(
            processes.device.type, enabled=run.precision == "float16"
        )
        if snapshot:
            checkpoints.restore_moments(snapshot, self.model, self.optimizer)
            self.scaler.load_state_dict(self.progress.scaler)
        own = batches.Batches(run, store, processes.data_rank, processes.data_count)
        self.batches = batches.Ahead(own, run.steps)
        self.validation = Validation(run, store, processes) if run.eval_every else None

    def go(self) -> None:
        """Run all remaining steps, then write the model and the report."""
        run, progress = self.run, self.progress
        self.began = time.monotonic() - progress.seconds
        logs = (
            Logs(self.folder, run, progress.step, progress.lengths)
            if self.processes.first
            else None
        )
        try:
            with requests(tell=self.processes.first) as asked:
                if progress.step == run.steps:  # perhaps by a version that did not check it
                    self.parts, _ = self.batches.of(run.steps - 1)
                    self._check_update()
                while progress.step < run.steps:
                    stop = self._step(asked)
                    step, end = progress.step, progress.step == run.steps
                    evaluates = run.eval_every and (step % run.eval_every == 0 or end)
                    samples = run.sample_every and (step % run.sample_every == 0 or end)
                    saves = step % run.save_every == 0 or end or stop
                    if step % run.log_every == 0 or end:
                        self._row(logs)
                    if evaluates or samples or saves:
                        self._check_update()
                    if evaluates:
                        self._evaluate(logs)
                    if samples:
                        self._samples(logs)
                    if saves:
                        self._save(logs)
                    if stop and not end:
                        raise Stopped(
                            f"stopped after step {step}, which is saved in "
                            f"{self.checkpoints / f'step-{step}'}; the same command goes on from there"
                        )
        except Abandoned:
            kept = checkpoints.last(self.checkpoints)
            raise Abandoned(f"quit at step {progress.step} without saving: {kept}") from None
        finally:
            self.batches.close()
            if logs:
                logs.close()
        self._finish()
        (asking,) = self.processes.total(bool(asked))
        if asking:  # in the last step: who trains several runs must not begin the next
            raise Stopped(f"stopped after the last step; {self.folder} is complete")

    def _step(self, asked: list[int]) -> bool:
        """Take one optimizer step; return whether any process was asked to stop before its end."""
        run, progress, processes = self.run, self.progress, self.processes
        start = time.monotonic()
        self.parts, waited = self.batches.of(progress.step)
        parts, labels = self.parts, self._labels()
        torch.manual_seed(_seed(run.seed, progress.step, processes.rank))
        lr = rate(run, progress.step)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["lr_ratio"]
        self.optimizer.zero_grad()
        nats = torch.zeros((), device=processes.device)
        for number, part in enumerate(parts, 1):
            last = number == len(parts)
            with contextlib.nullcontext() if last else distributed.unexchanged(self.shared):
                loss = self.shared(**batches.moved(part, processes.device))
                # gradients are averaged over processes, while the loss is a sum: hence the factor
                self.scaler.scale(loss * (processes.count / labels)).backward()
            nats += loss.detach()
        self.scaler.unscale_(self.optimizer)
        clipped = distributed.clip(self.weights, run.max_grad_norm)
        # the one wait for the device in a step: loss and norm decide whether weights are updated
        own_nats, norm = torch.stack([nats, clipped.to(nats)]).tolist()
        sent_here = self.objective.take_sent_bytes()
        sum_of_nats, sent, stop = processes.total(own_nats, sent_here, bool(asked))
        self._check_step(sum_of_nats / labels, norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        progress.step += 1
        progress.tokens += labels
        progress.nats += sum_of_nats
        progress.labels += labels
        progress.exchanged += sent
        # a norm that is not finite is that of an update that the loss scaler skipped
        self.lr, self.norm = lr, norm if math.isfinite(norm) else 0.0
        took = time.monotonic() - start
        progress.busy += took
        progress.waited += waited
        self.report(
            {
                "step": progress.step,
                "steps": run.steps,
                "loss": sum_of_nats / labels,
                "mean_loss": progress.nats / progress.labels,
                "tokens_per_second": labels / took,
            }
        )
        return stop > 0

    def _labels(self) -> int:
        """Return the number of labels of the step's batches, over all processes."""
        own = sum(int((part["labels"] != IGNORED).sum()) for part in self.parts)
        return int(*self.processes.total(own * self.processes.counts_rows))

    def _check_step(self, loss: float, norm: float) -> None:
        """Raise Diverged if the loss or the gradient is not usable, before the weights are updated."""
        progress = self.progress
        if progress.first_loss is None and math.isfinite(loss):
            progress.first_loss = loss
        trouble = divergence.loss_trouble(loss, progress.first_loss)
        trouble = trouble or divergence.gradient_trouble(norm, self.scaler.is_enabled())
        self._end_if(trouble, progress.step + 1)

    @torch.no_grad()
    def _check_update(self) -> None:
        """Raise Diverged if the last update ruined the model, before anything of it is written."""
        self.objective.eval()
        moved = (batches.moved(part, self.processes.device) for part in self.parts)
        own = float(torch.stack([self.objective(**part) for part in moved]).sum())
        self.objective.train()
        self.objective.take_sent_bytes()  # they belong to no step
        nats, bad = self.processes.total(own, not distributed.finite(self.weights))
        trouble = divergence.update_trouble(
            bad > 0, nats / self._labels(), self.progress.first_loss
        )
        self._end_if(trouble, self.progress.step)

    def _end_if(self, trouble: str, step: int) -> None:
        if trouble:
            kept = checkpoints.last(self.checkpoints, before=step)
            raise divergence.diverged(trouble, step, self.parts, kept, self.run)

    def _evaluate(self, logs: Logs | None) -> None:
        if self.validation is None:
            return
        found = self.validation.evaluate(self.objective)
        self.objective.take_sent_bytes()  # they belong to no step
        loss = found["val_loss"]
        self._end_if("" if math.isfinite(loss) else f"val_loss is {loss}", self.progress.step)
        if logs:
            logs.row(self._place() | found)

    def _row(self, logs: Logs | None) -> None:
        progress = self.progress
        if logs:
            values = {
                "loss": progress.nats / progress.labels,
                "lr": self.lr,
                "grad_norm": self.norm,
                "tokens_per_second": round(progress.labels / progress.busy, 1),
                "waiting": round(progress.waited / progress.busy, 6),
            }
            if self.processes.sequence > 1:
                per_token = progress.exchanged / progress.labels / self.run.model.depth
                values["exchanged_bytes_per_layer_and_token"] = round(per_token, 3)
            logs.row(self._place() | values)
        progress.nats, progress.labels, progress.busy, progress.waited = 0.0, 0, 0.0, 0.0
        progress.exchanged = 0.0

    def _place(self) -> dict[str, Any]:
        seconds = round(time.monotonic() - self.began, 3)
        return {"step": self.progress.step, "tokens": self.progress.tokens, "seconds": seconds}

    def _samples(self, logs: Logs | None) -> None:
        model = distributed.whole_model(self.model, self.processes)
        if logs:
            logs.samples(
                self.progress.step, sample_texts(model, self.store.tokenizer, self.run.seed)
            )

    def _save(self, logs: Logs | None) -> None:
        model = distributed.whole_model(self.model, self.processes)
        moments = checkpoints.moments(self.model, self.optimizer)
        memory = distributed.gathered(moments.items(), self.processes)
        if logs:
            progress = self.progress
            progress.lengths, progress.scaler = logs.lengths(), self.scaler.state_dict()
            progress.seconds = time.monotonic() - self.began
            state = dataclasses.asdict(progress)
            checkpoints.write(self.checkpoints, model, memory, state, self.run.keep_checkpoints)

    def _finish(self) -> None:
        model = distributed.whole_model(self.model, self.processes)
        if not self.processes.first:
            return
        rows = read(self.folder, lambda line: None)
        how = trained(self.run, self.store, self.folder, rows, self.data_license)
        tokenizer = self.store.directory / TOKENIZER
        save(model, self.folder / MODEL, tokenizer=tokenizer, trained=how, overwrite=True)
        summarise(self.run, self.folder, self.processes.count, self.say)


def _seed(*key: int) -> int:
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:7], "big")
