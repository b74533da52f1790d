"""Text from the command line: the same as from the library, and bytes that belong together."""

import pytest

from toeplix import Model, build, save
from toeplix.cli import main
from toeplix.commands.generate import pieces
from toeplix.data import Tokenizer
from toeplix.generate import generate

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
    run(monkeypatch, folder, "to be", "--new", "30", "--temperature", "0")
    prompt = [tokenizer.start, *tokenizer.encode("to be")]
    (row,) = generate(model, [prompt], new=30, stop_tokens=[tokenizer.end])
    assert capsys.readouterr().out == "to be" + tokenizer.decode(row) + "\n"


def test_the_same_seed_the_same_text(trained, monkeypatch, capsys):
    folder, *_ = trained
    texts = []
    for seed in (3, 3, 4):
        run(monkeypatch, folder, "to", "--seed", seed, "--new", 40)
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


def test_characters_are_complete(trained):
    _, _, tokenizer = trained
    tokens = tokenizer.encode("déjà 漢字 \N{GRINNING FACE}!")
    found = list(pieces(tokenizer, iter(tokens)))
    assert "".join(found) == "déjà 漢字 \N{GRINNING FACE}!"
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in found)


def test_a_model_without_tokenizer_is_named(tmp_path, monkeypatch, capsys):
    save(build(Model(vocab=50, context=8, dim=8, depth=1)), tmp_path)
    with pytest.raises(SystemExit) as leaving:
        run(monkeypatch, tmp_path, "x")
    assert leaving.value.code == 2
    assert "holds no tokenizer" in capsys.readouterr().err
