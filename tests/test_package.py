"""The package as a whole: light to import, one direction, and small dependencies."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import toeplix

ROOT = Path(__file__).parent.parent
HEAVY = (
    "transformers",
    "datasets",
    "matplotlib",
    "scipy",
    "pandas",
    "typer",
    "rich",
    "lm_eval",
    "triton",
)


def run(code: str) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_light():
    loaded = run("import sys; from toeplix import *; print(*sys.modules)").split()
    assert not {name.split(".")[0] for name in loaded} & set(HEAVY)


def test_the_package_alone_imports_no_torch():
    """So that the command line is there at once, and Ctrl-C works while PyTorch is imported."""
    loaded = run("import sys, toeplix, toeplix.cli.main; print(*sys.modules)").split()
    assert "torch" not in loaded
    assert set(toeplix.__all__) <= set(dir(toeplix))
    assert not hasattr(toeplix, "nothing")


def test_import_adds_little_to_torch():
    """Counted in modules, not in seconds: what toeplix adds is itself and three small libraries."""
    loaded = run(
        "import sys, torch; before = set(sys.modules); from toeplix import *;"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    third_party = set(loaded.split()) - set(sys.stdlib_module_names)
    assert third_party <= {"toeplix", "jaxtyping", "wadler_lindig", "numpy", "safetensors", "torch"}


@pytest.mark.slow
def test_training_generating_and_serving_need_only_tokenizers():
    """Of Hugging Face's packages and of those of extras, but for the server's own."""
    absent = (
        "accelerate datasets huggingface_hub matplotlib pyarrow tensorboard transformers zstandard"
    )
    loaded = run(
        f"import sys; sys.modules.update(dict.fromkeys({absent!r}.split()))\n"
        "import toeplix.data, toeplix.training.loop, toeplix.inference, toeplix.serving.server\n"
        "import toeplix.experiments.engine.report\n"
        "from toeplix.data import Tokenizer\n"
        "Tokenizer.train(['a text'], 260); print(*sys.modules)"
    ).split()
    assert {"tokenizers", "torch"} <= set(loaded)


def test_the_package_knows_nothing_of_tests():
    """Layers inside the package are import-linter's to check (`make check`)."""
    for file in (ROOT / "toeplix").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not any(name.partition(".")[0] == "tests" for name in names), file


def test_versions_agree():
    assert f"## {toeplix.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {toeplix.__version__}" in (ROOT / "CITATION.cff").read_text()


def test_the_models_behind_the_defaults_can_be_built():
    """The script is not part of the package, and nothing else imports it."""
    cases = run(
        "import runpy; print(len(runpy.run_path('benchmarks/defaults.py', run_name='x')['CASES']))"
    )
    assert int(cases) == 19
