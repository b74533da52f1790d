"""The document of claims: from rows alone, the same bytes every time, and the one in docs is current."""

from pathlib import Path

import pytest

from toeplix.experiments import EXPERIMENTS, SCALES, load
from toeplix.experiments.engine import report, report_cache, rows
from toeplix.experiments.engine.claims import CLAIMS
from toeplix.experiments.engine.collect import known, results_file

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.mark.usefixtures("unchecked")
def test_the_document_in_docs_is_what_the_rows_say(monkeypatch):
    monkeypatch.chdir(ROOT)
    written = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    now = report.markdown(figures=Path("figures"), base=Path("docs"))
    assert written == now, "run `make report` and commit what it writes"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_rows_on_disk_are_those_of_the_scale(name):
    """Of a size that was given up, or of a model that has changed, no row stays behind."""
    file = results_file(name, "laptop", ROOT / "results")
    cases = load(name).cases(SCALES["laptop"], rows.flat(file))
    wanted = {rows.key(rows.record(case)) for case in cases}
    assert set(known(load(name).Case, file)) <= wanted


def test_without_rows_all_is_open(tmp_path):
    text = report.markdown(tmp_path, tmp_path)
    lines = [line for line in text.splitlines() if line.startswith("| C")]
    assert len(lines) == len(CLAIMS)
    assert all(report.NOT_YET in line for line in lines)


def test_the_rows_in_results_judge_every_claim():
    for claim, by_scale in report.verdicts(ROOT / "results").items():
        assert set(by_scale["laptop"]) == set(CLAIMS[claim].experiments), claim


@pytest.mark.usefixtures("unchecked")
def test_what_did_not_change_is_not_made_again(tmp_path):
    """The same bytes with and without a cache; rows that change, or a damaged cache, make it anew."""
    results, file = tmp_path / "results", tmp_path / "results" / "linear" / "laptop.jsonl"
    file.parent.mkdir(parents=True)
    lines = (ROOT / "results" / "linear" / "laptop.jsonl").read_text().splitlines(keepends=True)
    file.write_text("".join(lines))
    cache = report_cache.ReportCache(tmp_path / "cache")
    made = []

    def written(cache):
        made.clear()
        document, page = tmp_path / "claims.md", tmp_path / "claims.html"
        figures = tmp_path / "figures"
        report.write(
            document, page, results=results, figures=figures, cache=cache, progress=made.append
        )
        return [each.read_bytes() for each in (document, page, figures / "linear-laptop.svg")]

    both = ["figure of linear, laptop scale", "table of linear, laptop scale"]
    first = written(report.NO_CACHE)
    assert made == both
    for expected in (both, []):
        assert written(cache) == first
        assert made == expected
    for kept in (tmp_path / "cache").iterdir():
        kept.write_text("{")
    assert written(cache) == first
    assert made == both
    file.write_text("".join(lines[:-1]))
    assert written(cache) != first
    assert made == both


def test_a_change_of_the_code_is_a_change(tmp_path, monkeypatch):
    cache = report_cache.ReportCache(tmp_path)
    assert cache.get("x", [], lambda: 1) == 1
    assert cache.get("x", [], lambda: 2) == 1
    monkeypatch.setattr(report_cache, "_code_digest", lambda: "another")
    assert cache.get("x", [], lambda: 3) == 3


def test_no_rows_no_figure(tmp_path):
    with pytest.raises(ValueError, match="toeplix experiment run training --scale laptop"):
        report.draw("training", "laptop", results=tmp_path, figures=tmp_path)


@pytest.mark.usefixtures("unchecked")
def test_the_same_rows_give_the_same_bytes(tmp_path):
    results = ROOT / "results"
    files = [
        report.draw("throughput", "laptop", results=results, figures=tmp_path / name)
        for name in ("one", "two")
    ]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("made", [True, False])
def test_the_page_holds_its_figures(tmp_path, made):
    """Whether the directory of the document is there already or not."""
    if made:
        (tmp_path / "docs").mkdir()
    (tmp_path / "x.svg").write_text("<svg/>")
    page = report.page("| a |\n|---|\n| b |\n\n![x](../x.svg)\n", tmp_path / "docs")
    assert "<td>b</td>" in page
    assert 'src="data:image/svg+xml;base64,' in page
    assert "../x.svg" not in page
