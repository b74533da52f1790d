"""Loss by repeated bigrams: which tokens they are, and that the parts make up the whole."""

from dataclasses import replace

import pytest
import torch

from toeplix.config import IGNORED
from toeplix.experiments.engine import text_rows, text_training
from toeplix.experiments.engine.curves import table
from toeplix.experiments.engine.models import MODELS
from toeplix.experiments.engine.repeated_bigrams import repeated
from toeplix.experiments.engine.rows import record
from toeplix.experiments.engine.scale import SCALES


def counted(tokens, labels):
    """By the definition, token after token."""
    seen, found = set(), []
    for pair in zip(tokens, labels, strict=True):
        found.append(pair in seen and pair[1] != IGNORED)
        seen.add(pair)
    return found


def test_packed_documents_are_apart():
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(4, (41,), generator=generator)
    tokens, labels, offsets = text[None, :-1], text[None, 1:], torch.tensor([0, 7, 22, 40])
    wanted = [
        each
        for first, last in ((0, 7), (7, 22), (22, 40))
        for each in counted(tokens[0, first:last].tolist(), labels[0, first:last].tolist())
    ]
    found = repeated({"tokens": tokens, "labels": labels, "offsets": offsets})
    assert found[0].tolist() == wanted
    assert any(wanted)


def test_padded_rows_are_apart():
    tokens = torch.tensor([[1, 2, 1, 0], [1, 2, 1, 2]])
    labels = torch.tensor([[2, 1, 2, IGNORED], [2, 1, 2, 1]])
    found = repeated({"tokens": tokens, "labels": labels, "mask": tokens != 0})
    assert found.tolist() == [[False, False, True, False], [False, False, True, True]]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_parts_make_up_the_loss(tmp_path):
    scale = replace(SCALES["smoke"], context=64, eval_sequences=8)
    case = text_rows.Case.of(scale, "llama", MODELS["llama"], lr=1e-2, seed=0)
    found = text_training.measure(case, tmp_path)
    split = found["split_loss"]
    share = split["repeated_fraction"]
    assert 0 < share < 1
    whole = share * split["repeated"] + (1 - share) * split["other"]
    assert whole == pytest.approx(found["loss"], abs=2e-3)  # the fraction has four digits
    row = record(case) | found
    assert "loss on repeated bigrams" in table([row])[0]
    assert 0 < split["rare_repeated_fraction"] <= share
    assert split["max_seen"] == 1
    assert "on rare ones" in table([row])[0]
    older = {name: split[name] for name in ("repeated", "other", "repeated_fraction")}
    assert "on rare ones" not in table([row | {"split_loss": older}])[0]
    del row["split_loss"]
    assert "loss on repeated bigrams" not in table([row])[0], "rows of older versions stay readable"
