"""Retention: its claims on rows made by hand."""

import pytest

from tests.experiments.rows_by_hand import SEEDS, kinds
from toeplix.experiments import SCALES, retention
from toeplix.experiments.engine import retention_verdicts
from toeplix.experiments.engine import rows as stored
from toeplix.experiments.engine.conditions import conditions
from toeplix.experiments.engine.encoders import ENCODER


def probed(name, loss, training, *, part="matched", signal="state", lr=4e-3):
    return [
        {
            "model": name,
            "training": training,
            "part": part,
            "probe": {"signal": signal},
            "context": 8,
            "vocab": 500,
            "seed": seed,
            "lr": lr,
            "loss": loss + 0.1 * seed + 0.001 * ((len(name) + seed) % 3),
            "accuracy": 0.1,
            "batch": 8,
            "curve": [[10, loss, 0.1]],
        }
        for seed in SEEDS
    ]


def kept(**losses):
    rows = probed("toeplitz", 6.0, "language", part="control", signal="none")
    rows += probed("toeplitz", losses.pop("autoencoder", 1.0), "autoencoder", part="control")
    for name in ("paper flat", "paper 4 heads", "hyena", "mamba2"):
        rows += probed(name, 5.5, "untrained")
        rows += probed(name, losses.get(name.replace(" ", "_"), 5.2), "language")
    return rows


def test_retention_grows_and_is_highest():
    found = kinds(retention.holds(kept(paper_flat=4.2)))
    assert found == dict.fromkeys(["C9a", "C9b", "C9c", "C9d", "C9e"], "holds")
    hurt = retention.holds(kept(paper_flat=4.2, hyena=5.7))
    assert (hurt["C9a"].kind, hurt["C9b"].kind) == ("holds", "fails"), "training hurts Hyena"
    assert retention.holds(kept(paper_flat=4.2, mamba2=4.0))["C9e"].kind == "fails"
    unread = retention.holds(kept(paper_flat=4.2, autoencoder=5.0))
    assert unread["C9d"].kind == "control not trained", "decoders read 17% of an autoencoder's text"
    missing = [row for row in kept(paper_flat=4.2) if row["training"] != "autoencoder"]
    assert retention.holds(missing)["C9d"].kind == "control not trained"
    lost = kept(paper_flat=4.2)
    lost[-1] |= {"loss": None}
    assert retention.holds(lost)["C9e"].reason == "1 of 3 decoders on mamba2 (language) diverged"
    assert retention.holds([]) == {}


def test_seeds_between_the_planned_looks_do_not_decide():
    rows = kept(paper_flat=4.2, hyena=5.49)
    other = [row | {"seed": 3 + row["seed"], "loss": row["loss"] + 0.01} for row in rows]
    four = [*rows, *(row for row in other if row["seed"] == 3)]
    assert retention.holds(four) == retention.holds(rows) != retention.holds([*rows, *other])
    apart = [row | {"seed": 9 + row["seed"]} if row["model"] == "hyena" else row for row in rows]
    assert retention.holds(apart) == {}, "no seed is shared"


def searched(desk, *, gain=0.5):
    """All rows of a run to its end; training on language lowers the loss of decoders by `gain`."""
    found = {}
    for _ in range(10):
        rows = list(found.values())
        for case in retention.cases(desk, rows):
            loss = 4.0 + 0.1 * len(case.model) + 1e-3 * (case.seed * len(case.model) % 5)
            loss += (gain + 1e-3 * (case.seed % 3)) * (case.training == "untrained")
            if case.training == "autoencoder":
                loss = 1.0
            off = abs(case.encoder_lr - 6e-3) if case.part == "encoder" else abs(case.lr - 1e-2)
            numbers = {"loss": loss, "tune_loss": off, "accuracy": 0.1}
            found[stored.key(stored.record(case))] = stored.record(case) | numbers
    return list(found.values())


