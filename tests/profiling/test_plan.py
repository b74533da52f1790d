"""Plans add up, and are refused with reasons."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer

from tests.toy import toy_store
from toeplix import Model, build, load, save
from toeplix.architectures import parameters
from toeplix.cli.main import app, main
from toeplix.inference.weight_layout import for_decoding
from toeplix.mixers import lookup
from toeplix.ops import recurrent, sequence_parallel
from toeplix.ops.recurrent import TILED_TIME
from toeplix.profiling.plan import HARDWARE, plan
from toeplix.training.presets import preset
from toeplix.training.run import Run

H100 = ("--hardware", "h100")
SMALL = Run(
    model=Model(arch="toeplitz", vocab=100, context=64, dim=32, depth=2),
    data="-",
    steps=10,
    warmup=1,
)


def test_numbers_add_up():
    found = plan(SMALL, HARDWARE["h100"], devices=2, efficiency=0.5)
    assert found["tokens"] == 10 * 2 * SMALL.batch * 64
    assert found["flops"] == 10 * found["flops_per_step"]
    seconds = found["flops_per_step"] / (2 * 67e12 * 0.5)
    assert found["seconds_per_step"] == pytest.approx(seconds)
    assert found["weight_bytes"] == 16 * found["parameters"]
    assert found["fits"]


def test_the_papers_step_is_six_operations_a_weight_and_token():
    """And its published speed on two H100 is that of the assumed efficiency."""
    run = preset("paper-tmm-512", "-", batch=64, precision="bfloat16")
    found = plan(run, HARDWARE["h100"], devices=2, efficiency=None)
    matrices = found["parameters"] - 8000 * 512  # the embedding is looked up, not multiplied
    assert found["flops_per_step"] == pytest.approx(6 * matrices * 65536, rel=0.1)
    assert 1 / found["seconds_per_step"] == pytest.approx(9.30, rel=0.1)


def test_the_documentation_has_the_default_plans():
    """The table of docs/scaling.md: seconds per step, hours and GiB, by the efficiencies of HARDWARE."""
    text = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text()
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| paper-")]
    assert len(rows) == 5
    for name, h100, v100, memory in rows:
        setups = (("h100", 2, 64, "bfloat16"), ("v100", 4, 32, "float16"))
        pairs = zip(setups, (h100, v100), memory.split("/"), strict=True)
        for (hardware, devices, batch, precision), time, size in pairs:
            run = preset(name.strip(), "-", batch=batch, precision=precision)
            found = plan(run, HARDWARE[hardware], devices, None)
            step, hours = time.removesuffix(" hours ").split(",")
            assert f"{found['seconds_per_step']:.2f}" == step.strip()
            assert f"{found['seconds'] / 3600:.0f}" == hours.strip()
            used = (found["weight_bytes"] + found["activation_bytes"]) / 2**30
            assert f"{used:.1f}" == size.strip()


@pytest.mark.parametrize("hardware", HARDWARE)
def test_a_plan_says_what_it_assumes(hardware, monkeypatch, capsys):
    monkeypatch.setattr(
        "sys.argv", ["toeplix", "plan", "demo", "--hardware", hardware, "--precision", "float16"]
    )
    monkeypatch.setenv("COLUMNS", "100")
    main()
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if "efficiency" in line)
    share = HARDWARE[hardware].efficiency["float16"]
    assert f"{share:.0%} of" in line
    assert HARDWARE[hardware].basis["float16"] in line
    assert max(map(len, lines)) <= 100


def test_an_efficiency_that_is_given_is_said_to_be():
    found = plan(SMALL, HARDWARE["h100"], devices=1, efficiency=0.5)
    assert (found["efficiency"], found["efficiency_basis"]) == (0.5, "given")


def test_checkpointing_trades_memory_for_time():
    long = replace(SMALL, model=replace(SMALL.model, depth=12))
    usual, thrifty = (
        plan(replace(long, gradient_checkpointing=on), HARDWARE["h100"], 1, None)
        for on in (False, True)
    )
    assert thrifty["activation_bytes"] < 0.3 * usual["activation_bytes"]
    assert thrifty["flops"] == pytest.approx(usual["flops"] * 4 / 3)


def test_dividing_takes_less_of_each_device():
    deep = replace(SMALL, model=replace(SMALL.model, depth=50), parallel="fsdp")
    whole = plan(replace(deep, parallel="ddp"), HARDWARE["h100"], 8, None)
    parts = plan(deep, HARDWARE["h100"], 8, None)
    kept = whole["weight_bytes"] // 8
    two_blocks = plan(SMALL, HARDWARE["h100"], 1, None)["parameters"]  # and the ends
    assert parts["weight_bytes"] == kept + 8 * two_blocks
    assert parts["weight_bytes"] < 0.2 * whole["weight_bytes"]
    llama = replace(deep, model=replace(deep.model, arch="llama"))
    found = plan(llama, HARDWARE["h100"], 8, None)  # gathered in one piece
    assert found["weight_bytes"] == 2 * found["parameters"] + 8 * found["parameters"]


@pytest.mark.parametrize("arch", ["toeplitz", "masked", "hyena", "linear", "window", "mamba2"])
def test_every_architecture_has_a_plan(arch):
    run = replace(SMALL, model=replace(SMALL.model, arch=arch))
    assert plan(run, HARDWARE["a100"], 1, None)["decode_bytes"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "nothing is no preset"),
        (["demo", "--hardware", "abacus"], "one of cpu, h100"),
        (["demo", "--hardware", "v100", "--precision", "bfloat16"], "has no bfloat16"),
        (["demo", "--hardware", "h100", "--efficiency", "2"], r"must be in (0, 1]"),
        (
            ["demo", "--hardware", "h100", "--parallel", "both"],
            "parallel='both' must be one of ddp",
        ),
    ],
)
def test_bad_plans_are_one_line(arguments, words, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["toeplix", "plan", *arguments])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_the_command_reads_a_run(monkeypatch, capsys, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(SMALL.to_dict()))
    monkeypatch.setattr(
        "sys.argv", ["toeplix", "plan", str(tmp_path), "--hardware", "h100", "--json"]
    )
    main()
    found = json.loads(capsys.readouterr().out)
    assert found["tokens"] == SMALL.steps * SMALL.batch * 64


def planned(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["toeplix", "plan", *map(str, arguments)])
    main()
    return capsys.readouterr()


def test_a_plan_takes_the_settings_of_training(monkeypatch, capsys, tmp_path):
    """With the vocabulary of a store, as `toeplix train` has it."""
    store = toy_store(tmp_path)
    given = ["laptop", "--dim", 128, "--heads", 4, "--steps", 20, "--batch", 2]
    said = planned(monkeypatch, capsys, *given, "--data", store.directory, *H100, "--json")
    model = replace(preset("laptop", "-").model, dim=128, heads=4, vocab=store.vocab)
    found = json.loads(said.out)
    assert found["parameters"] == parameters(model)
    assert found["tokens"] == 20 * 2 * model.context
    assert "warmup=100 is longer than steps=20: shortened to 2" in said.err


def test_every_option_of_a_setting_is_an_option_of_plan():
    commands = typer.main.get_command(app).commands
    plan, train = ({each.name for each in commands[name].params} for name in ("plan", "train"))
    assert train - plan == {"out", "config", "restart", "verify", "data_license"}


def test_the_time_on_a_gpu_is_said_to_be_a_lower_bound(monkeypatch, capsys):
    words = "a lower bound, without launch overhead"
    shown = " ".join(planned(monkeypatch, capsys, "demo", *H100).out.replace("│", " ").split())
    assert words in shown


def test_the_layout_changes_no_value(tmp_path):
    model = build(SMALL.model).eval()
    tokens = torch.randint(100, (1, 20))
    expected = model(tokens)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for_decoding(model)
    wide = model.blocks[0].channel_mixer[0].weight
    assert wide.stride() == (1, wide.shape[0])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    torch.testing.assert_close(model(tokens), expected)
    again = load(save(model, tmp_path))
    assert all(torch.equal(value, before[name]) for name, value in again.state_dict().items())


def path_of(hardware, batch=16, precision="float32", **settings):
    run = replace(SMALL, model=replace(SMALL.model, **settings), batch=batch, precision=precision)
    return plan(run, hardware, 1, None)["path"]


CPU = replace(HARDWARE["h100"], kind="cpu")


def test_the_path_is_that_of_the_hardware():
    """Between 384 and 1024 positions a GPU multiplies tiles where a CPU transforms."""
    assert path_of(HARDWARE["h100"], context=512, filter="free") == "blocked"
    assert path_of(CPU, context=512, filter="free") == "fft"
    half = {"precision": "float16", "context": 512, "filter": "free", "heads": 2}
    assert path_of(HARDWARE["h100"], **half) == "triton"
    assert path_of(HARDWARE["v100"], **half) == "blocked"  # no kernels below capability 8.0


@pytest.mark.parametrize("context", [TILED_TIME, TILED_TIME + 1, 512])
@pytest.mark.parametrize("groups", [1, 8])
def test_the_path_of_recurrent_filters_is_what_they_take(context, groups, monkeypatch):
    """The witness is the model: tiles are a product with taps, and everything else the recurrence."""
    taken = []
    product, recurrence = recurrent.toeplitz_product, recurrent.toeplitz_recurrent
    monkeypatch.setattr(
        recurrent, "toeplitz_product", lambda *a: (taken.append("blocked"), product(*a))[1]
    )
    monkeypatch.setattr(
        recurrent, "toeplitz_recurrent", lambda *a: (taken.append("recurrent"), recurrence(*a))[1]
    )
    model = replace(SMALL.model, context=context, groups=groups)
    build(model)(torch.zeros(1, context, dtype=torch.long))
    assert {path_of(CPU, context=context, groups=groups)} == set(taken)


def test_a_plan_names_the_path_of_every_kind_of_block():
    kinds = {"arch": "hybrid", "blocks": ("toeplitz", "lookup"), "context": 512}
    assert path_of(HARDWARE["h100"], **kinds) == "toeplitz: recurrent, lookup: chunks"
    assert path_of(HARDWARE["v100"], **kinds) == "toeplitz: recurrent, lookup: tiles"
    assert path_of(CPU, **kinds | {"filter": "free"}) == "toeplitz: fft, lookup: tiles"
    assert path_of(CPU, arch="linear") == "none: no long filters"


OPERATORS = {  # and the argument that is examined
    (sequence_parallel, "multiply_recurrent"): 0,
    (sequence_parallel, "toeplitz_windowed"): 0,
    (lookup, "lookup_recurrent_whole"): 2,
    (lookup, "toeplitz_lookup"): 2,
}


@pytest.mark.parametrize(
    "settings",
    [
        {"arch": "hybrid", "blocks": ("toeplitz", "lookup")},
        {"heads": 2},
        {"heads": 2, "filter": "free"},
        {"filter": "free", "block_order": "mlp_first", "norm": "rms"},
        {"arch": "lookup", "filter": "free"},
        {"arch": "hyena"},
    ],
    ids=str,
)
def test_the_dtype_of_operators_is_what_autocast_gives_them(settings, monkeypatch):
    seen = set()
    for (module, name), number in OPERATORS.items():
        operator = getattr(module, name)

        def examined(*given, operator=operator, number=number):
            seen.add(str(given[number].dtype).removeprefix("torch."))
            return operator(*given)

        monkeypatch.setattr(module, name, examined)
    run = replace(SMALL, model=replace(SMALL.model, **settings), precision="bfloat16")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        build(run.model)(torch.zeros(1, 64, dtype=torch.long))
    given = frozenset(seen)  # a plan counts the activations of a model in float32
    half, single = (
        plan(replace(run, precision=precision), HARDWARE["h100"], 1, None)
        for precision in ("bfloat16", "float32")
    )
    assert {half["operator_precision"]} == given
    alike = half["operator_estimates"] == single["operator_estimates"]
    assert alike == (given == {"float32"})
