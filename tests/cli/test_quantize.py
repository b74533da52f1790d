"""`toeplix quantize`: a checkpoint that other commands read, and a comparison with the original."""

import re

import pytest

from toeplix import Model, build, load, save
from toeplix.cli.main import main
from toeplix.cli.quantize import _signed
from toeplix.data import Tokenizer
from toeplix.mixers.quantized import quantization_of

TEXT = "to be or not to be, that is the question. naïve déjà vu 漢字 "


@pytest.fixture
def trained(tmp_path):
    folder = tmp_path / "model"
    tokenizer = Tokenizer.train([TEXT] * 20, 280)
    tokenizer.save(tmp_path / "tokenizer")
    model = build(Model(vocab=tokenizer.vocab, context=16, dim=16, depth=1)).eval()
    save(model, folder, tokenizer=tmp_path / "tokenizer")
    return folder


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["toeplix", *map(str, arguments)])
    main()


@pytest.mark.parametrize("scheme", ["int8", "bfloat16"])
def test_it_compares_and_writes(trained, tmp_path, monkeypatch, capsys, scheme):
    file, target = tmp_path / "text.txt", tmp_path / "small"
    file.write_text(TEXT * 5, encoding="utf-8")
    run(monkeypatch, "quantize", trained, target, "--to", scheme, "--text", file, "--tokens", 40)
    shown = capsys.readouterr().out
    before, after = map(
        float, re.search(rf"bits per byte ([\d.]+), in {scheme} ([\d.]+)", shown).groups()
    )
    assert before > 0
    assert after == pytest.approx(before, rel=0.05)
    assert "40 tokens of" in shown
    assert "KL divergence" in shown
    assert quantization_of(load(target)) == scheme
    run(monkeypatch, "generate", target, "to be", "--max-new-tokens", 5, "--temperature", 0)
    saved = capsys.readouterr().out
    run(
        monkeypatch,
        *("generate", trained, "to be", "--quantize", scheme),
        *("--max-new-tokens", 5, "--temperature", 0),
    )
    assert capsys.readouterr().out == saved


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("quantize", "MODEL", "--to", "int3"), "'int3' is not known: one of int8, bfloat16"),
        (("quantize", "MODEL"), "no validation split to compare on"),
        (("quantize", "MODEL", "MODEL"), "is not empty"),
        (("generate", "MODEL", "--quantize", "four"), "'four' is not known"),
        (("bench", "quantize", "--set", "dime=3"), "NAME=VALUE is needed"),
        (("bench", "quantize", "--set", "gate=perhaps"), "is no bool"),
        (("bench", "long", "0"), "must be in 1 .."),
    ],
)
def test_bad_input_is_one_line(trained, monkeypatch, capsys, arguments, message):
    chosen = [trained if each == "MODEL" else each for each in arguments]
    with pytest.raises(SystemExit) as left:
        run(monkeypatch, *chosen)
    assert left.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--text", "nope.txt"), "--text nope.txt: there is no such file"),
        (("--text", "model"), "--text model: a directory; name a file"),
        (("page.html", "--text", "text.txt"), "page.html is a file: choose a directory"),
        (("page.html/x", "--text", "text.txt"), "page.html is a file: choose a directory"),
    ],
)
def test_files_are_checked_before_the_comparison(
    trained, monkeypatch, capsys, tmp_path, arguments, message
):
    monkeypatch.chdir(tmp_path)
    for name in ("page.html", "text.txt"):
        (tmp_path / name).write_text(TEXT * 5, encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        run(monkeypatch, "quantize", trained, *arguments)
    assert left.value.code == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"toeplix: {message}\n")


def test_a_difference_of_zero_has_no_sign():
    assert [_signed(each) for each in (-1e-9, 0.0, 0.00006, -0.25)] == [
        *("0.0000", "0.0000", "+0.0001", "-0.2500")
    ]
