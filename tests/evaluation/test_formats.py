"""Published files become the rows that the stock tasks read."""

import json

import pytest

from tests.evaluation import published
from toeplix.evaluation import formats
from toeplix.evaluation.data import MissingData, local, sentences, sources
from toeplix.evaluation.prompts import fields_of, stock_template
from toeplix.evaluation.truncation import Truncations

RUNS = {"premise": "A man runs."}


def rows(root, path, name="default", split=None):
    found = formats.FORMATS[path](root, name).splits
    return found[split or next(iter(found))]


def test_arc(root):
    assert rows(root, "allenai/ai2_arc", "ARC-Easy")[1] == {
        "id": "A1",
        "question": "What do cows eat?",
        "choices": {"text": ["grass", "stones and iron", "air"], "label": ["1", "2", "3"]},
        "answerKey": "1",
    }


def test_squad_v2(root):
    first, second = rows(root, "lighteval/squad_v2")
    assert first["answers"] == {"text": ["France"], "answer_start": [43]}
    assert first["context"][43:49] == "France"
    assert (second["id"], second["answers"]["text"]) == ("2", [])


def test_xwinograd_has_a_gap_where_the_pronoun_was(root):
    assert rows(root, "Muennighoff/xwinograd", "en") == [
        {
            "sentence": "The cup fell on the dish because _ was wet.",
            "option1": "The cup",
            "option2": "the dish",
            "answer": "1",
        },
        {
            "sentence": "Ann's aunt didn't call her, so _ wept.",
            "option1": "Ann",
            "option2": "aunt",
            "answer": "1",
        },
    ]


@pytest.mark.parametrize(
    ("name", "split", "wanted"),
    [
        ("cola", "validation", {"sentence": "Cat the sat.", "label": 0}),
        ("sst2", "validation", {"sentence": "dull", "label": 0}),
        ("mrpc", "validation", {"sentence1": "It rains.", "sentence2": "It snows.", "label": 0}),
        ("qqp", "validation", {"question1": "Why?", "question2": "How so?", "label": 1}),
        ("mnli", "validation_matched", {**RUNS, "hypothesis": "A man moves", "label": 0}),
        ("mnli", "validation_mismatched", {**RUNS, "hypothesis": "He sits", "label": 2}),
        ("qnli", "validation", {"question": "Who?", "sentence": "Bob did it.", "label": 0}),
        ("rte", "validation", {"sentence1": "It rained.", "sentence2": "It was dry.", "label": 1}),
        ("wnli", "validation", {"sentence1": "The cup fell.", "sentence2": "A cup fell.", "label": 1}),
    ],
)  # fmt: skip
def test_glue(root, name, split, wanted):
    assert rows(root, "nyu-mll/glue", name, split)[-1] == wanted


def test_a_quote_in_a_table_is_a_letter_unless_it_encloses(root, tmp_path):
    assert rows(root, "nyu-mll/glue", "sst2")[0]["sentence"] == 'a "fine film'
    published.write(
        tmp_path / "RTE" / "dev.tsv",
        'sentence1\tsentence2\tlabel\tidx\n"He said ""no"" twice."\tHe spoke.\t0\t0\n',
    )
    (row,) = rows(tmp_path, "nyu-mll/glue", "rte")
    assert row == {"sentence1": 'He said "no" twice.', "sentence2": "He spoke.", "label": 0}


def test_wikitext_is_cut_into_articles(root):
    pages = [row["page"] for row in rows(root, "EleutherAI/wikitext_document_level")]
    assert [page.split("\n")[0] for page in pages] == [" = One = ", " = Two = "]
    assert "= = Part = =" in pages[0]
    assert "".join(pages) == published.WIKITEXT.removeprefix(" \n")


def test_longbench_questions(root):
    assert rows(root, "Xnhyacinth/LongBench", "hotpotqa")[0] == {
        "question": "Which?",
        "context": "A long text.",
        "answers": ["7"],
        "all_classes": ["7", "8"],
    }