def test_retention_at_the_desk_has_what_the_claim_names():
    desk = SCALES["desk"]
    rows = searched(desk)
    assert {row["model"] for row in rows} == {"paper flat", "paper 4 heads", "hyena", "mamba2"}
    probed = {row["model"] for row in rows if row["part"] != "encoder"}
    assert probed == {"paper flat", "hyena", "mamba2"}, "one of the paper's two models"
    assert {row["training"] for row in rows} == {"untrained", "language", "autoencoder"}
    able = [row for row in rows if row["training"] == "autoencoder"]
    assert {(row["part"], row["model"]) for row in able} == {("control", "paper flat")}
    assert {row["part"] for row in rows} == {"matched", "encoder", "control"}
    assert {row["steps"] for row in rows} == {2000}
    assert set(retention_verdicts.control_losses(rows)) == {*desk.seeds}
    assert set(retention.holds(rows)) == {*retention_verdicts.RAISES, *retention_verdicts.MORE}
    hyena = [row for row in rows if (row["model"], row["training"]) == ("hyena", "untrained")]
    tried = {row["lr"] for row in hyena}
    assert {1.6e-3, 4e-3, 1e-2} < tried, "the grid of decoders was extended beyond 0.01"
    best = retention_verdicts.chosen(rows, "hyena", "untrained")
    assert [(row["lr"], row["seed"]) for row in best] == [(1e-2, seed) for seed in desk.seeds]
    (line,) = [
        line
        for line in retention.table(rows)
        if (line["encoder"], line["trained on"]) == ("hyena", "untrained")
    ]
    assert (line["learning rate"], line["among those tried"]) == ("0.01", "inside")


def test_what_three_seeds_leave_open_has_six():
    desk = SCALES["desk"]
    rows = searched(desk, gain=-0.001)  # seeds 0 to 2 have -0.001, 0 and 0.001
    for name in ("paper flat", "hyena", "mamba2"):
        for training in ("untrained", "language"):
            seeds = {row["seed"] for row in retention_verdicts.chosen(rows, name, training)}
            assert seeds == set(range(6)), (name, training)


def test_one_of_two_models_decides_nothing():
    both = kept(paper_flat=4.2)
    one = [row for row in both if row["model"] != "paper 4 heads"]
    assert retention.holds(both)
    assert retention.holds(one) == {}
    lost = probed("paper flat", 0.0, "language", part=ENCODER)
    lost = [row | {"loss": None, "tune_loss": None, "encoder_lr": 0.01} for row in lost]
    assert retention_verdicts.best_tmm(both + lost) is None, "the other's encoders are not measured"
    other = [row | {"model": "paper 4 heads", "tune_loss": 4.0} for row in lost]
    assert retention_verdicts.best_tmm(both + lost + other) == "paper 4 heads", (
        "the first one's diverged"
    )


def test_bits_are_counted_from_a_decoder_without_a_state():
    rows = kept(paper_flat=6.0 - 0.6931)
    line = next(
        line
        for line in retention.table(rows)
        if line["encoder"] == "paper flat" and line["trained on"] == "language"
    )
    assert float(line["bits kept per token"].split()[0]) == pytest.approx(1.0, abs=0.01)
    assert line["share"].endswith("%")


def test_the_paper_protocol_is_told_beside_ours():
    rows = kept(paper_flat=4.5)
    rows += probed("paper 4 heads", 4.0, "language", part="as published")
    rows += probed("hyena", 5.0, "language", part="as published")
    assert "as published, 4 heads: -1.0" in retention.holds(rows)["C9d"].ours


def test_the_better_model_is_chosen_by_encoders_on_text_that_is_not_reported():
    encoders = kept(paper_flat=4.2, paper_4_heads=4.6)
    assert "paper flat minus hyena" in retention.holds(encoders)["C9d"].ours
    for name, loss in (("paper flat", 5.0), ("paper 4 heads", 4.0)):
        for row in probed(name, 0.0, "language", part=ENCODER):
            encoders.append(row | {"loss": None, "tune_loss": loss, "encoder_lr": 0.01})
    assert "paper 4 heads minus hyena" in retention.holds(encoders)["C9d"].ours


def test_conditions_name_decoders_whose_rate_is_at_an_edge():
    rows = [probed("hyena", 2.0 + rate, "language", lr=rate) for rate in (0.1, 0.2)]
    rows += [probed("hyena", 2.0, "language", part="control", signal="none", lr=0.1)]
    assert conditions([row for several in rows for row in several]) == [
        f"seeds: {len(SEEDS)}",
        "learning rates at an edge of those tried: 1 of 1 (decoders on hyena, language, matched)",
    ]


def test_a_table_has_a_line_for_every_kind_of_decoder():
    """Controls of two signals are two lines, and runs that only train an encoder are none."""
    rows = probed("hyena", 2.0, "language")
    rows += probed("hyena", 3.0, "language", part="control", signal="none")
    rows += probed("hyena", 3.1, "language", part="control", signal="shuffled")
    rows += probed("hyena", 0.0, "language", part=ENCODER)
    lines = retention.table(rows)
    assert [line["part"] for line in lines] == ["control none", "control shuffled", "matched"]
    assert len({line["loss"] for line in lines}) == 3
