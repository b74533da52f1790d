"""Every architecture through `fit`: it learns, goes on exactly, and may compute its blocks twice."""

from dataclasses import replace

import pytest
import torch

from tests.kill_worker import contents
from tests.models import FREE, NEEDED, used
from tests.toy import toy_run
from toeplix import load
from toeplix.architectures import ARCHITECTURES
from toeplix.training.logs import read
from toeplix.training.loop import fit

CASES = {arch: {"arch": arch, **NEEDED.get(arch, {})} for arch in ARCHITECTURES} | {
    "toeplitz-recurrent": {"filter": "recurrent", "groups": 4},
    "toeplitz-heads-kernels": FREE | {"heads": 4, "kernels": 2, "gate": False},
    "toeplitz-sequential-frozen": FREE | {"heads": 2, "sequential": 2, "frozen": "random"},
    "toeplitz-tied-rms": {
        "tie_embeddings": True,
        "norm": "rms",
        "block_order": "mlp_first",
        "final_norm": False,
    },
    "llama-tied": {"arch": "llama", "tie_embeddings": True},
}
SMALL = {"depth": 2, "steps": 9, "warmup": 1, "save_every": 3, "log_every": 1, "eval_every": 6}

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]


class Accident(Exception):
    pass


@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES)))
def test_it_learns_and_goes_on_exactly(store, tmp_path, number, case):
    protocol = ("packed", "padded")[number % 2]
    arch = CASES[case].get("arch", "toeplitz")
    settings = (
        CASES[case]
        | SMALL
        | {"protocol": protocol}
        | used(arch, state_size=8, window=9, dropout=0.0)
    )
    run = toy_run(store, batch=2, sample_every=9, **settings)
    model = load(fit(run, tmp_path / "whole"))
    losses = [row["loss"] for row in read(tmp_path / "whole") if "loss" in row]
    assert len(losses) == 9
    assert losses[-1] < losses[0]
    assert model(torch.tensor([[1, 2, 3]])).isfinite().all()

    def report(row):
        if row["step"] == 5:
            raise Accident

    with pytest.raises(Accident):
        fit(run, tmp_path / "broken", report=report)
    said = []
    fit(run, tmp_path / "broken", say=said.append)
    assert "going on after step 3 of 9" in said[0]
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")

    fit(replace(run, gradient_checkpointing=True), tmp_path / "twice")
    again = [row["loss"] for row in read(tmp_path / "twice") if "loss" in row]
    assert again == pytest.approx(losses, rel=1e-4)