def test_prompts_become_rows_by_the_stock_template(tmp_path):
    template = stock_template("hotpotqa")
    prompt = template.replace("{{context}}", "One.\n\nTwo.").replace("{{question}}", "Who?")
    row = {"origin_prompt": prompt + "\n", "gold": ["Bob"], "prediction": "", "time": 0}
    published.write(tmp_path / "MiniLongBench_hotpotqa.json", json.dumps({"0": row}))
    found = formats.longbench(tmp_path, "hotpotqa")
    assert found.splits["test"] == [
        {"context": "One.\n\nTwo.", "question": "Who?", "answers": ["Bob"], "all_classes": []}
    ]
    assert "MiniLongBench" in found.note
    with pytest.raises(ValueError, match="does not fit"):
        fields_of("Something else", template)


def test_stand_ins_say_so(tmp_path):
    squad = json.loads(json.dumps(published.SQUAD))
    del squad["data"][0]["paragraphs"][0]["qas"][1]  # v1.1 has no unanswerable questions
    published.write(tmp_path / "dev-v1.1.json", json.dumps(squad))
    published.lines(tmp_path / "swde" / "mine.jsonl", [{"text": "a", "value": "b"}])
    found = formats.squad_completion(tmp_path, "default")
    assert found.splits["validation"][0]["text"].endswith("Question: Where is Normandy?\nAnswer:")
    assert "SQuAD v1.1" in found.note
    assert "is not the split" in formats.swde(tmp_path, "default").note


def test_missing_and_broken_files_are_named(tmp_path):
    with pytest.raises(
        MissingData, match=r"allenai/ai2_arc \(ARC-Easy\): no ARC-Easy-Test.jsonl under"
    ):
        local(tmp_path, "allenai/ai2_arc", "ARC-Easy")
    with pytest.raises(MissingData, match="no local format is known"):
        local(tmp_path, "some/thing", None)
    published.write(tmp_path / "lambada_test.jsonl", '{"text": "a"}\n{"text"\n')
    with pytest.raises(MissingData, match=r"lambada_test.jsonl, line 2: not JSON"):
        local(tmp_path, "EleutherAI/lambada_openai", "default")
    published.write(tmp_path / "lambada_test.jsonl", "")
    with pytest.raises(MissingData, match="has no rows"):
        local(tmp_path, "EleutherAI/lambada_openai", "default")
    published.lines(tmp_path / "ARC-Easy-Test.jsonl", [{"id": "1"}])
    with pytest.raises(
        MissingData, match=r"not in its published format: .*Test\.jsonl, line 1: field question"
    ):
        local(tmp_path, "allenai/ai2_arc", "ARC-Easy")
    with pytest.raises(FileNotFoundError, match="no directory"), sources(tmp_path / "nowhere"):
        pass


def test_the_libraries_are_left_as_they_were(root):
    import datasets
    import evaluate

    before = datasets.load_dataset, evaluate.load
    with sources(root):
        assert datasets.load_dataset is not before[0]
        found = datasets.load_dataset(path="EleutherAI/lambada_openai", name="default")
        assert len(found["test"]) == 2
    assert (datasets.load_dataset, evaluate.load) == before


@pytest.mark.parametrize(
    ("path", "file", "line", "words"),
    [
        ("google/IFEval", "input_data.jsonl", "42", "line 1: a JSON object was expected, not 42"),
        (
            "google/IFEval",
            "input_data.jsonl",
            '{"key": 1, "prompt": "a"}',
            "instruction_id_list is",
        ),
        ("hazyresearch/based-swde-v2", "based-swde-v2.jsonl", '{"text": "a"}', "value is None"),
        ("hazyresearch/based-squad", "based-squad.jsonl", "[1, 2]", "a JSON object was expected"),
        ("EleutherAI/lambada_openai", "lambada_test.jsonl", '{"text": 5}', "text is 5, no str"),
        ("Rowan/hellaswag", "hellaswag_val.jsonl", '{"label": 1}', "ctx_a is None"),
    ],
)
def test_fields_that_a_task_reads_are_looked_at(tmp_path, path, file, line, words):
    (tmp_path / file).write_text(line + "\n")
    with pytest.raises(MissingData, match=words):
        local(tmp_path, path, None)


def test_cuts_are_counted_by_kind():
    truncations = Truncations()
    for number in range(4):
        truncations.note("a", "prompts truncated", number < 1)
        truncations.note("a", "contexts truncated", True)
    assert truncations.lines() == ["a: contexts truncated 4 of 4", "a: prompts truncated 1 of 4"]


