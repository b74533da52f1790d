"""Outputs: only regular files, and only what this program wrote is replaced unless the user says so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from toeplix.cli import exits
from toeplix.cli.main import main
from toeplix.files import MARK, check_output, ensure_directory, generated, write_output

MINE = "what a user wrote\n"
ROOT = Path(__file__).parents[2]


def text(words: str = MARK):
    return lambda aside: aside.write_text(words)


def toeplix(monkeypatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["toeplix", *map(str, arguments)])
    try:
        main()
    except SystemExit as leaving:
        return leaving.code
    return 0


@pytest.fixture
def results(tmp_path) -> Path:
    """Rows of two experiments."""
    folder = tmp_path / "results"
    for name in ("window", "linear"):
        (folder / name).mkdir(parents=True)
        rows = (ROOT / "results" / name / "laptop.jsonl").read_bytes()
        (folder / name / "laptop.jsonl").write_bytes(rows)
    return folder


def test_a_new_file_and_one_of_ours(tmp_path):
    target = tmp_path / "deep" / "er" / "page.html"
    for words in (MARK, f"{MARK} again", "x" * 10**5 + MARK, MARK + "x" * 10**5):
        assert write_output(target, text(words)) == target
        assert target.read_text() == words
    assert [file.name for file in target.parent.iterdir()] == ["page.html"]
    umask = os.umask(0)
    os.umask(umask)
    assert target.stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_file_of_the_user_stays_unless_told(tmp_path):
    target = tmp_path / "page.html"
    target.write_text(MINE)
    with pytest.raises(
        FileExistsError, match=r"page\.html was not written by toeplix.*--overwrite"
    ):
        write_output(target, text())
    assert target.read_text() == MINE
    write_output(target, text(), overwrite=True)
    assert target.read_text() == MARK


def test_an_empty_file_has_nothing_to_lose(tmp_path):
    (tmp_path / "page").touch()
    write_output(tmp_path / "page", text())
    assert generated(tmp_path / "page")


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_no_regular_file_stays(tmp_path, overwrite):
    (tmp_path / "file").write_text(MARK)
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nothing")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    words = {
        "link": "is a symbolic link",
        "dangling": "is a symbolic link",
        "loop": "is a symbolic link",
        "folder": "is a directory",
        "pipe": "is no regular file",
        "/dev/null": "is no regular file",
        "file/below": "ot a directory",
    }
    for name, said in words.items():
        before = os.lstat(tmp_path / name).st_mode if "below" not in name else None
        with pytest.raises(OSError, match=said):
            write_output(tmp_path / name, text(), overwrite=overwrite)
        assert before is None or os.lstat(tmp_path / name).st_mode == before
    assert len(list(tmp_path.iterdir())) == 6


def test_what_fails_leaves_nothing(tmp_path):
    def full(aside: Path) -> None:
        aside.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_output(tmp_path / "deep" / "page", full)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="later"), ensure_directory(tmp_path / "a" / "b"):
        raise ValueError("later")
    assert not list(tmp_path.iterdir())
    with pytest.raises(AssertionError, match="without the mark"):
        write_output(tmp_path / "page", text("no mark"))
    assert not list(tmp_path.iterdir())


def test_a_file_that_comes_while_writing_stays(tmp_path):
    def slow(aside: Path) -> None:
        aside.write_text(MARK)
        (tmp_path / "page").write_text(MINE)

    with pytest.raises(FileExistsError, match="not written by toeplix"):
        write_output(tmp_path / "page", slow)
    assert (tmp_path / "page").read_text() == MINE


def test_names_that_are_not_utf8(tmp_path):
    target = tmp_path / os.fsdecode(b"no\xffne")
    write_output(target, text())
    target.write_text(MINE)
    with pytest.raises(FileExistsError, match=r"no\\udcffne"):
        check_output(target)


def test_the_report_leaves_a_project_alone(results, monkeypatch, capsys):
    """In a directory with docs, figures and runs of its own, as any project may have them."""
    project = results.parent
    monkeypatch.chdir(project)
    monkeypatch.setenv("XDG_CACHE_HOME", str(project / "cache"))
    theirs = ["docs/experiments.md", "figures/window-laptop.svg", "runs/experiments.html"]
    for name in theirs:
        (project / name).parent.mkdir()
        (project / name).write_text(MINE)
    for _ in range(2):  # what is its own it replaces
        assert toeplix(monkeypatch, "experiment", "report") == 0
        assert toeplix(monkeypatch, "experiment", "plot", "window") == 0
    made = sorted(file.name for file in (project / "toeplix-report").rglob("*") if file.is_file())
    assert made == ["experiments.html", "experiments.md", "linear-laptop.svg", "window-laptop.svg"]
    document = (project / "toeplix-report" / "experiments.md").read_text()
    assert "](figures/window-laptop.svg)" in document
    assert all((project / name).read_text() == MINE for name in theirs)

    capsys.readouterr()
    named = [
        "experiment",
        "report",
        "--out",
        theirs[0],
        "--figures",
        "figures",
        "--html",
        theirs[2],
    ]
    assert toeplix(monkeypatch, *named) == 2
    said = capsys.readouterr().err
    assert "docs/experiments.md was not written by toeplix" in said
    assert said.count("\n") == 1
    assert all((project / name).read_text() == MINE for name in theirs)
    assert [file.name for file in (project / "figures").iterdir()] == ["window-laptop.svg"]
    assert toeplix(monkeypatch, *named, "--overwrite") == 0
    assert all(generated(project / name) for name in theirs)


def test_a_figure_of_the_user_stays(results, monkeypatch, capsys):
    out = results.parent / "drawn"
    out.mkdir()
    (out / "window-laptop.svg").write_text(MINE)
    arguments = ["experiment", "plot", "window", "--results", results, "--out", out]
    assert toeplix(monkeypatch, *arguments) == 2
    assert (out / "window-laptop.svg").read_text() == MINE
    assert toeplix(monkeypatch, *arguments, "--overwrite") == 0
    assert toeplix(monkeypatch, *arguments) == 0


def test_bench_complains_before_it_measures(tmp_path, monkeypatch, capsys):
    (tmp_path / "found.json").write_text(MINE)
    monkeypatch.setattr("toeplix.profiling.bench.operator.run", lambda *_, **__: {"rows": []})
    assert toeplix(monkeypatch, "bench", "ops", "--out", tmp_path / "found.json") == 2
    assert "not written by toeplix" in capsys.readouterr().err
    for more in (["--overwrite"], []):
        arguments = ["bench", "ops", "--out", tmp_path / "found.json", *more]
        assert toeplix(monkeypatch, *arguments) == 0
    assert json.loads((tmp_path / "found.json").read_text()) == {"origin": MARK, "rows": []}


@pytest.mark.parametrize(
    "arguments",
    [
        ["experiment", "plot", "window", "--out", ""],
        ["page", ""],
        ["experiment", "report", "--html", ""],
        ["experiment", "report", "--figures", ""],
        ["spectrum", "."],  # but this one is no checkpoint
        ["spectrum", ".", "--out", ""],
        ["eval", "null", "--out", ""],
        ["demo", "--out", ""],
        ["train", "--out", ""],
        ["experiment", "run", "window", "--results", ""],
        ["import", "some", ""],
        ["explore", ""],
    ],
)
def test_an_empty_name_is_not_the_working_directory(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert toeplix(monkeypatch, *arguments) == exits.BAD_INPUT
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_the_demo_complains_before_it_trains(tmp_path, monkeypatch):
    (tmp_path / "sample.txt").write_text(MINE)
    assert toeplix(monkeypatch, "demo", "--out", tmp_path) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["sample.txt"]


def test_the_rule_of_paths_is_not_written_over_another_file(tmp_path, monkeypatch):
    from toeplix.profiling.bench import tune

    file = tmp_path / "notes.txt"
    file.write_text(MINE)
    with pytest.raises(FileExistsError, match="not written by toeplix"):
        tune._write(file, {"rule": {}})
    older = {"rule": {"cpu": {mode: [BAND] for mode in ("auto", "auto-exact")}}}  # without a mark
    file.write_text(json.dumps(older))
    tune._write(file, {"rule": {}})
    assert generated(file)


BAND = {"columns": None, "paths": [[None, "blocked"]]}


def test_make_report_writes_where_this_project_keeps_it():
    shown = subprocess.run(
        ["make", "-n", "report", "BIN=."], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "--out docs/experiments.md --figures figures" in shown.stdout
    assert generated(ROOT / "docs" / "experiments.md")
    assert all(generated(file) for file in (ROOT / "figures").glob("*-laptop.svg"))
