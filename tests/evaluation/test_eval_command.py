"""`toeplix eval` and the harness's own command line, offline, on files in their published formats."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import lm_eval.tasks
import pytest
from lm_eval.tasks._index import TaskIndex
from rich.console import Console

from toeplix import Model, build, save
from toeplix.cli.main import main
from toeplix.evaluation import harness, paper
from toeplix.evaluation.harness import constant_answer, labels, manager, sample_error
from toeplix.evaluation.table import full_table

pytestmark = pytest.mark.slow


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["toeplix", "eval", *map(str, arguments)])
    main()


def refused(monkeypatch, capsys, *arguments):
    with pytest.raises(SystemExit) as leaving:
        run(monkeypatch, *arguments)
    assert leaving.value.code == 2
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if line.startswith("toeplix: ")]
    assert len(lines) == 1
    assert "Traceback" not in error
    return lines[0]


def test_the_paper_s_table_offline(checkpoint, root, tmp_path, monkeypatch, capsys):
    """Every task, SQuAD v2 and IFEval too, with no network and no cache of one."""
    arguments = [checkpoint, "--tasks", f"{paper.GROUP},wikitext", "--data-root", root]
    run(monkeypatch, *arguments, "--out", tmp_path)
    shown = capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert {row["task"] for row in rows} == {*paper.TASKS, "wikitext"}
    assert all(row["model"] == "small" for row in rows)
    written = json.loads((tmp_path / "small.json").read_text())
    for row in rows:
        assert row["value"] == written["results"][row["task"]][f"{row['metric']},{row['filter']}"]
    for line in paper.TABLE:
        assert line.label in shown
    assert "truncated to the context: small: ifeval: completions truncated 2 of 2" in shown
    by_key = {(row["task"], row["metric"]): row for row in rows}
    assert by_key["arc_easy", "acc"]["count"] == 3
    assert by_key["wikitext", "bits_per_byte"]["value"] > 1


def test_models_side_by_side_and_batches_alike(checkpoint, root, tmp_path, monkeypatch, capsys):
    """Ours, and two of Hugging Face's; batches of 1, 5 and auto."""
    from transformers import (
        AutoTokenizer,
        LlamaConfig,
        LlamaForCausalLM,
        Mamba2Config,
        Mamba2ForCausalLM,
    )

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = LlamaConfig(
        vocab_size=len(tokenizer), num_attention_heads=2, max_position_embeddings=64, **sizes
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "llama")
    tokenizer.save_pretrained(tmp_path / "llama")
    sizes = {"hidden_size": 8, "num_heads": 4, "head_dim": 4, "n_groups": 1, "state_size": 4}
    config = Mamba2Config(vocab_size=len(tokenizer), num_hidden_layers=1, chunk_size=16, **sizes)
    Mamba2ForCausalLM(config).save_pretrained(tmp_path / "mamba2")
    tokenizer.save_pretrained(tmp_path / "mamba2")
    tasks = ("--tasks", "sst2,swde,ifeval,wikitext", "--data-root", root)
    others = (tmp_path / "llama", tmp_path / "mamba2")
    run(monkeypatch, checkpoint, *others, *tasks, "--out", tmp_path / "all")
    shown = capsys.readouterr().out
    assert "llama" in shown
    assert "mamba2" in shown
    assert "llama: ifeval: completions limited to half of the context 2 of 2" in shown
    found = []
    for size in ("1", "5"):
        out = tmp_path / size
        run(monkeypatch, checkpoint, *tasks, "--batch", size, "--out", out)
        found.append([json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()])
    every = (tmp_path / "all" / "rows.jsonl").read_text().splitlines()
    assert len(every) == 3 * len(found[0])
    found.append([row for line in every if (row := json.loads(line))["model"] == "small"])
    for one, two, three in zip(*found, strict=True):
        assert one["value"] == pytest.approx(two["value"], rel=1e-5)
        assert one["value"] == pytest.approx(three["value"], rel=1e-5)