ARC = {
    "id": "1",
    "question": {
        "stem": "?",
        "choices": [{"text": "a", "label": "A"}, {"text": "b", "label": "B"}],
    },
    "answerKey": "A",
}
HELLASWAG = {"ctx_a": "", "ctx_b": "", "activity_label": "", "endings": ["a", "b"], "label": 0}
IFEVAL = {
    "key": 1,
    "prompt": "",
    "instruction_id_list": ["punctuation:no_comma"],
    "kwargs": [{}],
}
LONGBENCH = {"input": "", "context": "", "answers": ["a"]}


@pytest.mark.parametrize(
    ("path", "name", "file", "good", "bad", "words"),
    [
        ("allenai/ai2_arc", "ARC-Easy", "ARC-Easy-Test.jsonl", ARC, change, words)
        for change, words in (
            ({"answerKey": "Z"}, "field answerKey is 'Z', none of A, B"),
            ({"answerKey": None}, "field answerKey is None"),
            ({"question": {"stem": "?", "choices": [{"text": "a"}]}}, "field 'label' is missing"),
            ({"question": {"stem": "?", "choices": 5}}, "not iterable"),
        )
    ]
    + [
        ("Rowan/hellaswag", "default", "hellaswag_val.jsonl", HELLASWAG, change, words)
        for change, words in (
            ({"label": 2}, "field label is '2', none of 0, 1"),
            ({"label": [1]}, "field label is '[1]', none of 0, 1"),
            ({"endings": [1, 2]}, "field endings is [1, 2], no list of texts"),
        )
    ]
    + [
        ("google/IFEval", "default", "input_data.jsonl", IFEVAL, change, words)
        for change, words in (
            ({"kwargs": []}, "list of 1 objects"),
            ({"instruction_id_list": ["a"]}, "field instruction_id_list is 'a', none of keywords:"),
            ({"kwargs": [{"words": 1}]}, "field kwargs[0] does not fit punctuation:no_comma: "),
        )
    ]
    + [
        (
            "Xnhyacinth/LongBench",
            "trec",
            "LongBench/trec.jsonl",
            LONGBENCH,
            {"answers": [1]},
            "[1]",
        ),
    ],
)
def test_a_wrong_answer_is_named_with_its_line(tmp_path, path, name, file, good, bad, words):
    published.lines(tmp_path / file, [good, good | bad])
    with sentences(None), pytest.raises(MissingData, match="line 2: ") as caught:
        local(tmp_path, path, name)
    assert words in str(caught.value)
    assert file.rpartition("/")[2] in str(caught.value)


@pytest.mark.parametrize(
    ("path", "name", "file"),
    [
        ("allenai/ai2_arc", "ARC-Easy", "ARC-Easy-Test.jsonl"),
        ("lighteval/squad_v2", "default", "dev-v2.0.json"),
        ("Muennighoff/xwinograd", "en", "xwinograd/dataset.tsv"),
        ("nyu-mll/glue", "sst2", "SST-2/dev.tsv"),
        ("EleutherAI/wikitext_document_level", "wikitext-2-raw-v1", "wiki.test.raw"),
        ("Xnhyacinth/LongBench", "trec", "MiniLongBench_trec.json"),
    ],
)
@pytest.mark.parametrize(
    "body",
    [b"", b"\xff\xfe\xff", b"[" * 10**5, b"{}", b"[1]", b"en\ta\tb\tc\t[]\t1\t[]\n", b"9" * 5000],
)
def test_nonsense_is_told_in_one_way(tmp_path, path, name, file, body):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_bytes(body)
    with pytest.raises(MissingData):
        local(tmp_path, path, name)


@pytest.mark.parametrize("label", ["2", "-1", "entailment", "x"])
def test_a_label_that_is_none_of_a_task(tmp_path, label):
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "SST-2" / "dev.tsv").write_text(f"sentence\tlabel\ngood\t1\nbad\t{label}\n")
    with pytest.raises(MissingData, match="row 2: field label is"):
        local(tmp_path, "nyu-mll/glue", "sst2")
