"""SQuAD 2.0's metric, by hand and by the slow definition."""

import random

import pytest

from toeplix.evaluation.squad import SquadV2, abstaining, exact, f1, normalised


def computed(*rows):
    predictions = [
        {"id": str(i), "prediction_text": text, "no_answer_probability": doubt}
        for i, (text, doubt, _) in enumerate(rows)
    ]
    references = [
        {"id": str(i), "answers": {"text": golds, "answer_start": [0] * len(golds)}}
        for i, (_, _, golds) in enumerate(rows)
    ]
    return SquadV2().compute(predictions=predictions, references=references)


def test_normalisation():
    assert normalised("The  Eiffel-Tower, an icon!") == "eiffeltower icon"
    assert exact("the answer", "Answer.") == 1
    assert f1("the red fox ran", "a red dog") == pytest.approx(
        2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2)
    )
    assert f1("", "") == 1
    assert f1("x", "") == 0


def test_four_questions_by_hand():
    found = computed(
        ("France", 0.1, ["France", "in France"]),
        ("red dog", 0.2, ["the red fox"]),
        ("", 0.9, []),
        ("something", 0.8, []),
    )
    assert found["HasAns_exact"] == 50
    assert found["HasAns_f1"] == 75
    assert found["NoAns_exact"] == found["NoAns_f1"] == 50
    assert found["exact"] == 50
    assert found["f1"] == 62.5
    assert found["best_exact"] == 75  # abstains above 0.1: three of four
    assert found["best_f1"] == 87.5  # abstains above 0.2
    assert (found["best_exact_thresh"], found["best_f1_thresh"]) == (0.1, 0.2)


def test_one_kind_of_question_only():
    found = computed(("France", 0.1, ["France"]))
    assert found["exact"] == found["HasAns_exact"] == 100
    assert "NoAns_exact" not in found


def test_the_best_threshold_is_the_best_of_all():
    draw = random.Random(0)
    for _ in range(30):
        count = draw.randrange(1, 9)
        answerable = [draw.random() < 0.5 for _ in range(count)]
        empty = [draw.random() < 0.3 for _ in range(count)]
        scores = [
            draw.choice((0.0, 0.5, 1.0)) if has else float(none)
            for has, none in zip(answerable, empty, strict=True)
        ]
        doubts = [draw.random() for _ in range(count)]
        totals = [
            sum(
                score if doubt <= threshold else float(not has)
                for doubt, score, has in zip(doubts, scores, answerable, strict=True)
            )
            for threshold in [-1.0, *doubts]
        ]
        most = max(totals)
        assert abstaining(scores, answerable, empty, doubts)[0] == pytest.approx(100 * most / count)
