"""One file that tells a run: whole, escaped, and with no address in it."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from toeplix.cli.main import main
from toeplix.reports.filter_curves import Filters
from toeplix.training.logs import METRICS, SAMPLES
from toeplix.training.loop import MODEL

ROOT = Path(__file__).parents[2]


class Reader(HTMLParser):
    """Elements, their attributes, and the text between them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.words = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        named = dict(attributes)
        self.links += [named[name] for name in ("src", "href", "srcset", "action") if name in named]

    def handle_data(self, data):
        self.words += data


def write(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["toeplix", "page", *map(str, arguments)])
    main()


@pytest.fixture
def run(trained, tmp_path):
    """A copy, with a sample that would like to be a script."""
    folder = tmp_path / "a & <b>"
    shutil.copytree(trained / "first", folder)
    (folder / SAMPLES).write_text("--- step 24, sample 0\n<script>alert(1)</script> & so on\n")
    return folder


def test_everything_is_in_the_file(run, monkeypatch, capsys, tmp_path):
    target = tmp_path / "deep" / "page.html"
    write(monkeypatch, run, target)
    assert capsys.readouterr().out == f"{target}\n"
    text = target.read_text()
    page = Reader(text)
    assert "script" not in page.tags
    assert "<script>alert(1)</script> & so on" in page.words
    assert "a & <b>" in page.words
    assert page.tags.count("svg") == 2
    assert all(link.startswith("#") for link in page.links)
    assert "//" not in re.sub(r"<pre>.*?</pre>", "", text, flags=re.DOTALL)
    assert "url(" not in re.sub(r"url\(#\w+\)", "", text)
    for row in Filters(run / MODEL).rows:
        assert f"{row['name']}: {row['index']}" in page.words
    settings = json.loads((run / "run.json").read_text())
    for key in (*settings, *settings["model"]):
        assert key.replace("_", " ") in page.words
    last = json.loads((run / METRICS).read_text().splitlines()[-1])
    assert f"{last['val_loss']:.4f} nats per token" in page.words


def test_beside_the_run_unless_told_otherwise(run, monkeypatch, capsys):
    write(monkeypatch, run)
    assert capsys.readouterr().out == f"{run / 'page.html'}\n"
    assert (run / "page.html").stat().st_size > 10_000


def test_a_run_that_is_not_finished(trained, tmp_path, monkeypatch):
    second = trained / "deeper" / "second"
    write(monkeypatch, second, tmp_path / "page.html")
    page = Reader((tmp_path / "page.html").read_text())
    assert re.search(r"second \(after \d+ of 24 steps\)", page.words)
    assert page.tags.count("svg") == 1


def test_a_sample_is_written_where_the_run_has_none(run, monkeypatch):
    (run / SAMPLES).write_text("")
    write(monkeypatch, run)
    assert re.search(r"<pre>[^<]+</pre>", (run / "page.html").read_text())


@pytest.mark.slow
def test_a_failed_page_leaves_the_old_one(run, monkeypatch, capsys):
    write(monkeypatch, run)
    before = (run / "page.html").read_bytes()
    weights = run / MODEL / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(SystemExit) as leaving:
        write(monkeypatch, run)
    assert leaving.value.code == 2
    assert "is damaged" in capsys.readouterr().err
    assert (run / "page.html").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "record", "rows", "words"),
    [
        ("nothing", None, "", "is no run: there is no run.json in it"),
        ("broken", "{", "", "cannot be read"),
        ("unknown", '{"data": "x", "speed": 1}', "", "Run has no setting speed"),
        ("early", '{"data": "x"}', "", "has no rows in metrics.jsonl yet"),
    ],
)
def test_what_is_no_run(tmp_path, monkeypatch, capsys, name, record, rows, words):
    folder = tmp_path / name
    folder.mkdir()
    if record is not None:
        (folder / "run.json").write_text(record)
        (folder / METRICS).write_text(rows)
    with pytest.raises(SystemExit) as leaving:
        write(monkeypatch, folder)
    assert leaving.value.code == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (folder / "page.html").exists()


def test_words_without_a_page(monkeypatch, run, capsys):
    write(monkeypatch, run, "--text")
    assert capsys.readouterr().out.rstrip() == (run / "summary.md").read_text().rstrip()
    (run / "summary.md").unlink()
    with pytest.raises(SystemExit) as ended:
        write(monkeypatch, run, "--text")
    assert ended.value.code == 2
    assert "has no summary.md" in capsys.readouterr().err


def test_the_page_of_claims_may_be_named(monkeypatch, tmp_path, capsys):
    """Also when it is there already."""
    shutil.copytree(ROOT / "results" / "decoding", tmp_path / "results" / "decoding")
    places = ["--out", tmp_path / "claims.md", "--results", tmp_path / "results"]
    places += ["--figures", tmp_path / "figures", "--html", tmp_path / "claims.html"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.argv", ["toeplix", "experiment", "report", *map(str, places)])
    for _ in range(2):
        main()
        assert "C20" in (tmp_path / "claims.html").read_text()


def test_a_damaged_line_is_said_and_left_out(run, monkeypatch, capsys):
    file = run / METRICS
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], '{"step": 3}', *lines[1:]]) + "\n")
    write(monkeypatch, run)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "line 2, is damaged: field 'tokens' is missing; it is left out" in said
