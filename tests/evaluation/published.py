"""A question or two of every benchmark, in the files that its authors publish."""

import json
from pathlib import Path
from typing import Any

ARC = [
    {
        "id": f"A{number}",
        "question": {
            "stem": stem,
            "choices": [{"text": text, "label": label} for label, text in choices.items()],
        },
        "answerKey": key,
    }
    for number, (stem, choices, key) in enumerate(
        [
            ("What is hot?", {"A": "ice", "B": "the sun", "C": "snow", "D": "a cold drink"}, "B"),
            ("What do cows eat?", {"1": "grass", "2": "stones and iron", "3": "air"}, "1"),
            ("Which is a metal, of those that you know well?", {"A": "iron", "B": "oak"}, "A"),
        ]
    )
]
SQUAD = {
    "data": [
        {
            "title": "Normans",
            "paragraphs": [
                {
                    "context": "The Normans lived in Normandy, a region in France.",
                    "qas": [
                        {
                            "id": "1",
                            "question": "Where is Normandy?",
                            "answers": [{"text": "France", "answer_start": 43}],
                            "is_impossible": False,
                        },
                        {
                            "id": "2",
                            "question": "Who sank Normandy?",
                            "answers": [],
                            "is_impossible": True,
                        },
                    ],
                }
            ],
        }
    ]
}
WINOGRAD = [
    ["en", "original", "?", "The cup fell on the dish because it was wet.",
     ["The", "cup", "fell", "on", "the", "dish", "because", "it", "was", "wet", "."],
     ["it", [7, 8], ["it"]],
     [["The cup", [0, 2], ["The", "cup"], True], ["the dish", [4, 6], ["the", "dish"], False]]],
    ["en", "original", "?", "Ann's aunt didn't call her, so she wept.",
     ["Ann", "'s", "aunt", "did", "n't", "call", "her", ",", "so", "she", "wept", "."],
     ["she", [9, 10], ["she"]],
     [["Ann", [0, 1], ["Ann"], True], ["aunt", [2, 3], ["aunt"], False]]],
    ["fr", "original", "?", "Il pleut.", ["Il", "pleut", "."], ["Il", [0, 1], ["Il"]], []],
]  # fmt: skip
IFEVAL = [
    {
        "key": 1,
        "prompt": "Write without commas.",
        "instruction_id_list": ["punctuation:no_comma"],
        "kwargs": [{}],
    },
    {
        "key": 2,
        "prompt": "Write at least 2 sentences, with fewer than 9 words in capitals.",
        "instruction_id_list": [
            "length_constraints:number_sentences",
            "change_case:capital_word_frequency",
        ],
        "kwargs": [
            {"relation": "at least", "num_sentences": 2},
            {"capital_relation": "less than", "capital_frequency": 9},
        ],
    },
]
_MNLI = "index\tsentence1\tsentence2\tgold_label\n"
GLUE = {
    "CoLA/dev.tsv": "gj04\t1\t\tThe cat sat.\ngj04\t0\t*\tCat the sat.\n",
    "SST-2/dev.tsv": 'sentence\tlabel\na "fine film\t1\ndull\t0\n',
    "MRPC/dev.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    '1\t12\t13\tHe said "so.\tSo he said.\n0\t14\t15\tIt rains.\tIt snows.\n',
    "QQP/dev.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\tWhy?\tHow so?\t1\n",
    "MNLI/dev_matched.tsv": f"{_MNLI}0\tA man runs.\tA man moves\tentailment\n",
    "MNLI/dev_mismatched.tsv": f"{_MNLI}0\tA man runs.\tHe sits\tcontradiction\n",
    "QNLI/dev.tsv": "index\tquestion\tsentence\tlabel\n0\tWho?\tBob did it.\tentailment\n",
    "RTE/dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tIt rained.\tIt was wet.\tentailment\n"
    "1\tIt rained.\tIt was dry.\tnot_entailment\n",
    "WNLI/dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tThe cup fell.\tA cup fell.\t1\n",
}
LONGBENCH = (
    *("trec", "triviaqa", "samsum", "lsht", "narrativeqa", "qasper", "multifieldqa_en"),
    *("multifieldqa_zh", "hotpotqa", "2wikimqa", "musique", "dureader", "gov_report", "qmsum"),
    *("multi_news", "vcsum", "passage_count", "passage_retrieval_en", "passage_retrieval_zh"),
)
WIKITEXT = (
    " \n = One = \n \n A first text . \n \n = = Part = = \n \n More of it . \n"
    " \n = Two = \n \n End . \n"
)


def write_all(root: Path) -> Path:
    """Every benchmark of the paper's table, and WikiText."""
    lines(root / "arc" / "ARC-Easy-Test.jsonl", ARC)
    lines(root / "hellaswag_val.jsonl", [hellaswag(0), hellaswag(3)])
    texts = [
        "he took the red pen and wrote with the red pen",
        "she said that she knew what she knew",
    ]
    lines(root / "lambada_test.jsonl", [{"text": text} for text in texts])
    lines(root / "ifeval" / "input_data.jsonl", IFEVAL)
    lines(
        root / "based-swde-v2.jsonl", [{"doc_id": "1", "key": "a", "value": "b", "text": "x: a:"}]
    )
    lines(
        root / "based-squad.jsonl", [{"doc_id": "1", "value": "France", "text": "Normandy is in"}]
    )
    write(root / "squad" / "dev-v2.0.json", json.dumps(SQUAD))
    rows = ("\t".join(f if isinstance(f, str) else json.dumps(f) for f in row) for row in WINOGRAD)
    write(root / "xwinograd" / "dataset.tsv", "".join(row + "\n" for row in rows))
    for name, text in GLUE.items():
        write(root / "glue" / name, text)
    for name in LONGBENCH:
        answer = {"passage_retrieval_en": "Paragraph 3", "passage_retrieval_zh": "段落3"}.get(
            name, "7"
        )
        row = {"input": "Which?", "context": "A long text.", "answers": [answer]}
        lines(root / "longbench" / f"{name}.jsonl", [{**row, "all_classes": ["7", "8"]}] * 2)
    write(root / "wikitext-2-raw" / "wiki.test.raw", WIKITEXT)
    return root


def hellaswag(label: int) -> dict[str, Any]:
    return {
        "ind": 1,
        "activity_label": "Baking",
        "ctx_a": "A man bakes.",
        "ctx_b": "he",
        "ctx": "A man bakes. he",
        "endings": ["sings.", "eats a cake.", "flies to the moon.", "is a [title] cake."],
        "label": label,
    }


def lines(file: Path, rows: list[Any]) -> None:
    write(file, "".join(json.dumps(row) + "\n" for row in rows))


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
