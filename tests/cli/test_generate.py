"""Text from the command line: the same as from the library, and bytes that belong together."""

import io
import os
import subprocess
import sys

import pytest

from toeplix import Model, build, save
from toeplix.cli.main import main
from toeplix.data import Tokenizer
from toeplix.inference.generation import generate

TEXT = "to be or not to be, that is the question. naïve déjà vu 漢字 "


@pytest.fixture
def trained(tmp_path):
    tokenizer = Tokenizer.train([TEXT] * 20, 280)
    tokenizer.save(tmp_path)
    model = build(Model(vocab=tokenizer.vocab, context=32, dim=16, depth=1)).eval()
    save(model, tmp_path)
    return tmp_path, model, tokenizer


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["toeplix", "generate", *map(str, arguments)])
    main()


def test_the_command_writes_what_the_library_does(trained, monkeypatch, capsys):
    folder, model, tokenizer = trained
    run(monkeypatch, folder, "to be", "--max-new-tokens", "30", "--temperature", "0")
    prompt = [tokenizer.start, *tokenizer.encode("to be")]
    (row,) = generate(model, [prompt], max_new_tokens=30, stop_tokens=[tokenizer.end])
    assert capsys.readouterr().out == "to be" + tokenizer.decode(row) + "\n"


def test_the_same_seed_the_same_text(trained, monkeypatch, capsys):
    folder, *_ = trained
    texts = []
    for seed in (3, 3, 4):
        run(monkeypatch, folder, "to", "--seed", seed, "--max-new-tokens", 40)
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


def test_a_model_without_tokenizer_is_named(tmp_path, monkeypatch, capsys):
    save(build(Model(vocab=50, context=8, dim=8, depth=1)), tmp_path)
    with pytest.raises(SystemExit) as leaving:
        run(monkeypatch, tmp_path, "x")
    assert leaving.value.code == 2
    assert "holds no tokenizer" in capsys.readouterr().err


def toeplix(*arguments, **how):
    """The real command: bytes in, bytes out."""
    command = [sys.executable, "-m", "toeplix", "generate", *arguments]
    return subprocess.run(command, capture_output=True, check=False, **how)


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_text_that_is_not_utf8(trained, environment):
    folder = str(trained[0])
    for arguments, given, words in (
        ([folder, b"to \xff be"], b"", b"the prompt is not UTF-8 at character 3"),
        ([folder, "to", "--stop", b"\xfe"], b"", b"--stop is not UTF-8"),
        ([folder, "-"], b"to \xff be", b"standard input is not UTF-8"),
    ):
        done = toeplix(*arguments, input=given, env=os.environ | environment)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
        assert words in done.stderr
    done = toeplix(folder, "-", "--max-new-tokens", "3", input="déjà".encode(), env=os.environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().startswith("déjà")


@pytest.mark.slow
def test_closed_standard_input(trained):
    command = f"{sys.executable} -m toeplix generate {trained[0]} - <&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "closed" in done.stderr


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, 10**300])
def test_seeds_that_no_generator_takes(trained, monkeypatch, capsys, seed):
    with pytest.raises(SystemExit) as leaving:
        run(monkeypatch, trained[0], "to", "--seed", seed)
    assert leaving.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "is not a finite number of 64 bits" in error


@pytest.mark.parametrize("seed", [-1, 2**64 - 1, -(2**63)])
def test_seeds_that_generators_take(trained, monkeypatch, capsys, seed):
    run(monkeypatch, trained[0], "to", "--seed", seed, "--max-new-tokens", 3)
    assert capsys.readouterr().out


def test_a_byte_order_mark_is_no_part_of_the_prompt(trained, monkeypatch, capsys):
    texts = []
    for prompt in ("to be", "\ufeffto be", "\ufeff\ufeffto be"):
        monkeypatch.setattr("sys.stdin", io.StringIO(prompt))
        run(monkeypatch, trained[0], "-", "--max-new-tokens", 5)
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert texts[2].startswith("\ufeffto be")  # one is removed, as by other readers


def refused(monkeypatch, capsys, *arguments):
    """The line that a command ends with, which prints nothing else."""
    with pytest.raises(SystemExit) as leaving:
        run(monkeypatch, *arguments)
    assert leaving.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_an_empty_stop_string_is_refused_before_the_model_is_loaded(tmp_path, monkeypatch, capsys):
    line = refused(monkeypatch, capsys, tmp_path / "nowhere", "hi", "--stop", "x", "--stop", "")
    assert "--stop is empty: give the text to end at" in line


def test_directories_without_a_model(tmp_path, monkeypatch, capsys):
    line = refused(monkeypatch, capsys, tmp_path / "nowhere", "hi")
    assert "nowhere does not exist: name the directory of a run or of a model" in line
    assert "is no checkpoint" in refused(monkeypatch, capsys, tmp_path, "hi")
    out = tmp_path / "run"
    (out / "checkpoints/step-2").mkdir(parents=True)
    (out / "run.json").write_text("{}")
    for given in (out, out / "model"):
        line = refused(monkeypatch, capsys, given, "hi")
        assert f"{out} is an unfinished run" in line
        assert "the same `toeplix train` command goes on and finishes it" in line
    (out / "model").mkdir()  # the process was killed while it wrote the model
    assert f"{out} is an unfinished run" in refused(monkeypatch, capsys, out, "hi")
