"""Loss by position: the reading in chunks, and the means over seeds."""

import pytest
import torch
from torch.nn import functional as F

from tests.experiments.rows_by_hand import learned
from toeplix import build
from toeplix.experiments import SCALES, length


def model(name):
    case = length.cases(SCALES["smoke"], [])[0]
    settings = length.COMPARED[name]
    torch.manual_seed(0)
    made = build(length.Case(**vars(case) | {"settings": settings}).config(50))
    return made.double().eval()


@pytest.mark.parametrize("name", length.COMPARED)
def test_reading_in_chunks_is_the_full_forward(name, monkeypatch):
    """Within the context, where the forward pass is defined for all models."""
    mine = model(name)
    tokens = torch.randint(0, 50, (mine.config.context + 1,))
    logits = mine(tokens[None, :-1])
    full = F.cross_entropy(logits[0], tokens[1:], reduction="none")
    monkeypatch.setattr(length, "CHUNK", 3)
    torch.testing.assert_close(length.position_losses(mine, tokens), full.detach())


@pytest.mark.parametrize("name", length.COMPARED)
def test_chunks_agree_beyond_the_context(name, monkeypatch):
    mine = model(name)
    tokens = torch.randint(0, 50, (4 * mine.config.context + 1,))
    whole = length.position_losses(mine, tokens)
    monkeypatch.setattr(length, "CHUNK", 3)
    torch.testing.assert_close(length.position_losses(mine, tokens), whole)


@pytest.mark.parametrize(
    ("name", "further"), {"free": 0, "hyena": 2, "recurrent": None, "llama": None}.items()
)
def test_how_far_back_one_block_sees(name, further):
    """Free filters see the context, Hyena two more for its short convolution, the others everything."""
    case = length.cases(SCALES["smoke"], [])[0]
    fields = vars(case) | {"settings": length.COMPARED[name], "depth": 1}
    torch.manual_seed(0)
    mine = build(length.Case(**fields).config(50)).double().eval()
    with torch.no_grad():
        for weight in mine.parameters():  # decays begin with weights of zero
            weight.add_(0.1 * torch.randn_like(weight))
    tokens = torch.randint(0, 50, (4 * case.context + 1,))
    other = tokens.clone()
    other[0] = (tokens[0] + 1) % 50
    losses, changed = (length.position_losses(mine, each) for each in (tokens, other))
    seen = (losses - changed).abs() > 1e-12
    assert seen[0]
    assert seen[case.context :].any() == (further != 0)
    if further is not None:
        assert not seen[case.context + further :].any()


def test_means_skip_runs_without_a_reading():
    rows = learned("hyena", 3.0)
    for row, values in zip(rows, ([3.0, 2.0], [5.0, 4.0], []), strict=True):
        row["by_position"] = [[4 * (1 + place), value] for place, value in enumerate(values)]
    (line,) = length.table(rows)
    assert line["to 4"].startswith("4.000 ± ")
    assert line["to 8"].startswith("3.000 ± ")
    for row in rows:
        row["by_position"] = []
    assert not any(name.startswith("to ") for name in length.table(rows)[0])
