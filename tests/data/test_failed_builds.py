"""Commands that fail leave nothing behind that was not there before; locks race nobody."""

import json
import multiprocessing
import os
import time

import pytest

from tests.data.conftest import make_texts, write_lines
from tests.data.test_commands import toeplix  # noqa: F401 - a fixture
from toeplix.data import Recipe, build, building
from toeplix.files.locking import locked

pytestmark = pytest.mark.slow


def tree(folder):
    return {
        str(each.relative_to(folder)): each.read_bytes() if each.is_file() else None
        for each in folder.rglob("*")
    }


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOEPLIX_DEBUG", raising=False)
    write_lines(tmp_path / "good.jsonl", make_texts(20))
    write_lines(tmp_path / "one.jsonl", ["a single text"] * 3)
    write_lines(tmp_path / "empty.jsonl", ["", " "])
    (tmp_path / "bad.jsonl").write_text('{"text": "a text"}\n' * 3 + '{"text": \n')
    (tmp_path / "there").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "train.bin").write_bytes(b"of another program")
    (tmp_path / "vocabulary" / "tokenizer").mkdir(parents=True)
    (tmp_path / "vocabulary" / "tokenizer" / "tokenizer.json").write_text("precious")
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / ".lock").write_text("of another program")
    (tmp_path / "hidden" / ".eslintrc.json.bak").write_text("a backup")
    return tmp_path


FAILING = [
    ["build", "", "--out", "new"],
    ["build", "good.jsonl", "", "--out", "new"],
    ["build", "good.jsonl", "--out", ""],
    ["build", "good.jsonl", "--out", "new", "--tokenizer", ""],
    ["build", "good.jsonl", "--out", "new", "--tokenizer", "./none"],
    ["build", "good.jsonl", "--out", "new", "--vocab", "10000000000"],
    ["build", "good.jsonl", "--out", "new", "--limit", str(2**80)],
    ["build", "good.jsonl", "--out", "new", "--processes", str(10**9)],
    ["build", "good.jsonl", "--out", "new", "--field", "body"],
    ["build", "good.jsonl", "--out", "new/below/it", "--val-fraction", "nan"],
    ["build", "good.jsonl", "--out", "new/below/it", "--field", "body"],
    ["build", "gone.jsonl", "--out", "new"],
    ["build", "empty.jsonl", "--out", "new"],
    ["build", "bad.jsonl", "--out", "new"],
    ["build", "bad.jsonl", "--out", "there"],
    ["build", "bad.jsonl", "--out", "hidden"],
    ["build", "one.jsonl", "--out", "new"],
    ["build", "good.jsonl", "--out", "new", "--val-fraction", "0.9999"],
    ["build", "good.jsonl", "--out", "mine"],
    ["build", "good.jsonl", "--out", "tokens"],
    ["build", "good.jsonl", "--out", "vocabulary"],
    ["build", "good.jsonl", "--out", "good.jsonl"],
    ["show", ""],
    ["show", "there"],
    ["check", ""],
    ["check", "new"],
]


@pytest.mark.parametrize("arguments", FAILING, ids=" ".join)
def test_a_command_that_fails_leaves_nothing(toeplix, place, arguments):  # noqa: F811
    before = tree(place)
    status, out, error = toeplix("data", *arguments)
    assert (status, out) == (2, "")
    assert error.count("\n") == 1
    assert tree(place) == before


def test_a_given_tokenizer_and_a_bad_line_leave_nothing(toeplix, place, store):  # noqa: F811
    before = tree(place)
    given = ["--tokenizer", store.directory / "tokenizer"]
    for source in ("bad.jsonl", "empty.jsonl", "one.jsonl"):
        status, _, _ = toeplix("data", "build", source, "--out", "new", *given)
        assert status == 2
        assert tree(place) == before


def test_a_build_that_succeeds_leaves_no_lock(toeplix, place):  # noqa: F811
    assert toeplix("data", "build", "good.jsonl", "--out", "new", "--vocab", 300)[0] == 0
    assert not (place / "new" / ".lock").exists()
    assert toeplix("data", "build", "good.jsonl", "--out", "hidden", "--vocab", 300)[0] == 0
    assert (place / "hidden" / ".lock").read_text() == "of another program"
    assert (place / "hidden" / ".eslintrc.json.bak").exists()


def test_what_was_done_stays_when_a_build_fails_late(place, monkeypatch):
    """There is something to go on with."""
    monkeypatch.setattr(building, "BATCH_CHARACTERS", 100)
    texts = make_texts(30)
    source = write_lines(place / "late.jsonl", texts)
    with open(source, "a") as file:
        file.write("{broken")
    recipe = Recipe(sources=(source,), vocab=300, val_fraction=0.0, limit=40)
    given = build(Recipe(sources=("good.jsonl",), vocab=300), place / "given").directory
    recipe = Recipe(sources=(source,), tokenizer=str(given / "tokenizer"), val_fraction=0.0)
    with pytest.raises(ValueError, match="line 31: not JSON"):
        build(recipe, place / "new", processes=1)
    assert json.loads((place / "new" / "progress.json").read_text())["read"] > 20
    assert not (place / "new" / ".lock").exists()


def test_interrupted_before_the_tokenizer_nothing_stays(place, monkeypatch):
    before = tree(place)

    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(Recipe(sources=("good.jsonl",)), place / "new", report=interrupt)
    assert tree(place) == before


def hold(folder, counts, rounds, fail):
    """Count up in a file, not atomically: two at a time would lose counts."""
    for _ in range(rounds):
        try:
            with locked(folder, wait=True):
                number = int(counts.read_text())
                time.sleep(0.0005)
                counts.write_text(str(number + 1))
                if fail:
                    raise ValueError("and its directory goes")
        except ValueError:
            pass


@pytest.mark.parametrize("fail", [False, True])
def test_locks_that_are_removed_keep_others_out(tmp_path, fail):
    counts, rounds, workers = tmp_path / "counts", 60, 4
    counts.write_text("0")
    folder = tmp_path / "a" / "b" / "place"
    context = multiprocessing.get_context("fork")
    started = [
        context.Process(target=hold, args=(folder, counts, rounds, fail)) for _ in range(workers)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
        assert process.exitcode == 0
    assert counts.read_text() == str(rounds * workers)
    assert not (folder / ".lock").exists()
    assert fail or folder.is_dir()


def test_one_that_waits_gets_the_lock_of_the_new_file(tmp_path):
    """It waited on a file that is gone; it must not believe that it holds the lock now."""
    with locked(tmp_path):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            with locked(tmp_path, wait=True):
                os.write(writer, b"1" if (tmp_path / ".lock").exists() else b"0")
            os._exit(0)
        time.sleep(0.2)
    assert os.read(reader, 1) == b"1"
    os.waitpid(child, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "target").write_text("kept")
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / ".lock").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match=r"\.lock"), locked(tmp_path / "place"):
        pass
    assert (tmp_path / "target").read_text() == "kept"


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("one.jsonl", r"one\.jsonl is a file: choose a directory"),
        ("one.jsonl/below/it", r"one\.jsonl is a file: choose a directory"),
        ("/dev/null", "/dev/null is no directory: choose a directory"),
        ("link", "link is a symbolic link to nothing: choose a directory"),
    ],
)
def test_what_is_no_directory_is_named(place, out, words):
    (place / "link").symlink_to("nowhere")
    before = tree(place)
    with pytest.raises(NotADirectoryError, match=words):
        build(Recipe(sources=("good.jsonl",), vocab=300), out)
    assert tree(place) == before
