"""Arguments that are missing, and targets below a file: one line, and nothing on standard output."""

import sys

import pytest

from toeplix import Model, build, save
from toeplix.cli.main import main


def ended(monkeypatch, line: str) -> int:
    monkeypatch.setattr(sys, "argv", ["toeplix", *line.split()])
    with pytest.raises(SystemExit) as leaving:
        main()
    return leaving.value.code


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train", "--out DIR is needed: where the run is written"),
        ("eval", "Missing argument 'models'"),
        ("page", "Missing argument 'run'"),
        ("quantize", "Missing argument 'model'"),
        ("probe", "Missing argument 'checkpoint'"),
        ("spectrum", "name a checkpoint"),
        ("generate", "Missing argument 'directory'"),
        ("serve", "Missing argument 'checkpoint'"),
        ("plan", "Missing argument 'RUN'"),
        ("import", "Missing argument 'upstream'"),
        ("import some", "Missing argument 'directory'"),
        ("data build", "Missing argument 'sources'"),
        ("data show", "Missing argument 'DIR'"),
        ("data check", "Missing argument 'DIR'"),
    ],
)
def test_a_missing_argument_is_one_line_with_a_hint(line, words, monkeypatch, capsys):
    assert ended(monkeypatch, line) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    command = line.removesuffix(" some")
    assert shown.err.endswith(f"; see toeplix {command} --help\n")
    assert shown.err.count("\n") == 1
    assert shown.out == ""


@pytest.mark.parametrize("group", ["data", "bench", "experiment"])
def test_a_group_shows_its_commands(group, monkeypatch, capsys):
    assert ended(monkeypatch, group) == 2
    shown = capsys.readouterr()
    assert "Commands" in shown.out
    assert shown.err == ""


@pytest.mark.parametrize(
    "line",
    [
        "spectrum model --out page.html",
        "page run page.html/x.html",
        "demo --out page.html",
        "quantize model page.html/x",
    ],
)
def test_a_target_below_a_file_is_named(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save(build(Model(vocab=20, context=16, dim=8, depth=1)), tmp_path / "model")
    (tmp_path / "page.html").write_text("what a user wrote\n")
    before = sorted(tmp_path.iterdir())
    assert ended(monkeypatch, line) == 2
    assert capsys.readouterr().err == "toeplix: page.html is a file: choose a directory\n"
    assert sorted(tmp_path.iterdir()) == before
