"""A split that was asked for has something in it, or the command says why not."""

import json
import multiprocessing
from dataclasses import replace

import pytest

from tests.data import build_worker
from tests.data.conftest import make_texts, whole, write_lines
from tests.data.test_commands import toeplix  # noqa: F401 - a fixture
from tests.toy import toy_run
from toeplix.data import Recipe, Store, build, building
from toeplix.data.encoding import hash_of, is_validation
from toeplix.training.loop import fit

BOOKS = [text for text in make_texts(60, seed=3) if not is_validation(text.encode(), 0.05)][:28]


@pytest.fixture
def recipe(tmp_path):
    source = write_lines(tmp_path / "books.jsonl", BOOKS + BOOKS[::2] + ["", BOOKS[3]])
    return Recipe(sources=(source,), vocab=300, val_fraction=0.05)


def texts_of(split, store):
    return [store.tokenizer.decode(split.document(index)) for index in range(len(split))]


def test_a_share_that_chose_no_document_holds_one_out(recipe, tmp_path):
    store = build(recipe, tmp_path / "store")
    chosen = min(BOOKS, key=lambda text: hash_of(text.encode()))
    held, train = texts_of(store.val, store), texts_of(store.train, store)
    assert set(held) == {chosen}, "with its duplicates"
    assert set(train) == set(BOOKS) - {chosen}
    assert "val_fraction=0.05 chose none of 44 documents" in store.notice
    store.check()
    # the tokenizer has not seen it either: a build without that text learns the same
    others = write_lines(tmp_path / "others.jsonl", train)
    other = build(Recipe(sources=(others,), vocab=300, val_fraction=0.0), tmp_path / "other")
    assert other.tokenizer.backend.to_str() == store.tokenizer.backend.to_str()
    assert not other.notice
    assert build(recipe, tmp_path / "store").manifest == store.manifest, "opened again"


@pytest.mark.usefixtures("pooled")
def test_the_number_of_processes_changes_nothing(recipe, tmp_path):
    for processes in (1, 2):
        build(recipe, tmp_path / str(processes), processes=processes)
    assert whole(tmp_path / "1") == whole(tmp_path / "2")


@pytest.mark.parametrize("moment", range(1, 12, 2))
def test_stopped_at_any_moment_the_split_comes_out_the_same(recipe, tmp_path, monkeypatch, moment):
    monkeypatch.setattr(building, "BATCH_CHARACTERS", build_worker.SMALL)
    expected = whole(build(recipe, tmp_path / "whole").directory)
    seen = []

    class Stopped(BaseException):
        pass

    def stop(progress):
        seen.append(progress)
        if len(seen) == moment:
            raise Stopped

    with pytest.raises(Stopped):
        build(recipe, tmp_path / "new", processes=1, report=stop, every=0)
    build(recipe, tmp_path / "new", processes=1)
    assert whole(tmp_path / "new") == expected


def test_killed_in_either_pass_the_split_comes_out_the_same(recipe, tmp_path):
    expected = whole(build(recipe, tmp_path / "whole").directory)
    context, folder = multiprocessing.get_context("forkserver"), tmp_path / "new"
    for attempt in range(40):
        process = context.Process(target=build_worker.slow_build, args=(recipe, folder))
        process.start()
        process.join(0.1 + 0.1 * attempt)
        process.kill()
        process.join()
        if process.exitcode == 0:
            break
    assert process.exitcode == 0
    assert whole(folder) == expected


def test_a_split_of_short_documents_is_told(tmp_path):
    """One of two documents is chosen, and has a hundredth of the text."""
    short = next(text for text in BOOKS if is_validation(text.encode(), 0.5))
    longer = (f"{text} " * 100 for text in BOOKS)
    long = next(text for text in longer if not is_validation(text.encode(), 0.5))
    source = write_lines(tmp_path / "texts.jsonl", [short, long])
    store = build(Recipe(sources=(source,), vocab=300, val_fraction=0.5), tmp_path / "store")
    assert "tokens, far less than val_fraction=0.5" in store.notice


def test_a_split_that_holds_something_is_chosen_by_the_share_alone(recipe, tmp_path):
    store = build(replace(recipe, val_fraction=0.3), tmp_path / "store")
    assert set(texts_of(store.val, store)) == {
        text for text in BOOKS if is_validation(text.encode(), 0.3)
    }
    assert "val_share" not in store.manifest
    assert not store.notice


@pytest.mark.parametrize(
    ("texts", "share", "words"),
    [
        (["one text"], 0.01, "holds a single text; give more, or --val-fraction 0"),
        (["one text"] * 5, 0.01, "holds a single text; give more, or --val-fraction 0"),
        (
            ["one text", "another"],
            0.999999,
            "all 2 documents are validation by val_fraction=0.999999",
        ),
    ],
)
def test_where_no_split_can_be_made_the_reason_is_told(
    toeplix,  # noqa: F811
    tmp_path,
    texts,
    share,
    words,
):
    source = write_lines(tmp_path / "a.jsonl", texts)
    out = tmp_path / "out"
    status, _, error = toeplix("data", "build", source, "--out", out, "--val-fraction", share)
    assert status == 2
    assert words in error
    assert not out.exists()


def test_the_command_says_what_it_held_out(toeplix, recipe, tmp_path):  # noqa: F811
    arguments = (*recipe.sources, "--out", tmp_path / "out", "--vocab", 300, "--val-fraction", 0.05)
    status, _, error = toeplix("data", "build", *arguments)
    assert status == 0
    assert "toeplix: val_fraction=0.05 chose none of 44 documents" in error


def without_validation(recipe, folder):
    """A store as it was built before splits were filled."""
    build(replace(recipe, val_fraction=0.0), folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["recipe"]["val_fraction"] = 0.05
    del manifest["sha256"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return Store.open(folder)


def test_training_without_the_validation_that_was_asked_for_is_told(recipe, tmp_path):
    store = without_validation(recipe, tmp_path / "store")
    with pytest.raises(
        ValueError, match=r"no validation documents .*val_fraction=0\.05.*--eval-every"
    ):
        fit(toy_run(store), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    said = []
    fit(toy_run(store, steps=4, eval_every=0), tmp_path / "run", say=said.append)
    assert "there is no validation split" in said[0]
    store = build(recipe, tmp_path / "filled")
    fit(toy_run(store, steps=4), tmp_path / "run-2", say=said.append)
    assert len(said) == 1
    assert "val_loss" in (tmp_path / "run-2" / "metrics.jsonl").read_text()
