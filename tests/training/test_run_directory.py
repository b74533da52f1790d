"""The directory of a run: what was there before is never replaced, and what a run left is found again."""

import os
import shutil

import pytest

from tests.kill_worker import contents
from tests.toy import toy_lines, toy_run
from tests.training.test_loop import interrupt
from tests.training.test_train_command import ARGUMENTS, call
from toeplix.data import Recipe, build
from toeplix.training.loop import fit
from toeplix.training.run_directory import check_data, recorded_run

FILES = ("run.json", "metrics.jsonl", "samples.txt", "summary.md")
DIRECTORIES = ("model", "checkpoints", "tensorboard")
pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]


def everything(folder):
    """All entries under a directory, and what they hold or point to."""
    return {
        path: os.readlink(path) if path.is_symlink() else path.is_file() and path.read_bytes()
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize(
    "name",
    [
        *(
            "metrics.jsonl",
            "samples.txt",
            "summary.md",
            "model/model.safetensors",
            "model/README.md",
        ),
        *("checkpoints/step-2/mine", "tensorboard/events", "notes.txt", "data/novel.txt"),
    ],
)
def test_other_files_are_not_replaced(store, tmp_path, monkeypatch, capsys, name):
    """Neither by the library nor by the command, which would first build a store of text."""
    text = toy_lines(tmp_path / "toy.jsonl")
    file = tmp_path / "run" / name
    file.parent.mkdir(parents=True)
    file.write_text("precious")
    before = everything(tmp_path)
    words = f"run holds other things ({name.partition('/')[0]}): choose a new directory"
    with pytest.raises(ValueError, match="holds other things") as caught:
        fit(toy_run(store), tmp_path / "run")
    assert words in str(caught.value)
    for data in (store.directory, text):
        given = ["--data", data, "--out", tmp_path / "run", "--vocab", 300, *ARGUMENTS]
        status, error = call(monkeypatch, capsys, *given)
        assert (status, error.count("\n")) == (2, 1), error
        assert words in error
    assert everything(tmp_path) == before


def test_a_token_store_is_not_the_directory_of_a_run(store, monkeypatch, capsys):
    before = everything(store.directory)
    given = ["--data", store.directory, "--out", store.directory, *ARGUMENTS]
    status, error = call(monkeypatch, capsys, *given)
    assert (status, error.count("\n")) == (2, 1), error
    assert "holds other things (manifest.json)" in error
    assert everything(store.directory) == before


def test_a_damaged_record_is_found_before_a_store_is_built(tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    out.mkdir()
    (out / "run.json").write_text("precious")
    given = ["--data", toy_lines(tmp_path / "toy.jsonl"), "--out", out, "--vocab", 300, *ARGUMENTS]
    status, error = call(monkeypatch, capsys, *given)
    assert (status, error.count("\n")) == (2, 1), error
    assert "run.json is damaged" in error
    assert [each.name for each in out.iterdir()] == ["run.json"]


def test_hidden_files_and_an_interrupted_start_are_no_hindrance(store, whole, tmp_path):
    out = tmp_path / "run"
    (out / "data").mkdir(parents=True)
    for name in (".gitignore", ".DS_Store", ".lock", ".run.json.123", "data/.lock"):
        (out / name).touch()
    assert recorded_run(out) is None
    shutil.copytree(store.directory, out / "data", dirs_exist_ok=True)
    fit(toy_run(store), out)
    assert contents(out) == contents(whole)
    assert recorded_run(out) == toy_run(store)


def test_an_interrupted_build_goes_on(tmp_path, monkeypatch, capsys):
    """The command stopped while it built its store, and the run has no record yet."""
    lines = toy_lines(tmp_path / "toy.jsonl")
    recipe = Recipe(sources=(str(lines),), vocab=300, val_fraction=0.05)

    def stop(progress):
        if progress.tokens:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(recipe, tmp_path / "run/data", processes=1, report=stop)
    assert (tmp_path / "run/data/progress.json").exists()
    given = ["--data", lines, "--out", tmp_path / "run", "--vocab", 300, *ARGUMENTS]
    status, error = call(monkeypatch, capsys, *given)
    assert status == 0, error


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(
    "name", [*FILES, *DIRECTORIES, "checkpoints/.step-10", "model/model.safetensors"]
)
def test_links_are_not_followed(store, tmp_path, monkeypatch, capsys, name, begun):
    run, out = toy_run(store), tmp_path / "run"
    if begun:
        interrupt(run, out, 6)
    elsewhere = tmp_path / "elsewhere"
    if name in FILES or name.endswith(".safetensors"):
        elsewhere.write_bytes((out / name).read_bytes() if (out / name).exists() else b"precious")
    else:
        elsewhere.mkdir()
        (elsewhere / "mine").write_text("precious")
    link = out / name
    if link.is_dir():
        link.rename(tmp_path / "away")
    link.unlink(missing_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(elsewhere)
    before = everything(tmp_path)
    with pytest.raises(ValueError, match="is a symbolic link") as caught:
        fit(run, out)
    assert str(link) in str(caught.value)
    status, error = call(monkeypatch, capsys, "--data", store.directory, "--out", out, *ARGUMENTS)
    assert (status, error.count("\n")) == (2, 1), error
    assert f"{link} is a symbolic link" in error
    assert everything(tmp_path) == before


def test_a_link_to_nothing_is_a_link(store, tmp_path):
    (tmp_path / "metrics.jsonl").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"metrics\.jsonl is a symbolic link"):
        fit(toy_run(store), tmp_path)


def test_the_directory_itself_may_be_a_link(store, whole, tmp_path):
    (tmp_path / "large-disk/there").mkdir(parents=True)
    (tmp_path / "here").symlink_to(tmp_path / "large-disk")
    (tmp_path / "here/run").symlink_to("there")
    interrupt(toy_run(store), tmp_path / "here/run", 6)
    fit(toy_run(store), tmp_path / "here/run")
    assert contents(tmp_path / "large-disk/there") == contents(whole)


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_file_where_a_directory_has_to_be(store, tmp_path, name, begun):
    if begun:
        interrupt(toy_run(store), tmp_path, 3)
    (tmp_path / name).write_text("precious")
    before = everything(tmp_path)
    steps = []
    with pytest.raises(ValueError, match=f"{name} is a file, not a directory"):
        fit(toy_run(store), tmp_path, report=steps.append)
    assert steps == []
    assert everything(tmp_path) == before


def test_a_directory_where_a_file_has_to_be(store, tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(ValueError, match=r"metrics\.jsonl is no regular file"):
        fit(toy_run(store), tmp_path)


@pytest.mark.parametrize("inside", ["", "x", "x/y"])
def test_a_file_instead_of_a_directory(store, tmp_path, monkeypatch, capsys, inside):
    file = tmp_path / "one.txt"
    file.write_text("precious")
    given = ["--data", store.directory, "--out", file / inside, *ARGUMENTS]
    status, error = call(monkeypatch, capsys, *given)
    assert (status, error.count("\n")) == (2, 1), error
    assert "one.txt is a file: choose a directory" in error
    with pytest.raises(NotADirectoryError, match=r"one\.txt is a file: choose a directory"):
        fit(toy_run(store), file / inside)


def test_a_run_is_no_data(store, whole, tmp_path, monkeypatch, capsys):
    status, error = call(monkeypatch, capsys, "--data", whole, "--out", tmp_path / "a", *ARGUMENTS)
    assert (status, error.count("\n")) == (2, 1), error
    assert f"{whole} is a training run, not a token store" in error
    assert f"({store.directory})" in error
    assert not (tmp_path / "a").exists()


def test_text_beside_some_other_run_json_is_data(tmp_path):
    (tmp_path / "run.json").write_text('{"speed": 3}')
    check_data(str(tmp_path))
    check_data("python")
