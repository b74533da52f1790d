"""`toeplix data` as a user meets it."""

import subprocess
import sys

import pytest
from rich.console import Console

from tests.data.conftest import write_lines
from toeplix.cli import main
from toeplix.profiling.bench import tokenizing


@pytest.fixture
def toeplix(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["toeplix", *map(str, arguments)])
        status = 0
        try:
            main.main()
        except SystemExit as leaving:
            status = leaving.code
        return status, *capsys.readouterr()

    return run


def test_build_show_check(toeplix, lines, tmp_path):
    folder = tmp_path / "store"
    build = ("data", "build", lines, "--out", folder, "--vocab", 300, "--val-fraction", 0.1)
    status, out, _ = toeplix(*build)
    assert status == 0
    assert "bytes per token" in out
    status, out, _ = toeplix("data", "show", folder, "--context", 256)
    assert status == 0
    assert "vocabulary 300" in out
    assert "<|bos|>document" in out
    assert " pads)" in out
    assert " | " in out
    status, out, _ = toeplix("data", "check", folder)
    assert (status, out) == (0, f"{folder}: 8 files agree with the manifest\n")
    (folder / "val.bin").write_bytes(bytes((folder / "val.bin").stat().st_size))
    status, _, error = toeplix("data", "check", folder)
    assert status == 2
    assert "sha256 disagrees: val.bin" in error


def test_what_is_not_installed_is_named(toeplix, lines, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    status, _, error = toeplix("data", "build", lines, "--out", tmp_path / "store")
    assert status == 2
    assert "tokenizers" in error
    assert error.endswith("pip install 'toeplix[train]'\n")


def test_every_module_has_its_extra(toeplix, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for module in [name for name in sys.modules if name.startswith("matplotlib.")]:
        monkeypatch.setitem(sys.modules, module, None)
    status, _, error = toeplix("experiment", "plot", "training")
    assert status == 2
    assert error.endswith("pip install 'toeplix[figures]'\n")


@pytest.mark.slow
def test_the_package_is_light():
    heavy = "{'datasets', 'tokenizers', 'transformers', 'pyarrow', 'zstandard', 'pandas'}"
    code = f"import sys, toeplix.data, toeplix.cli.main; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_teaches(toeplix):
    status, out, _ = toeplix("data", "build", "--help")
    assert status == 0
    out = " ".join(out.replace("│", " ").split())
    for word in (
        "python",
        "fineweb-edu",
        "--val-fraction",
        "the same command resumes",
        "form feed",
    ):
        assert word in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["build", "gone.txt"], "gone.txt is no file or directory"),
        (["build", "nothing/*.jsonl"], "nothing/*.jsonl holds or matches no"),
        (["build", "bad.jsonl"], "bad.jsonl, line 2: not JSON"),
        (["build", "good.jsonl", "--field", "body"], "line 1: no field 'body', only 'text'"),
        (["build", "empty.jsonl"], "no text to learn a tokenizer from"),
        (["build", "good.jsonl", "--vocab", "100"], "vocab=100 must be at least 260"),
        (["build", "good.jsonl", "--tokenizer", "./none"], "tokenizer ./none cannot be loaded"),
        (["build", "good.jsonl", "--processes", "0"], "--processes"),
        (["build"], "Missing argument"),
        (["show", "."], "is no token store"),
        (["check", "."], "is no token store"),
    ],
)
def test_bad_input_is_one_line_and_status_2(toeplix, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "good.jsonl", ["some text", "more text"])
    write_lines(tmp_path / "empty.jsonl", [])
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text": \n')
    out = ["--out", "out"] if arguments[0] == "build" else []
    status, _, error = toeplix("data", *arguments, *out)
    assert status == 2
    assert words in error
    assert error.count("\n") == 1


def test_the_benchmark_measures_all(lines):
    report = tokenizing.run(Console(), [lines], 50_000, 300, 1, 1)
    assert report["megabytes"] == pytest.approx(0.05, abs=0.01)
    assert list(report["ratios"]) == list(report["megabytes_per_second"])
    assert report["ratios"]["toeplix"] == 1
    assert "datasets.map, batched" in report["ratios"]
