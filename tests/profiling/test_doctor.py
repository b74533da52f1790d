"""The doctor finds the CPU well, says what is wrong with a path that is, and leaves one report."""

import json

import pytest
import torch
from rich.console import Console

from toeplix.cli.main import main
from toeplix.ops import chunked, dispatch, fft, lookup_chunks, lookup_tiles, paths
from toeplix.ops.recurrent_filter import Filter
from toeplix.profiling import contract, doctor, model_contract, recurrent_contract
from toeplix.profiling.bench import tune
from toeplix.profiling.contract import Check, Compared

CPU = torch.device("cpu")


@pytest.fixture
def rule(tmp_path, monkeypatch):
    file = tmp_path / "paths.json"
    monkeypatch.setenv("TOEPLIX_RULE", str(file))
    dispatch.current_rule.cache_clear()
    yield file
    dispatch.current_rule.cache_clear()


@pytest.fixture
def few(monkeypatch):
    """A small part of everything, so that a command takes seconds."""
    monkeypatch.setitem(contract.SIZES, "quick", (33,))
    monkeypatch.setattr(contract, "DTYPES", (torch.float64, torch.float32))
    monkeypatch.setattr(
        tune, "GROUPS", {tune.PER_CHANNEL: tune.Group(2, 3, 1), "4": tune.Group(1, 1, 4)}
    )
    monkeypatch.setitem(doctor.LENGTHS, "quick", (8, 40))
    monkeypatch.setattr(doctor, "PRODUCTS", (150,))
    monkeypatch.setitem(recurrent_contract.SIZES, "quick", (33,))
    monkeypatch.setattr(doctor, "ARCHITECTURES", {"toeplitz": None})
    some = model_contract.model_checks
    monkeypatch.setattr(model_contract, "model_checks", lambda device: some(device, ["toeplitz"]))


def call(monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["toeplix", "doctor", *map(str, words)])
    try:
        main()
    except SystemExit as leaving:
        return leaving.code
    return 0


def test_the_cpu_is_well(few, rule, tmp_path, monkeypatch, capsys):
    out = tmp_path / "report.json"
    words = ("--device", "cpu", "--quick", "--tune", "--out", out)
    assert call(monkeypatch, *words) == 0, capsys.readouterr().out
    report = json.loads(out.read_text())
    assert report["passed"]
    assert report["versions"]["torch"].startswith(torch.__version__.partition("+")[0])
    assert report["device"]["type"] == "cpu"
    for check in report["checks"]:
        assert check["passed"], check
        assert check["deviation"] is None or check["deviation"] <= check["tolerance"]
    names = {check["name"] for check in report["checks"]}
    assert {"fft, float32, t=33: gradient of kernel", "ragged decoder, float64"} <= names
    assert {f"toeplitz: {way}" for way in model_contract.WAYS} <= names
    assert {"toeplitz, free filters: gradients", "lookup tiles, float32, t=33: values"} <= names
    timed = report["timings"]["milliseconds"]
    assert {f"{kind} decoder, a step" for kind in ("history", "online", "ragged", "recurrent")} | {
        "recurrent product, t=150, forward+backward",
        "lookup, t=150, forward+backward",
        "toeplitz, forward+backward",
    } == timed.keys()
    written = json.loads(rule.read_text())["rule"]
    assert written == report["rule"]
    assert report["timings"]["nanoseconds_per_element"]["cpu"]["4"]["40"].keys() >= {
        "fft",
        "blocked",
    }
    assert f"{len(names)} of {len(names)} checks passed" in capsys.readouterr().out


def test_a_wrong_path_is_found(few, rule, tmp_path, monkeypatch, capsys):
    """A path that is a hundredth of a per cent off, and is told by name; its speed makes no rule."""
    wrong = paths.Path(
        lambda x, kernel: fft.product(x, kernel) * 1.0001, fft.gradient, exact=False, converts=True
    )
    monkeypatch.setitem(paths.PATHS, "fft", wrong)
    out = tmp_path / "report.json"
    words = ("--device", "cpu", "--quick", "--tune", "--out", out)
    assert call(monkeypatch, *words) == 1
    report = json.loads(out.read_text())
    failed = {check["name"] for check in report["checks"] if not check["passed"]}
    assert failed == {"fft, float64, t=33: values", "fft, float32, t=33: values"}
    shown = capsys.readouterr().out
    assert "FAILED fft, float32, t=33: values: deviates by" in shown
    assert "no rule is written" in shown
    assert json.loads(rule.read_text())["rule"] == {}
    assert not report["passed"]
    assert report["rule_file"] is None


