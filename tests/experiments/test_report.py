"""The document of claims: from rows alone, the same bytes every time, and the one in docs is current."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.rows_by_hand import learned
from toeplix.experiments import EXPERIMENTS, SCALES, load
from toeplix.experiments.engine import report, report_cache, rows, tuning
from toeplix.experiments.engine.claims import CLAIMS, KINDS, Verdict
from toeplix.experiments.engine.claims_document import NOT_YET, folded, overview, sections
from toeplix.experiments.engine.collect import known, results_file
from toeplix.experiments.engine.conditions import conditions
from toeplix.experiments.engine.intervals import Interval
from toeplix.experiments.engine.verdicts import Comparison, decide, not_testable
from toeplix.explorer.claims import table

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MEASURED = [
    (name, size)
    for name in EXPERIMENTS
    for size in ("laptop", "desk")
    if results_file(name, size, ROOT / "results").exists()
]


@pytest.mark.usefixtures("unchecked")
def test_the_document_in_docs_is_what_the_rows_say(monkeypatch):
    monkeypatch.chdir(ROOT)
    written = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    now = report.markdown(figures=Path("figures"), base=Path("docs"))
    assert written == now, "run `make report` and commit what it writes"


@pytest.mark.parametrize(("name", "size"), MEASURED)
def test_rows_on_disk_are_those_of_the_scale(name, size):
    """Of a size that was given up, or of a model that has changed, no row stays behind."""
    file = results_file(name, size, ROOT / "results")
    kind = load(name).Case
    found = tuning.current(kind, rows.flat(file))
    # the scale's text, or the user's whose rows are there
    texts = {row["data"] for row in found if "@" in row.get("data", "")}
    scale = replace(SCALES[size], data=next(iter(texts), SCALES[size].data))
    wanted = {rows.key(rows.record(case)) for case in load(name).cases(scale, found)}
    measured = known(kind, file)
    current = {key for key, row in measured.items() if tuning.current(kind, [row["case"]])}
    assert current <= wanted


def test_without_rows_all_is_open(tmp_path):
    text = report.markdown(tmp_path, tmp_path)
    lines = [line for line in text.splitlines() if line.startswith("| [C")]
    assert len(lines) == sum(len(claim.parts) for claim in CLAIMS.values())
    assert all(NOT_YET in line for line in lines)


def test_the_first_table_is_sorted_by_verdict_and_links_to_sections():
    said = {part: {} for claim in CLAIMS.values() for part in claim.parts}
    for number, part in enumerate(said):
        kind = KINDS[number % len(KINDS)]
        said[part] = {"laptop": Verdict(kind=kind, number="1 ± 2", reason="so", ours="a | b")}
    said["C1d"]["desk"] = Verdict(kind="fails", number="3 ± 1", reason="more", ours="c")
    said["C2a"] = {}
    is_old = lambda name, scale: scale == "laptop" and name == "window"  # noqa: E731
    lines = overview(said, is_old)[2:]
    words = [next(each for each in (*KINDS, NOT_YET) if f"**{each}**" in line) for line in lines]
    assert words == sorted(words, key=[*KINDS, NOT_YET].index)
    (first,) = [line for line in lines if line.startswith("| [C1d](#c1)")]
    assert "**fails** (desk) | 3 ± 1 | more |" in first, "the larger scale counts"
    old = [line for line in lines if "first protocol" in line]
    assert len(old) == 3
    assert all(f"**{NOT_YET}** (laptop: first protocol) |  |" in each for each in old)
    conditions = lambda name, scale: [f"seeds: {len(name)}"]  # noqa: E731
    document = "\n".join(sections(said, is_old, conditions, lambda name: name != "complexity"))
    assert f"| C3a | {CLAIMS['C3'].parts['C3a'].text} | laptop | **{NOT_YET}** |" in document
    assert "`toeplix experiment run training --scale desk --corpus NAME=PATH`" in document
    assert "`toeplix experiment run complexity --scale laptop`" in document
    assert all(f"### {claim}\n" in document for claim in CLAIMS)
    assert "a \\| b" in document
    assert "Rows of training, desk scale: seeds: 8." in document


def test_the_largest_scale_that_can_test_a_part_counts():
    said = {part: {} for claim in CLAIMS.values() for part in claim.parts}
    one_seed = Verdict(kind="undecided", number="3", reason="one seed only", ours="")
    holds = Verdict(kind="holds", number="2 ± 1", reason="paper flat minus llama: below 0", ours="")
    said["C2a"] = {"laptop": one_seed, "desk": holds, "paper": one_seed}
    said["C3a"] = {"laptop": one_seed, "paper": one_seed}
    untrained = Verdict(kind="control not trained", number="2 ± 1", reason="few", ours="2 ± 1")
    said["C4"] = {"laptop": holds, "desk": untrained}
    open_part = Verdict(kind="undecided", number="0 ± 1", reason="the interval contains 0", ours="")
    said["C8"] = {"laptop": holds, "desk": open_part}
    said["C11a"] = {"laptop": holds, "desk": not_testable("not here")}
    lines = {line.split("]")[0][3:]: line for line in overview(said, lambda name, scale: False)}
    assert (
        "**holds** (desk; paper: undecided) | 2 ± 1 | flat TMM minus Llama: below 0 |"
        in lines["C2a"]
    )
    assert "**undecided** (paper) | 3 |" in lines["C3a"]
    assert "**control not trained** (desk) |  | few |" in lines["C4"], "its number decides nothing"
    assert "**undecided** (desk) | 0 ± 1 |" in lines["C8"], "six seeds count more than three"
    assert "**holds** (laptop; desk: not testable here)" in lines["C11a"]


def test_rows_of_the_first_protocol_decide_nothing(tmp_path):
    file = results_file("frozen", "laptop", tmp_path)
    file.parent.mkdir()
    old = [row for level, kind in ((4.5, "paper"), (5.2, "frozen")) for row in both(kind, level)]
    for version, kind in ((1, "not testable here"), (2, "holds")):
        cases = [row | {"protocol_version": version} for row in old]
        lines = [json.dumps({"case": row, "found": {}}) + "\n" for row in cases]
        file.write_text("".join(lines))
        verdict = report.verdicts(tmp_path)["C6a"]["laptop"]
        assert verdict.kind == kind
        assert "frozen flat minus paper flat: 0.699" in verdict.ours
        (claim,) = (each for each in table(tmp_path, tmp_path)["claims"] if each["name"] == "C6a")
        assert [each["word"] for each in claim["ours"]] == [kind], "in the explorer too"
    assert "first protocol" not in verdict.reason


def test_useless_rows_are_told_with_their_file(tmp_path):
    file = results_file("frozen", "desk", tmp_path)
    file.parent.mkdir()
    lines = [
        json.dumps({"case": row | {"protocol_version": "x"}, "found": {}}) + "\n"
        for row in both("paper", 4.5)
    ]
    file.write_text("".join(lines))
    with pytest.raises(ValueError, match=r"frozen.desk\.jsonl"):
        report.reported_scales("frozen", tmp_path)


def test_rows_of_the_first_protocol_are_not_shown_beside_others(tmp_path):
    old = [row for level, kind in ((4.5, "paper"), (5.2, "frozen")) for row in both(kind, level)]
    for version, scale, shown in ((1, "laptop", ["laptop"]), (2, "desk", ["desk"])):
        file = results_file("frozen", scale, tmp_path)
        file.parent.mkdir(exist_ok=True)
        cases = [row | {"protocol_version": version} for row in old]
        lines = [json.dumps({"case": row, "found": {}}) + "\n" for row in cases]
        file.write_text("".join(lines))
        assert report.reported_scales("frozen", tmp_path) == shown
        assert list(report.verdicts(tmp_path)["C6a"]) == shown
        (claim,) = (each for each in table(tmp_path, tmp_path)["claims"] if each["name"] == "C6a")
        assert [each["scale"] for each in claim["ours"]] == shown


def both(kind, level):
    """Rows of a model with and without heads."""
    return [*learned(f"{kind} flat", level), *learned(f"{kind} 4 heads", level)]


def test_commands_name_a_text_where_the_scale_has_none():
    assert report._reads_text("training")
    assert not report._reads_text("complexity")


def test_what_fails_against_one_trained_control_fails():
    worse, better = Interval(1.0, 0.9, 1.1, 5), Interval(-1.0, -1.1, -0.9, 5)
    hidden = Comparison(name="b", interval=better, control="b has read nothing")
    parts = {
        "C1a": [hidden, Comparison(name="a", interval=worse)],
        "C1b": [hidden, Comparison(name="a", interval=better)],
    }
    found = decide(parts)
    assert (found["C1a"].kind, found["C1a"].reason) == ("fails", "a: not below 0")
    assert found["C1b"].kind == "control not trained"


def test_long_tables_are_folded():
    table = ["| a |", "|---|", *["| b |"] * 30]
    assert folded("x", table[:5]) == table[:5]
    page = report.page("\n".join(folded("x", table)))
    assert "<details><summary>x: 30 lines</summary>" in page
    assert page.count("<td>b</td>") == 30


def test_conditions_of_rows():
    fields = {"part": "", "relative_time": 1.0, "steps": 10, "batch": 2, "context": 50}
    fields |= {"dim": 8}
    rows = [
        fields | {"model": "hyena", "parameters": 100, "seed": seed, "lr": lr, "loss": 4 - lr}
        for seed, lr in ((0, 0.1), (0, 0.2), (1, 0.2))
    ]
    assert conditions(rows) == [
        "tokens per parameter: 10",
        "seeds: 2",
        "learning rates at an edge of those tried: 1 of 1 (hyena)",
    ]
    other = fields | {"model": "hyena", "data": "other", "steps": 99, "parameters": 1, "seed": 0}
    assert conditions([*rows, other | {"lr": 0.1, "loss": 1.0}]) == [
        "1 rows on other texts are left out",
        *conditions(rows),
    ]
    assert conditions([{"way": "history"}]) == []


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

    both = [f"{what} of linear, laptop scale" for what in ("figure", "verdicts", "table")]
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


def test_no_rows_no_report(tmp_path):
    document = tmp_path / "experiments.md"
    document.write_text("earlier")
    with pytest.raises(ValueError, match=r"there are no rows in .*nowhere: name"):
        report.write(document, None, results=tmp_path / "nowhere", overwrite=True)
    assert document.read_text() == "earlier"


def test_texts_are_named_with_their_digests(tmp_path):
    (tmp_path / "training").mkdir()
    source = results_file("training", "desk", ROOT / "results").read_text().splitlines()[:2]
    results_file("training", "desk", tmp_path).write_text("\n".join(source) + "\n")
    (named,) = [line for line in report.markdown(tmp_path).splitlines() if "Texts, by name" in line]
    assert named.endswith("`openstax@0af886875b72`.")
    assert "Texts, by name" not in report.markdown(tmp_path / "nowhere")


def test_a_number_that_two_comparisons_share_is_shown_once():
    twice = Comparison(name="ratio", interval=Interval(0.5, 0.1, 0.9, 3), bound=1.0)
    said = decide({"C20c": [twice, replace(twice, bound=-1.0, above=True)]})["C20c"]
    assert (said.kind, said.ours.count("ratio")) == ("holds", 1)


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
