"""Rows of different ages in one batch: the logits of each are those of the whole sequence alone."""

import pytest
import torch

from tests.models import FREE, small
from toeplix import build
from toeplix.inference.ragged import SeparateStates, SharedState, ragged_batch

SIZES = {"vocab": 37, "context": 48, "dim": 16, "depth": 2, "state_size": 8, "window": 7}
FORMS = {
    "flat": FREE,
    "heads": FREE | {"heads": 4},
    "ungated": FREE | {"gate": False, "heads": 2},
    "kernels": FREE | {"kernels": 3, "heads": 2},
    "sequential": FREE | {"sequential": 2},
    "recurrent": {"arch": "toeplitz", "groups": 2},
    "hybrid": {"arch": "hybrid", "blocks": ("lookup", "toeplitz")},
    "lookup-free": {"arch": "lookup", "filter": "free"},
    "attention": {"arch": "attention"},
    "paper": FREE
    | {
        "block_order": "mlp_first",
        "final_norm": False,
        "init": "paper",
        "filter_init": "kaiming",
    },
    "masked": {"arch": "masked", "heads": 2},
    "hyena": {"arch": "hyena"},
    "linear": {"arch": "linear"},
    "llama": {"arch": "llama", "depth": 1},
    "mamba2": {"arch": "mamba2", "depth": 1},
}
# prompt, when it joins, tokens that follow, copies
ROWS = [(3, 0, 50, 1), (1, 0, 9, 1), (60, 5, 36, 2), (17, 5, 3, 1), (2, 60, 5, 3)]


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_company_changes_nothing(form):
    torch.manual_seed(1)
    model = build(small(**(SIZES | FORMS[form]))).double().eval()
    for name, value in model.named_parameters():
        if name.endswith("bias"):  # which start at zero and would hide a wrong position
            value.normal_()
    rows = ragged_batch(model, 50)
    assert isinstance(rows, SeparateStates if form in ("llama", "mamba2") else SharedState)
    here: list[dict] = []
    ended = []
    for time in range(70):
        for prompt, begin, new, copies in ROWS:
            if begin == time:
                tokens = torch.randint(37, (1, prompt + new))
                state = model.start()
                _, state = model.advance(tokens[:, :prompt], state)
                rows.add(state, copies)
                for _ in range(copies):
                    follow = torch.cat([tokens[0, :prompt], torch.randint(37, (new,))])
                    here.append({"tokens": follow, "at": prompt, "logits": []})
        if here:
            found = rows.step([int(row["tokens"][row["at"]]) for row in here])
            for row, logits in zip(here, found, strict=True):
                row["logits"].append(logits)
                row["at"] += 1
        staying = [place for place, row in enumerate(here) if row["at"] < len(row["tokens"])]
        ended += [row for row in here if row["at"] == len(row["tokens"])]
        if len(staying) < len(here):
            rows.keep(staying)
            here = [here[place] for place in staying]
        assert rows.rows == len(here)
    assert len(ended) == sum(copies for *_, copies in ROWS)
    for row in ended:
        expected = model(row["tokens"][None])[0, -len(row["logits"]) :]
        torch.testing.assert_close(torch.stack(row["logits"]), expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [[-1], [0, 2]])
@torch.no_grad()
def test_rows_that_are_not_here_are_rejected(form, rows):
    """And nothing has changed: the two that are here go on."""
    model = build(small(**(SIZES | FORMS[form]))).eval()
    found = []
    for wrong in (False, True):
        both = ragged_batch(model, 50)
        both.add(model.advance(torch.tensor([[1, 2, 3]]), model.start())[1], copies=2)
        if wrong:
            with pytest.raises(IndexError, match=rf"row {rows[-1]} does not exist.*0 .. 1"):
                both.keep(rows)
        found.append(both.step([4, 5]))
    assert torch.equal(*found)
