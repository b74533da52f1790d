"""What is found under a path, and what is not."""

import pytest

from toeplix.explorer.discovery import MAX_DEPTH, find
from toeplix.training.loop import MODEL


def test_runs_and_models_by_name(trained):
    found = find(trained)
    assert set(found.runs) == {"first", "deeper/second"}
    assert found.models["first"] == trained / "first" / MODEL
    assert next(iter(found.models)) == "first"  # with a tokenizer, so it comes first
    (unfinished,) = set(found.models) - {"first"}
    assert unfinished == "deeper/second, step-24"
    assert found.models[unfinished].name == "step-24"


def test_one_run_or_one_model(trained):
    alone = find(trained / "first")
    assert (set(alone.runs), set(alone.models)) == ({"first"}, {"first"})
    assert find(trained / "first" / MODEL) == alone


def test_neither_links_nor_hidden_directories_nor_too_deep_ones(trained, tmp_path):
    (tmp_path / "link").symlink_to(trained / "first")
    for place in (".hidden", "/".join("abcde"[: MAX_DEPTH + 1])):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "run.json").write_text("{}")
    assert find(tmp_path).runs == {}


def test_what_cannot_be_explored(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no"):
        find(tmp_path / "nothing")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file"):
        find(tmp_path / "file")
