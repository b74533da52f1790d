"""The embedded corpus: Python's own documentation, parsed and never imported."""

import json

import pytest

from toeplix.data.corpus import MIN_CHARACTERS, modules, python_corpus


@pytest.mark.slow
def test_the_corpus_of_this_python():
    file = python_corpus()
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    texts = {row["name"]: row["text"] for row in rows}
    assert len(texts) == len(rows)
    assert sum(map(len, texts.values())) > 1_500_000
    assert min(map(len, texts.values())) >= MIN_CHARACTERS
    assert "JSON (JavaScript Object Notation)" in texts["json"]
    assert "JSONEncoder.default\n\nImplement this method" in texts["json.encoder"]
    assert not [name for name in texts if {"test", "tests"} & set(name.split("."))]
    before = file.stat().st_mtime_ns
    assert python_corpus() == file
    assert file.stat().st_mtime_ns == before, "made once"


def test_modules_are_parsed_and_never_imported(tmp_path):
    long = "word " * MIN_CHARACTERS
    for name in ("b.py", "a/__init__.py", "a/inner.py", "test/x.py", "site-packages/y.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(
            f'"""{long}"""\nraise SystemExit\ndef f():\n    """Inside."""\n'
        )
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "tiny.py").write_text('"""Too short."""')
    found = list(modules(tmp_path))
    assert [name for name, _ in found] == ["a", "a.inner", "b"]
    assert found[1][1] == f"a.inner\n\n{long}\n\nf\n\nInside.\n"
