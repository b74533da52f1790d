"""Benchmarks of whole models: every contender computes the same, tables hold what was measured."""

import json

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from tests.models import FREE
from toeplix import Model, build
from toeplix.architectures import forward_flops
from toeplix.cli.main import app
from toeplix.mixers.filter import Filter
from toeplix.profiling.bench import inference, long_prompts, quantization, training

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("way", ["history", "concatenate"])
def test_the_ways_to_decode_agree(way):
    """The same weights and past: the same logits as near-linear decoding."""
    model = build(Model(**FREE, vocab=37, context=64, dim=16, depth=2)).eval()
    states = []
    for name in ("near-linear", way):
        torch.manual_seed(1)
        states.append(inference.mixer_state(name, model, 64))
    for token in torch.randint(37, (40, 1, 1)):
        (ours, _), (theirs, _) = (model.step(token, state) for state in states)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_the_plain_filter_is_the_filter():
    layer = Filter(2, 16)
    layer.reset("kaiming")
    layer.bias.data.normal_()
    x = torch.randn(3, 10, 2, 4)
    torch.testing.assert_close(training.gathered(layer, x), layer(x))


def test_both_losses_are_the_loss():
    model = build(Model(vocab=37, context=16, dim=16, depth=1))
    tokens = torch.randint(37, (2, 17))
    given = (model, tokens[:, :-1], tokens[:, 1:])
    torch.testing.assert_close(training.chunked_loss(*given), training.full_loss(*given))


def test_model_flops_count_the_triangle():
    config = Model.paper(heads=0, dim=32, depth=3, context=64, vocab=50)
    whole = 3 * 32 * 2 * 64 * 64  # of one tile: all of it is computed, half of it counts
    triangle = 3 * 32 * 64 * 65
    assert training.model_flops(config, 64) == forward_flops(config, 64) - whole + triangle


def test_published_ratios_are_those_of_the_paper():
    """Its words: 2.0 times Hyena and 2.4 times Mamba 2, at 1024 2.1 and 2.8, half of Hyena's memory."""
    times = [
        training.published(case, dim)[0] for dim in (512, 1024) for case in ("hyena", "mamba2")
    ]
    assert times == pytest.approx([2.0, 2.4, 2.1, 2.8], abs=0.05)
    assert training.published("hyena", 1024)[1] == pytest.approx(2, abs=0.15)
    assert training.published("llama", 512) == (None, None)
    assert training.published("toeplitz", 512) == (1.0, 1.0)


def test_tables_of_small_models(capsys, monkeypatch):
    some = {name: training.CASES[name] for name in ("toeplitz", "llama")}
    monkeypatch.setattr(training, "CASES", some)  # each is measured in a process of its own
    console = Console(width=140)
    found = inference.prefill_rows(console, times=[32], dim=16, depth=1)
    assert found["rows"][0]["ratio"] > 0
    assert 0 < found["rows"][0]["limit"] < 1
    found = inference.decoding_rows(console, contexts=[64], dim=16, depth=1)
    assert {row["way"] for row in found["rows"]} == set(inference.WAYS)
    found = training.run(console, dim=16, depth=1, batch=2, context=16, seconds=0.0)
    assert {row["case"] for row in found["rows"]} == {*some, training.PLAIN_TOEPLITZ}
    assert all(row["milliseconds"] > 0 for row in found["rows"])
    shown = capsys.readouterr().out
    assert "worst over median" in shown
    assert "ratios: to toeplitz" in shown


def test_quantized_models_take_turns(capsys):
    config = Model(vocab=37, context=16, dim=16, depth=1)
    found = quantization.run(Console(width=140), model=config, batches=[1, 3], rounds=2)
    assert [(row["batch"], row["weights"]) for row in found["rows"]] == [
        (batch, name) for batch in (1, 3) for name in ("float32", "int8", "bfloat16")
    ]
    for row in found["rows"]:
        assert row["tokens_per_second"] > 0
        assert (row["ratio"] == 1) == (row["weights"] == "float32")
    assert "relative to float32" in capsys.readouterr().out


def test_long_prompts_in_another_dtype():
    """The name of the dtype is in the document; the processes that measure take it from this one."""
    options = "--dim 16 --depth 1 --context 8 --llama 16 --threads 1 --device cpu --dtype bfloat16"
    result = CliRunner().invoke(app, ["bench", "long", "32", *options.split()])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["machine"]["dtype"] == "bfloat16"
    assert [row["tokens"] for row in found["rows"]] == [32, 16]


@pytest.mark.parametrize("filters", ["free", "recurrent"])
def test_long_prompts(filters, capsys):
    config = Model(arch="toeplitz", vocab=37, context=32, dim=16, depth=1, filter=filters)
    found = long_prompts.run(
        Console(width=140), model=config, tokens=[64, 256], llama=[64], chunk=48
    )
    assert [(row["arch"], row["tokens"]) for row in found["rows"]] == [
        ("toeplitz", 64),
        ("toeplitz", 256),
        ("llama", 64),
    ]
    assert found["rows"][0]["over_first"] == found["rows"][2]["over_first"] == 1
    assert all(row["peak_bytes"] >= 0 and row["seconds"] > 0 for row in found["rows"])
    assert "over first" in capsys.readouterr().out
