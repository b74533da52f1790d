"""examples/ray_serve.py: what each replica reserves, with a stand-in for Ray, which need not be there."""

import importlib.util
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from toeplix.serving.factory import settings

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_serve.py"


@pytest.fixture
def example(monkeypatch):
    """The module of the example; `deployment` returns the options that Ray would get."""

    def deployment(replica, **options):
        return SimpleNamespace(bind=lambda: options)

    ray, util, metrics = (ModuleType(name) for name in ("ray", "ray.util", "ray.util.metrics"))
    ray.serve = SimpleNamespace(ingress=lambda build: lambda kind: kind, deployment=deployment)
    metrics.Gauge = object
    for module in (ray, util, metrics):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    spec = importlib.util.spec_from_file_location("ray_serve", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def chosen(device):
    return settings({"TOEPLIX_MODEL": "m", "TOEPLIX_DEVICE": device})


@pytest.mark.parametrize(
    ("device", "asked", "expected"),
    [
        ("auto", None, 0),
        ("cpu", None, 0),
        ("cuda", None, 1),
        ("cuda", 0.5, 0.5),
        ("auto", 1.0, 1),
    ],
)
def test_replicas_reserve_gpus(example, device, asked, expected):
    gpus = example.reserved_gpus(chosen(device), asked)
    options = example.deployment(chosen(device), 2, gpus)
    assert options["ray_actor_options"]["num_gpus"] == expected
    assert options["num_replicas"] == 2


@pytest.mark.parametrize(
    ("device", "asked", "words"),
    [
        ("cuda:1", None, "TOEPLIX_DEVICE=cuda:1: Ray chooses the GPU of a replica, give cuda"),
        ("cuda", 0.0, "--gpus 0 reserves no GPU for TOEPLIX_DEVICE=cuda: leave it out"),
        ("auto", 2.0, "--gpus 2 must be in 0 .. 1: a replica runs on one device"),
        ("auto", float("nan"), "--gpus nan must be in 0 .. 1"),
    ],
)
def test_what_cannot_be_reserved_is_one_line(example, monkeypatch, device, asked, words):
    arguments = [] if asked is None else ["--gpus", str(asked)]
    monkeypatch.setattr("sys.argv", ["ray_serve.py", *arguments])
    monkeypatch.setenv("TOEPLIX_MODEL", "m")
    monkeypatch.setenv("TOEPLIX_DEVICE", device)
    with pytest.raises(SystemExit, match=words) as leaving:
        example.main()
    assert "\n" not in str(leaving.value)


def test_without_ray_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("sys.argv", ["ray_serve.py", "--help"])
    with pytest.raises(SystemExit) as leaving:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert leaving.value.code == 2
    said = capsys.readouterr().err
    assert "pip install 'toeplix[ray]'" in said
    assert said.count("\n") == 1
