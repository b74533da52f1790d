"""--device and --dtype: names are checked before work starts, and an automatic choice is told."""

import pytest
import torch

from tests.cli.test_generate import TEXT
from toeplix import Model, build, devices, save
from toeplix.cli.main import main
from toeplix.data import Tokenizer
from toeplix.inference.loading import load_pretrained
from toeplix.inference.quantization import save_quantized
from toeplix.mixers.quantized import SCHEMES
from toeplix.serving.service import open_service

PLACED = {  # commands with both options, and arguments that would take long if work started
    "generate": ["nowhere"],
    "serve": ["nowhere", "--port", "0"],
    "explore": ["."],
    "eval": ["nowhere"],
    "probe": ["nowhere"],
    "bench ops": [],
    "bench recurrent": [],
    "bench prefill": [],
    "bench decode": [],
    "bench training": [],
    "bench family": [],
    "bench long": [],
    "bench eval": [],
    "bench serve": [],
}


def call(monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", ["toeplix", *map(str, words)])
    try:
        main()
        status = 0
    except SystemExit as leaving:
        status = leaving.code
    return status, *capsys.readouterr()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer.train([TEXT] * 20, 280)
    tokenizer.save(folder)
    save(build(Model(vocab=tokenizer.vocab, context=32, dim=16, depth=1)), folder)
    return folder


@pytest.mark.parametrize("command", [*PLACED, "spectrum", "doctor"])
def test_bad_devices_are_one_line_before_work_starts(command, monkeypatch, capsys, trained):
    own = PLACED.get(command, [trained] if command == "spectrum" else [])
    for name, told in (
        ("banana", "device 'banana' is unknown"),
        ("cuda:99", "device 'cuda:99' is not there"),
        ("meta", "computes no values"),
    ):
        words = (*command.split(), *own, "--device", name)
        status, out, error = call(monkeypatch, capsys, *words)
        assert status == 2, words
        assert told in error
        assert error.count("\n") == 1
        assert out == ""


@pytest.mark.parametrize("command", PLACED)
def test_bad_dtypes_are_one_line_before_work_starts(command, monkeypatch, capsys):
    words = (*command.split(), *PLACED[command], "--device", "cpu", "--dtype", "int8")
    status, out, error = call(monkeypatch, capsys, *words)
    assert status == 2
    assert error == (
        "toeplix: dtype 'int8' is unknown: auto, float32, bfloat16, float16, float64\n"
    )
    assert out == ""


@pytest.mark.parametrize("command", ["bench data", "bench spectrum", "bench quantize"])
def test_benchmarks_of_the_cpu_have_no_such_options(command, monkeypatch, capsys):
    for option in ("--device", "--dtype"):
        status, _, error = call(monkeypatch, capsys, *command.split(), option, "auto")
        assert status == 2
        assert f"No such option: {option}" in error


def test_an_automatic_choice_is_told(trained, monkeypatch, capsys):
    monkeypatch.setattr(devices, "_count", lambda kind: 0)
    words = ("generate", trained, "to", "--max-new-tokens", 3)
    status, _, error = call(monkeypatch, capsys, *words)
    assert status == 0
    assert error == "toeplix: using cpu: no CUDA or MPS device was found; see --device\n"
    status, _, error = call(monkeypatch, capsys, *words, "--device", "cpu")
    assert (status, error) == (0, "")


def test_the_order_of_automatic_choices(monkeypatch):
    for there, expected in ((("cuda", "mps"), "cuda"), (("mps",), "mps"), ((), "cpu")):
        monkeypatch.setattr(devices, "_count", lambda kind, there=there: int(kind in there))
        assert devices.choose_device().type == expected
    assert devices.choose_device("cpu:3") == torch.device("cpu")


@pytest.mark.parametrize("name", devices.DTYPES)
def test_text_in_every_dtype(trained, monkeypatch, capsys, name):
    words = ("generate", trained, "to be", "--max-new-tokens", 5, "--device", "cpu")
    status, out, error = call(monkeypatch, capsys, *words, "--dtype", name)
    assert (status, error) == (0, "")
    assert out.startswith("to be")
    model = load_pretrained(trained, dtype=devices.DTYPES[name]).model
    assert {weight.dtype for weight in model.parameters()} == {devices.DTYPES[name]}


@pytest.mark.parametrize("name", devices.DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_of_quantized_weights_in_every_dtype(
    trained, tmp_path, monkeypatch, capsys, scheme, name
):
    """The dtype is that of all that is not quantized; a quantized checkpoint gives the same text."""
    stored = tmp_path / "quantized"
    save_quantized(load_pretrained(trained, quantize=scheme).model, trained, stored)
    texts = []
    for words in ((trained, "to be", "--quantize", scheme), (stored, "to be")):
        options = ("--max-new-tokens", 5, "--device", "cpu", "--dtype", name)
        status, out, error = call(monkeypatch, capsys, "generate", *words, *options)
        assert (status, error) == (0, "")
        texts.append(out)
    assert texts[0] == texts[1]
    assert texts[0].startswith("to be")


def test_a_service_in_bfloat16(trained):
    service = open_service(trained, dtype=torch.bfloat16)
    try:
        assert service.model.head.weight.dtype == torch.bfloat16
    finally:
        service.close()