def test_the_null_model_is_the_baseline(root, tmp_path, monkeypatch):
    tasks = "squadv2,arc_easy,ifeval,wikitext"
    run(monkeypatch, "null", "--tasks", tasks, "--data-root", root, "--out", tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    found = {(row["task"], row["metric"]): row for row in rows}
    # the harness undoes the spaces of WikiText's tokens, and divides by the bytes from before
    assert 5 < found["wikitext", "bits_per_byte"]["value"] <= 8
    assert found["squadv2", "HasAns_f1"]["value"] == 0
    assert found["squadv2", "NoAns_f1"]["value"] == 100
    answerable = found["squadv2", "HasAns_f1"]["count"]
    silent = found["squadv2", "NoAns_f1"]["count"]
    assert found["squadv2", "f1"]["value"] == pytest.approx(100 * silent / (answerable + silent))
    assert answerable + silent == found["squadv2", "f1"]["count"]
    assert found["ifeval", "prompt_level_strict_acc"]["value"] == 0


def test_the_commit_is_asked_for_without_a_word(tmp_path, monkeypatch, capfd):
    from lm_eval.loggers.utils import get_git_commit_hash

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with harness.quiet_git():
        assert get_git_commit_hash() is None
        subprocess.run(
            [sys.executable, "-c", "import sys; print('x', file=sys.stderr)"], check=True
        )
    assert capfd.readouterr().err == "x\n"
    get_git_commit_hash()
    assert "not a git repository" in capfd.readouterr().err


def test_what_is_missing_is_named_or_left_out(checkpoint, root, monkeypatch, capsys, tmp_path):
    file = tmp_path / "ARC-Easy-Test.jsonl"
    file.write_text((root / "arc" / file.name).read_text())
    tasks = ("--tasks", "arc_easy,hellaswag", "--data-root", tmp_path)
    line = refused(monkeypatch, capsys, checkpoint, *tasks)
    assert "hellaswag: Rowan/hellaswag: no hellaswag_val.jsonl under" in line
    run(monkeypatch, checkpoint, *tasks, "--available", "--limit", "2")
    shown = capsys.readouterr().out
    assert "skipped: hellaswag" in shown
    assert "arc_easy" in shown


def test_without_a_hub_the_wanted_name_is_said(checkpoint, monkeypatch, capsys):
    from datasets.exceptions import DatasetNotFoundError

    def nothing(**wanted):
        raise DatasetNotFoundError(f"nothing at {wanted['path']}\nand more lines")

    monkeypatch.setattr("datasets.load_dataset", nothing)
    line = refused(monkeypatch, capsys, checkpoint, "--tasks", "arc_easy")
    assert "allenai/ai2_arc (ARC-Easy): cannot be read from the Hugging Face hub" in line
    assert "--data-root" in line


def test_bad_input(checkpoint, root, tmp_path, monkeypatch, capsys):
    data = ("--data-root", root)
    line = refused(monkeypatch, capsys, checkpoint, "--tasks", "arc_esy", *data)
    assert "there is no task 'arc_esy': did you mean arc_easy" in line
    assert "names no task" in refused(monkeypatch, capsys, checkpoint, "--tasks", " ,", *data)
    for option, value, words in (
        ("--batch", "0", "batch size '0' must be a number of at least 1"),
        ("--device", "banana", "device 'banana' is unknown"),
        ("--out", checkpoint / "config.json", "config.json"),
    ):
        options = ("--tasks", "arc_easy", *data, option, value)
        assert words in refused(monkeypatch, capsys, checkpoint, *options)
    arguments = ("--tasks", "arc_easy", *data)
    line = refused(monkeypatch, capsys, tmp_path, *arguments)
    assert "is no checkpoint" in line
    line = refused(monkeypatch, capsys, tmp_path / "nowhere", *arguments)
    assert "does not exist" in line
    save(build(Model(vocab=50, context=8, dim=8, depth=1)), tmp_path)
    line = refused(monkeypatch, capsys, tmp_path, *arguments)
    assert "holds no tokenizer" in line
    line = refused(monkeypatch, capsys, checkpoint, checkpoint, *arguments)
    assert "given twice" in line
    line = refused(monkeypatch, capsys, checkpoint, *arguments, "--batch", "some")
    assert "batch size 'some'" in line


def test_the_harness_s_own_command_line(checkpoint, tmp_path, monkeypatch, capsys):
    """`--model toeplix` on a task of the user's own; the index of all the others takes half a minute."""
    questions = [
        {"text": "what is hot?", "choice": "the sun"},
        {"text": "what is?", "choice": "ice"},
    ]
    (tmp_path / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in questions))
    (tmp_path / "mine.yaml").write_text(
        "task: mine\ndataset_path: json\noutput_type: multiple_choice\ntest_split: train\n"
        f"dataset_kwargs:\n  data_files: {tmp_path}/rows.json\n"
        'doc_to_text: "{{text}}"\ndoc_to_choice: ["the sun", "ice"]\n'
        "doc_to_target: \"{{['the sun', 'ice'].index(choice)}}\"\n"
        "metric_list:\n  - metric: acc\n    aggregation: mean\n    higher_is_better: true\n"
    )
    build = TaskIndex.build
    stock = Path(lm_eval.tasks.__file__).parent
    monkeypatch.setattr(TaskIndex, "build", lambda self, paths: build(set(paths) - {stock}))
    command = [
        "toeplix.evaluation",
        "run",
        "--model",
        "toeplix",
        "--tasks",
        str(tmp_path / "mine.yaml"),
    ]
    command += ["--model_args", f"pretrained={checkpoint}", "--output_path", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", command)
    runpy.run_module("toeplix.evaluation", run_name="__main__")
    assert "mine" in capsys.readouterr().out
    (file,) = (tmp_path / "out").rglob("results*.json")
    assert json.loads(file.read_text())["results"]["mine"]["acc,none"] in (0, 0.5, 1)


def test_the_index_of_tasks_is_as_small_as_it_can_be():
    known = manager(["arc_easy", "longbench_fewshot", "glue"])
    assert len(known.all_tasks) < 200


def test_short_names():
    assert labels(["runs/a/model", "runs/b/model"]) == ["a", "b"]
    assert labels(["x/a", "y/a"]) == ["x/a", "y/a"]
    assert labels(["EleutherAI/pythia-70m"]) == ["pythia-70m"]


def test_every_filter_has_its_row():
    """As those of gsm8k: one is not lost behind the other, and questions are not counted twice."""
    kinds = ("strict-match", "flexible-extract")
    values = {f"exact_match,{kind}": number / 10 for number, kind in enumerate(kinds)}
    results = {
        "results": {"sums": values},
        "n-samples": {"sums": {"effective": 4}},
        "versions": {},
        "truncated": {},
    }
    samples = {"sums": [{"filter": kind, "exact_match": 0.0} for kind in kinds for _ in range(4)]}
    rows = harness.rows("mine", results, samples, None, {})
    assert [(row["filter"], row["count"]) for row in rows] == [(kind, 4) for kind in kinds]
    console = Console(width=100, record=True)
    console.print(full_table(rows))
    shown = console.export_text()
    for kind in kinds:
        assert f"exact_match ({kind})" in shown


def test_constant_answers():
    same = [("question", " no"), ("question", " yes"), ("question", " perhaps")]
    targets = [{"target": each, "arguments": same} for each in (0, 1, 1, 2)]
    assert constant_answer("acc", targets) == 0.5
    assert constant_answer("mcc", targets) is None
    assert constant_answer("acc", [{"target": "Paris", "arguments": same}]) is None
    other = {"target": 1, "arguments": [("question", " a"), ("question", " b")]}
    assert constant_answer("acc", [*targets, other]) is None, "there is no such answer"
    assert constant_answer("acc", []) is None


def test_standard_errors_from_samples():
    assert sample_error("contains", [{"contains": 1}, {"contains": 0}]) == pytest.approx(0.5)
    assert sample_error("bits_per_byte", [{"bits_per_byte": (1.0, 2)}] * 3) is None
    assert sample_error("f1", [{"f1": (1, 0)}] * 3) is None  # of labels, not of words
    answered = {"answers": {"text": ["a b"]}}, {"answers": {"text": []}}
    said = {"prediction_text": "b"}, {"prediction_text": "c"}
    samples = [{"HasAns_f1": (said[0], answered[0])}, {"HasAns_f1": (said[1], answered[1])}]
    assert sample_error("HasAns_f1", samples) is None  # one question is no sample
    assert sample_error("HasAns_f1", samples * 2) == 0
