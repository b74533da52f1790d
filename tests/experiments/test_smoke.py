"""Every experiment from nothing to its figure, at smoke scale; what it writes is what it reads."""

import pytest

from toeplix.experiments import EXPERIMENTS, SCALES, Verdict, load
from toeplix.experiments.engine import rows
from toeplix.experiments.engine.claims import CLAIMS, KINDS, MAX_WORDS, claim_of
from toeplix.experiments.engine.collect import collect, results_file
from toeplix.experiments.engine.report import draw

pytestmark = pytest.mark.slow

SMOKE = SCALES["smoke"]


@pytest.fixture(scope="module")
def place(tmp_path_factory, one_thread):
    """Shared: experiments that want the same model train it once."""
    return tmp_path_factory.mktemp("experiments")


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_from_nothing_to_figure(name, place):
    experiment = load(name)
    results, work = place / "results", place / "work"
    found = collect(name, SMOKE, results=results, work=work)
    failed = list(rows.read(results_file(name, "smoke", results)).values())
    assert not [row["error"] for row in failed if "error" in row]
    wanted = {rows.key(rows.record(case)) for case in experiment.cases(SMOKE, found)}
    assert len(found) == len(wanted)
    figure = draw(name, "smoke", results=results, figures=place / "figures")
    assert figure.read_text().startswith("<?xml")
    assert all(isinstance(row, dict) for row in experiment.table(found))
    for part, verdict in experiment.holds(found).items():
        assert claim_of(part) in experiment.CLAIMS
        assert CLAIMS[claim_of(part)].parts[part].experiment == name
        assert isinstance(verdict, Verdict)
        assert verdict.kind in KINDS
        assert verdict.reason
        assert verdict.ours
    assert all(name in CLAIMS[claim].experiments for claim in experiment.CLAIMS)
    before = results_file(name, "smoke", results).read_bytes()
    collect(name, SMOKE, results=results, work=work)
    assert results_file(name, "smoke", results).read_bytes() == before, "nothing is measured twice"


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("scale", ["paper", "desk", "laptop"])
def test_cases_at_every_scale(name, scale):
    """They are there, each once, and can be built from their rows."""
    experiment = load(name)
    cases = experiment.cases(SCALES[scale], [])
    keys = [rows.key(rows.record(case)) for case in cases]
    assert cases
    assert len(set(keys)) == len(keys)
    assert all(experiment.Case(**rows.record(case)) == case for case in cases)


def test_claims_and_experiments_name_each_other():
    assert list(CLAIMS) == [f"C{number}" for number in range(1, 21)]
    deciding = {
        claim: {name for name in EXPERIMENTS if claim in load(name).CLAIMS} for claim in CLAIMS
    }
    assert deciding == {claim: set(CLAIMS[claim].experiments) for claim in CLAIMS}


def test_parts_of_claims_are_short():
    parts = [part for claim in CLAIMS.values() for part in claim.parts.values()]
    assert all(len(part.text.split()) <= MAX_WORDS for part in parts)
    assert len({part.text for part in parts}) == len(parts)