def test_a_path_that_leaks_or_raises_is_found(monkeypatch):
    def leaking(x, kernel):
        y = fft.product(x, kernel)
        y[:, 0] += 1e-3 * x[:, -1]
        return y

    def raising(x, kernel):
        raise RuntimeError("no kernel image is available")

    for product, told in ((leaking, "not causal"), (raising, "no kernel image")):
        wrong = paths.Path(product, fft.gradient, exact=False, converts=True)
        monkeypatch.setitem(paths.PATHS, "fft", wrong)
        made = {check.name: check for check in contract.operator_checks(CPU, [33])}
        outcome = doctor.examine(made["fft: causal"])
        assert not outcome.passed
        assert told in outcome.error


def failed(checks):
    return {check.name for check in checks if not doctor.examine(check).passed}


@pytest.mark.parametrize("time", [33, 200])
def test_wrong_recurrent_filters_are_found(time, monkeypatch):
    """Gradients that are a per cent off are told in every form."""
    monkeypatch.setattr(contract, "DTYPES", (torch.float32,))
    gradient = chunked.gradient

    def wrong(*given):
        found = gradient(*given)
        return found._replace(filters=Filter(*(1.01 * part for part in found.filters)))

    assert failed(recurrent_contract.recurrent_checks(CPU, [time])) == set()
    monkeypatch.setattr(chunked, "gradient", wrong)
    assert failed(recurrent_contract.recurrent_checks(CPU, [time])) == {
        f"recurrent {form}, float32, t={time}: gradient of {name}"
        for form in ("whole", "continued", "packed", "padded")
        for name in ("free", "weights", "decays")
    }


def test_wrong_lookups_are_found(monkeypatch):
    """Block rows that are wrong are told where they are used, and so are chunks."""
    monkeypatch.setattr(contract, "DTYPES", (torch.float32,))
    assert failed(recurrent_contract.lookup_checks(CPU, [200])) == set()
    for module, forms in (
        (lookup_tiles, ("tiles", "whole")),
        (lookup_chunks, ("chunks", "continued")),
    ):
        gradient = module.gradient

        def wrong(*given, gradient=gradient, **named):
            found = gradient(*given, **named)
            return found._replace(v=1.01 * found.v)

        with monkeypatch.context() as changed:
            changed.setattr(module, "gradient", wrong)
            assert failed(recurrent_contract.lookup_checks(CPU, [200])) == {
                f"lookup {form}, float32, t=200: gradient of v" for form in forms
            }


def test_long_models_are_computed_by_chunks(monkeypatch):
    """So that the doctor runs forward and backward of what a GPU computes by kernels."""
    taken = set()
    for module in (chunked, lookup_chunks):
        for name in ("forward", "gradient"):
            function = getattr(module, name)

            def noted(*given, function=function, place=(module, name), **named):
                taken.add(place)
                return function(*given, **named)

            monkeypatch.setattr(module, name, noted)
    checks = model_contract.model_checks(CPU, ["hybrid"])
    assert failed(check for check in checks if check.name.startswith("hybrid, 1100")) == set()
    assert len(taken) == 4


def test_the_device_that_is_asked_for_is_timed(monkeypatch):
    """And not the first one of its type."""
    seen = []
    monkeypatch.setattr(tune, "GROUPS", {"2": tune.Group(1, 1, 2)})
    monkeypatch.setattr(tune, "_times", lambda device, *_: seen.append(device) or {"fft": 1.0})
    second = torch.device("cuda:1")
    tune.measure(Console(quiet=True), second, lengths=(8,))
    assert seen == [second, second]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e-3])
def test_nan_infinity_and_small_deviations_fail(value):
    truth = torch.ones(3)
    found = torch.tensor([1.0, 1.0 + value, 1.0])
    outcome = doctor.examine(Check("a", lambda: Compared(found, truth, 1.0, 1e-4)))
    assert not outcome.passed
    assert outcome.error
    json.dumps(outcome.deviation, allow_nan=False)


@pytest.mark.slow
def test_every_check_on_the_cpu():
    outcomes = [doctor.examine(check) for check in doctor.checks(CPU, "quick")]
    assert [outcome for outcome in outcomes if not outcome.passed] == []
    assert len(outcomes) > 300


def test_a_file_of_somebody_else_is_not_replaced(rule, monkeypatch, capsys, tmp_path):
    out = tmp_path / "mine.json"
    out.write_text("{}")
    assert call(monkeypatch, "--device", "cpu", "--quick", "--out", out) == 2
    assert "mine.json" in capsys.readouterr().err
    assert out.read_text() == "{}"
