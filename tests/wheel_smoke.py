"""Smoke tests of an installed wheel, as a script: `make dist` runs it in a new environment.

    python -I tests/wheel_smoke.py         with the dependencies of `pip install toeplix` alone
    python -I tests/wheel_smoke.py serve   with those of `pip install 'toeplix[serve]'`

`-I` keeps the checkout out of the import path, so that what is tried is the wheel. Nothing but the README
is read from the checkout. The first failure ends the script with a traceback.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import urllib.request
from importlib.metadata import metadata, version
from importlib.util import find_spec
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
TOEPLIX = Path(sys.executable).parent / "toeplix"
TEXT = "The wheel is installed into a new environment, and a model is trained on this sentence.\n"
EXTRAS = ("accelerate", "datasets", "matplotlib", "pyarrow", "tensorboard", "transformers")


def command(*arguments: str, status: int = 0) -> str:
    """Run `toeplix` and return what it printed; with another exit status, its standard error."""
    done = subprocess.run([TOEPLIX, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == status, (arguments, done.returncode, done.stderr)
    return done.stderr if status else done.stdout


def the_wheel_is_installed_and_nothing_else() -> None:
    import toeplix

    assert "site-packages" in toeplix.__file__
    assert command("--version") == f"toeplix {version('toeplix')}\n"
    assert [name for name in EXTRAS if find_spec(name)] == [], "packages of extras"


def links_of_the_package_page_are_absolute() -> None:
    page = metadata("toeplix").get_payload()
    targets = re.findall(r"\]\(([^)]+)\)", page)
    assert len(targets) > 5
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def the_product_is_its_definition() -> None:
    import torch

    from toeplix import toeplitz

    x, kernel = torch.randn(1, 50, 2, 3).double(), torch.randn(2, 50).double()
    lags = torch.arange(50)[:, None] - torch.arange(50)
    matrix = kernel[:, lags.clamp(min=0)].masked_fill(lags < 0, 0)
    torch.testing.assert_close(toeplitz(x, kernel), torch.einsum("hts,bshc->bthc", matrix, x))


def a_model_is_trained_and_generates() -> None:
    for number in range(20):
        Path(f"text-{number}.txt").write_text(f"{number}. {TEXT}" * 20)
    command("data", "build", *map(str, Path().glob("*.txt")), "--out", "store", "--vocab", "300")
    sizes = shlex.split("--steps 4 --dim 16 --depth 2 --context 32 --batch 2 --sample-every 0")
    train = ["train", "demo", "--data", "store", "--out", "run", *sizes]
    assert "pip install 'toeplix[train]'" in command(*train, status=2), "tensorboard"
    command(*train, "--trackers", "")
    assert len(command("generate", "run", "The ", "--max-new-tokens", "5")) > len("The ")
    command("quantize", "run", "run-int8")
    assert "parameters" in command("plan", "demo")


def the_papers_numbers_are_in_the_wheel() -> None:
    from toeplix.experiments.engine import rows
    from toeplix.experiments.engine.collect import published_file

    for name in ("benchmarks", "index", "throughput", "training", "variants", "window"):
        assert rows.flat(published_file(name)), name
    assert "decoding" in command("experiment", "list")
    command("experiment", "report")
    assert "C20" in Path("toeplix-report/experiments.md").read_text()


def blocks_of_the_readme_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    plain = [block for block in blocks if "transformers" not in block]
    assert plain
    for block in plain:
        subprocess.run([sys.executable, "-I", "-c", block], check=True, stdout=subprocess.DEVNULL)


def a_model_is_served() -> None:
    """The directory `run` is that of `a_model_is_trained_and_generates`."""
    options = {"stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([TOEPLIX, "serve", "run", "--port", "0"], **options) as server:
        try:
            url = re.search(r"http://\S+", server.stdout.readline())[0]
            body = json.dumps({"model": "run", "prompt": "The ", "max_tokens": 3}).encode()
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(f"{url}/completions", body, headers)
            with urllib.request.urlopen(request) as answer:
                assert json.load(answer)["usage"]["completion_tokens"] >= 1
        finally:
            server.send_signal(signal.SIGTERM)
    assert server.returncode == 0


BASE = (
    the_wheel_is_installed_and_nothing_else,
    links_of_the_package_page_are_absolute,
    the_product_is_its_definition,
    a_model_is_trained_and_generates,
    the_papers_numbers_are_in_the_wheel,
    blocks_of_the_readme_run,
)
SERVE = (
    the_wheel_is_installed_and_nothing_else,
    a_model_is_trained_and_generates,
    a_model_is_served,
)

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for check in SERVE if sys.argv[1:] == ["serve"] else BASE:
            check()
            print("passed:", check.__name__.replace("_", " "), flush=True)
