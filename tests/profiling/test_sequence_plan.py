"""Plans of divided sequences: what is exchanged, and how long a row may be."""

import json

import pytest

from toeplix import Model
from toeplix.cli.main import main
from toeplix.profiling.plan import HARDWARE, plan
from toeplix.profiling.sequence_plan import attention_bytes, exchanged_bytes
from toeplix.training.run import Run

FREE = Model(arch="toeplitz", filter="free", dim=64, depth=2, context=4096)
RECURRENT = Model(arch="toeplitz", dim=64, depth=2, context=4096, filter="recurrent", groups=4)
H100 = HARDWARE["h100"]


def planned(model, devices, **settings):
    run = Run(model=model, data="-", batch=1, **{"parallel": "sequence"} | settings)
    return plan(run, H100, devices, None)


def test_free_filters_send_a_part_of_what_attention_sends():
    for processes in (2, 4, 8):
        sent, attention = exchanged_bytes(FREE, processes), attention_bytes(64, processes)
        assert sent == 4 * 4 * 64 * (processes - 1) / processes
        assert attention["all_to_all"] == 2 * sent
        assert attention["ring"] == 1.5 * processes * sent


def test_recurrent_filters_send_less_the_longer_the_row():
    one, other = (
        exchanged_bytes(Model(arch="toeplitz", dim=64, depth=2, context=n, filter="recurrent"), 4)
        for n in (4096, 8192)
    )
    assert one == 2 * other
    # 16 taps and 8 decays: 15 inputs over 3 borders, 8 sums in rounds of 3, 3 and 2 messages
    assert one == 2 * 4 * 64 * (15 * 3 + 8 * (3 + 3 + 2)) / 4096


def test_devices_divide_activations_and_lengthen_rows():
    alone, four = (planned(RECURRENT, devices) for devices in (1, 4))
    assert four["activation_bytes"] == pytest.approx(alone["activation_bytes"] / 4, rel=0.01)
    assert four["weight_bytes"] == alone["weight_bytes"]
    assert four["tokens_per_step"] == alone["tokens_per_step"]
    assert "exchanged_bytes" not in alone
    longest = four["longest_contexts"]
    assert list(longest) == [1, 2, 4]
    assert longest[2] == 2 * longest[1] > 0
    assert longest[4] == 4 * longest[1]
    sharded = planned(RECURRENT, 4, parallel="sequence+fsdp")
    assert sharded["weight_bytes"] < four["weight_bytes"]
    pairs = planned(RECURRENT, 4, sequence_processes=2)
    assert pairs["tokens_per_step"] == 2 * four["tokens_per_step"]


def test_taps_of_free_filters_take_memory_too():
    """A long free filter has 16 bytes a tap of weights, gradients and moments, and as many of biases."""
    model = Model(
        arch="toeplitz", filter="free", dim=2, depth=1, context=512, mlp_ratio=1, vocab=300
    )
    run = Run(model=model, data="-", batch=1, parallel="sequence")
    longest = plan(run, H100, 64, None)["longest_contexts"]
    assert longest[64] < 64 * longest[1]


def test_the_command(monkeypatch, capsys, tmp_path, unchecked):
    monkeypatch.setenv("COLUMNS", "200")  # nothing is folded
    file = tmp_path / "run.json"
    file.write_text(json.dumps(Run(model=RECURRENT, data="-").to_dict()))
    given = ["toeplix", "plan", str(file), "--hardware", "h100", "--devices", "4"]
    monkeypatch.setattr("sys.argv", [*given, "--parallel", "sequence", "--context", "8192"])
    main()
    shown = capsys.readouterr().out
    assert "bytes per layer and token" in shown
    assert "longest row" in shown
    monkeypatch.setattr("sys.argv", [*given, "--parallel", "sequence", "--sequence-processes", "3"])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 2
    assert "sequence_processes=3 does not divide devices=4" in capsys.readouterr().err
