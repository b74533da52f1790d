"""Everything that commands read, once and tiny: text, stores, runs, checkpoints, benchmarks, results.

`make(root)` writes it below a directory; cases copy what they need. Paths inside are relative to the
working directory of a command, in which the copies have the same names.
"""

import contextlib
import gzip
import json
import lzma
import os
import shutil
from dataclasses import replace
from pathlib import Path

from tests.toy import toy_lines

DOCUMENTS = 40
REPOSITORY = Path(__file__).parent.parent.parent
# of the rows in the repository, experiments whose figure takes little time
RESULTS = {"complexity": "laptop", "decoding": "laptop", "throughput": "laptop"}
RULE = {
    "cpu": {
        "auto": [{"columns": None, "paths": [[384, "blocked"], [None, "fft"]]}],
        "auto-exact": [{"columns": None, "paths": [[1024, "blocked"], [None, "halving"]]}],
    }
}
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"


def make(root: Path) -> None:
    """Write all fixtures; the current directory of this process becomes their root."""
    import torch

    torch.set_num_threads(1)
    root.mkdir(parents=True)
    os.chdir(root)
    _texts(Path("texts"))
    _stores()
    _runs()
    _models()
    _upstream(Path("upstream"))
    _others()


def _texts(folder: Path) -> None:
    import pyarrow
    import pyarrow.parquet
    import zstandard

    folder.mkdir()
    lines = toy_lines(folder / "toy.jsonl", DOCUMENTS).read_bytes().splitlines(keepends=True)
    halves = [b"".join(lines[: DOCUMENTS // 2]), b"".join(lines[DOCUMENTS // 2 :])]
    texts = [json.loads(line)["text"] for line in lines]
    (folder / "toy.txt").write_text("\n\n\n".join(texts) + "\n")
    (folder / "notes.md").write_text("\f".join(texts[:9]))
    # two streams end to end, as `cat` makes them
    checked = zstandard.ZstdCompressor(write_checksum=True)
    for ending, squeeze in (
        ("gz", lambda data: gzip.compress(data, mtime=0)),
        ("xz", lzma.compress),
        ("zst", checked.compress),
    ):
        (folder / f"toy.jsonl.{ending}").write_bytes(b"".join(map(squeeze, halves)))
    table = pyarrow.table({"text": texts, "number": list(range(DOCUMENTS))})
    pyarrow.parquet.write_table(table, folder / "toy.parquet", row_group_size=DOCUMENTS // 2)


def _stores() -> None:
    from toeplix.data import Recipe, building

    building.BATCH_CHARACTERS = 2000  # so that a build can stop between its batches
    recipe = Recipe(sources=("texts/toy.jsonl",), vocab=300, val_fraction=0.1)
    building.build(recipe, "store", processes=1)

    def stop(progress: building.Progress) -> None:
        if progress.documents:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        building.build(recipe, "unfinished", processes=1, report=stop)
    assert Path("unfinished/progress.json").exists()


def _runs() -> None:
    from tests.toy import toy_run
    from toeplix.data import Store
    from toeplix.training.loop import fit

    run = toy_run(
        Store.open("store"),
        steps=8,
        save_every=2,
        keep_checkpoints=9,
        log_every=2,
        eval_every=4,
        sample_every=4,
        warmup=2,
        dropout=0.0,
        depth=2,
        heads=2,
    )
    fit(run, "run")
    shutil.copy("run/run.json", "config.json")
    shutil.copytree("run", "stopped")
    for name in ("model", "checkpoints/step-6", "checkpoints/step-8"):
        shutil.rmtree(Path("stopped") / name)
    Path("stopped/summary.md").unlink()
    for name in ("step-2", "step-4", "step-6"):
        shutil.rmtree(Path("run/checkpoints") / name)


def _models() -> None:
    import torch

    from toeplix import Model, build, save

    torch.manual_seed(0)
    tokenizer = [Path("run/model/tokenizer.json"), Path("run/model/tokenizer_config.json")]
    small = Model(vocab=300, context=32, dim=16, depth=1)
    for name, model in {
        "hyena": replace(small, arch="hyena", filter_hidden=8),
        "masked": replace(small, arch="masked", heads=2),
        "linear": replace(small, arch="linear", heads=2),
        "llama": replace(small, arch="llama", heads=2),
        "half": replace(small, heads=2),
    }.items():
        made = build(model)
        save(made.bfloat16() if name == "half" else made, name)
        for file in tokenizer:
            shutil.copy(file, name)
    # with a chat template and generation settings, as a model that was brought may have them
    save(build(small), "chat")
    shutil.copy(tokenizer[0], "chat")
    described = json.loads(tokenizer[1].read_text()) | {"chat_template": TEMPLATE}
    Path("chat/tokenizer_config.json").write_text(json.dumps(described, indent=2))
    settings = {"temperature": 0.7, "top_p": 0.9, "eos_token_id": 1, "max_new_tokens": 20}
    Path("chat/generation_config.json").write_text(json.dumps(settings))


def _upstream(folder: Path) -> None:
    from safetensors.torch import save_file

    from tests.convert.test_research_code import hyena_shapes, random_weights, toeplitz_shapes

    folder.mkdir()
    save_file(random_weights(toeplitz_shapes(heads=2)), folder / "toeplitz.safetensors")
    save_file(random_weights(hyena_shapes()), folder / "hyena.safetensors")


def _others() -> None:
    from tests.evaluation.published import write_all

    write_all(Path("benchmarks"))
    for name, scale in RESULTS.items():
        target = Path("results") / name / f"{scale}.jsonl"
        target.parent.mkdir(parents=True)
        shutil.copy(REPOSITORY / "results" / name / f"{scale}.jsonl", target)
    Path("rule.json").write_text(json.dumps({"rule": RULE}))
    Path("key.txt").write_text("sesame\n")


def copy(root: Path, target: Path, names: list[str]) -> None:
    """Some of the fixtures, files or directories, below another directory."""
    for name in names:
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if (root / name).is_dir():
            shutil.copytree(root / name, place, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copyfile(root / name, place)
