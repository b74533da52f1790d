"""`toeplix train` when something is wrong: what it says, how it ends, and what it leaves behind."""

import json
import os
import shutil

import pytest

from tests.kill_worker import contents
from tests.toy import toy_lines, toy_run
from tests.training.test_loop import interrupt, rows, small_files, spoil
from tests.training.test_train_command import ARGUMENTS, call
from toeplix import load
from toeplix.files import DamagedFile, sha256
from toeplix.files.tensors import read_file, save_file
from toeplix.training.logs import read
from toeplix.training.loop import fit
from toeplix.training.presets import preset

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"model": 5}', "settings of the model are a record, not 5"),
        ('{"model": [1]}', "settings of the model are a record, not [1]"),
        ('{"model": null}', "settings of the model are a record, not None"),
        ("[]", "settings are a record, not []"),
        ("null", "settings are a record, not None"),
        ("7", "settings are a record, not 7"),
        ("{", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("\udcff", "damaged"),
        (f'{{"seed": {2**63}}}', "must be at most 9223372036854775807"),
        (f'{{"seed": {10**4000}}}', "must be at most 9223372036854775807"),
        ('{"seed": -1}', "seed=-1 must be at least 0"),
        ('{"data_seed": -2}', "data_seed=-2 must be at least -1"),
        ('{"depth": 1000000000}', "layers together"),
        ('{"dim": 100000000000}', "must be at most"),
        ('{"dim": 1000000}', "GB"),
        ('{"batch": 2000000000}', "GB"),
        (f'{{"lr": {10**400}}}', "lr="),
        ('{"arch": ["toeplitz"]}', "arch=['toeplitz'] must be one of"),
        ('{"trackers": 5}', "trackers=5"),
        ('{"data": 5}', "data=5 must name a token store"),
        ('{"steps": "many"}', "steps='many' must be an integer"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_settings_that_are_none(store, tmp_path, monkeypatch, capsys, text, words):
    file, out = tmp_path / "mine.json", tmp_path / "deep/run"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    data = [] if 'data"' in text else ["--data", store.directory]
    status, error = call(monkeypatch, capsys, "--config", file, *data, "--out", out)
    assert (status, error.count("\n")) == (2, 1), error
    assert words in error
    assert len(error) < 400
    assert not out.parent.exists()


@pytest.mark.parametrize(
    "text",
    [
        *("run = 5", "run = None", "1 / 0", "def", "import nowhere"),
        *("raise SystemExit", "import sys; sys.exit(0)", "exit('no data today')"),
    ],
)
def test_settings_that_do_not_run(store, tmp_path, monkeypatch, capsys, text):
    file = tmp_path / "mine.py"
    file.write_text(text)
    given = ["--config", file, "--data", store.directory, "--out", tmp_path / "run"]
    status, error = call(monkeypatch, capsys, *given)
    assert (status, error.count("\n")) == (2, 1), error
    assert "mine.py" in error
    assert not (tmp_path / "run").exists()


def test_a_directory_of_settings(store, tmp_path, monkeypatch, capsys):
    for name in ("settings", "settings.py"):
        (tmp_path / name).mkdir()
        given = ["--config", tmp_path / name, "--data", store.directory, "--out", tmp_path / "run"]
        status, error = call(monkeypatch, capsys, *given)
        assert (status, error.count("\n")) == (2, 1), error
        assert f"{name} is a directory: name a .json or .py file" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "STORE", "--blocks", "foo"], "blocks=('foo',) must be names of mixers"),
        (["--data", "STORE", "--blocks", ""], "blocks=('',) must be names of mixers"),
        (["--data", "STORE", "--embedding-norm", "1e300"], "embedding_norm=1e+300 must be finite"),
        (["--data", "STORE", "--seed", str(2**64)], "is not a finite number of 64 bits"),
        (["--data", "STORE", "--vocab", "299"], "vocab=299 is too small"),
        (["--data", "STORE", "--context", "99999"], "less than a row of context=99999"),
        (["--data", "STORE", "--trackers", "pigeon"], "'pigeon' must be one of"),
        (["--data", "TEXT", "--trackers", "pigeon"], "'pigeon' must be one of"),
        (["--data", "/nowhere"], "/nowhere is no file or directory"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_failure_leaves_nothing(store, tmp_path, monkeypatch, capsys, arguments, words):
    places = {"STORE": store.directory, "TEXT": toy_lines(tmp_path / "toy.jsonl")}
    before = sorted(tmp_path.rglob("*"))
    given = [places.get(each, each) for each in arguments]
    status, error = call(monkeypatch, capsys, *given, "--out", tmp_path / "deep/run")
    assert status == 2
    assert words in error
    assert sorted(tmp_path.rglob("*")) == before


def test_with_all_checkpoints_damaged_it_stops(store, whole, tmp_path):
    """And starts over only if told to; what was there is kept."""
    run = toy_run(store)
    interrupt(run, tmp_path, 13)
    for step in (5, 10):
        spoil(tmp_path / f"checkpoints/step-{step}/model.safetensors")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.*") if file.is_file()}
    said = []
    with pytest.raises(DamagedFile, match=r"all are damaged: step-10 \(.*step-5 .*--restart"):
        fit(run, tmp_path, say=said.append)
    assert said == []
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.*") if file.is_file()} == before
    fit(run, tmp_path, say=said.append, restart=True)
    assert [line.rsplit(", ", 1)[1] for line in said] == ["starting over at step 0"] * 2
    for step in (5, 10):
        damaged = tmp_path / f"checkpoints/damaged-step-{step}/model.safetensors"
        assert damaged.read_bytes() == before[tmp_path / f"checkpoints/step-{step}/{damaged.name}"]
    shutil.rmtree(tmp_path / "checkpoints/damaged-step-5")
    shutil.rmtree(tmp_path / "checkpoints/damaged-step-10")
    assert contents(tmp_path) == contents(whole)


def test_the_command_says_so_too(store, tmp_path, monkeypatch, capsys):
    given = ["--data", store.directory, "--out", tmp_path, *ARGUMENTS, "--save-every", 12]
    assert call(monkeypatch, capsys, *given)[0] == 0
    spoil(tmp_path / "checkpoints/step-12/optimizer.safetensors")
    status, error = call(monkeypatch, capsys, *given)
    assert (status, error.count("\n")) == (2, 1)
    assert "all are damaged: step-12" in error
    status, error = call(monkeypatch, capsys, *given, "--restart")
    assert status == 0
    assert "starting over at step 0" in error


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("manifest.json", "{}", "manifest.json cannot be read"),
        ("manifest.json", "[" * 100_000, "manifest.json cannot be read"),
        ("manifest.json", '{"model.safetensors": 5}', "manifest.json cannot be read"),
        ("state.json", "{}", "bytes long"),
    ],
)
def test_more_damage_to_a_checkpoint(store, tmp_path, name, text, words):
    run = toy_run(store)
    interrupt(run, tmp_path, 13)
    (tmp_path / "checkpoints/step-10" / name).write_text(text)
    said = []
    fit(run, tmp_path, say=said.append)
    assert words in said[0]
    assert "using step-5 before it" in said[0]


def sealed(directory):
    """Let the manifest of a checkpoint agree with its files, whatever they hold."""
    files = {
        file.name: {"bytes": file.stat().st_size, "sha256": sha256(file)}
        for file in directory.iterdir()
        if file.name != "manifest.json"
    }
    (directory / "manifest.json").write_text(json.dumps(files))


@pytest.fixture(scope="module")
def interrupted(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("interrupted") / "run"
    interrupt(toy_run(store), folder, 7)
    return folder


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_checkpoint_that_agrees_with_its_manifest_but_is_none(store, interrupted, tmp_path, name):
    step = shutil.copytree(interrupted, tmp_path / "run") / "checkpoints/step-5"
    (step / name).write_text("{")
    sealed(step)
    with pytest.raises(DamagedFile, match="step-5"):
        fit(toy_run(store), tmp_path / "run")


@pytest.mark.parametrize(
    "change",
    [
        *({"tokens": "x"}, {"seconds": None}, {"lengths": 5}, {"lengths": {"a": -1}}),
        *({"first_loss": []}, {"scaler": 5}, {"data": 5}, {"more": 1}, {"nats": True}),
    ],
)
def test_a_state_whose_fields_are_of_another_kind(store, interrupted, tmp_path, change):
    step = shutil.copytree(interrupted, tmp_path / "run") / "checkpoints/step-5"
    state = json.loads((step / "state.json").read_text()) | change
    (step / "state.json").write_text(json.dumps(state))
    sealed(step)
    with pytest.raises(DamagedFile, match=f"state.json is damaged: .*{next(iter(change))}"):
        fit(toy_run(store), tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda key, value: {} if key.endswith(":step") else {key: value}, "step is missing"),
        (lambda key, value: {f"{key}s": value}, "is not the state of a weight"),
        (lambda key, value: {key: value.double()}, "of torch.float64"),
        (lambda key, value: {key: value.sum()}, r"is \(\) of torch.float32, not "),
    ],
)
def test_optimizer_state_that_does_not_fit(store, interrupted, tmp_path, change, words):
    step = shutil.copytree(interrupted, tmp_path / "run") / "checkpoints/step-5"
    file = step / "optimizer.safetensors"
    known = {key: value.clone() for key, value in read_file(file)[0].items()}  # not mapped
    changed = {name: found for key in known for name, found in change(key, known[key]).items()}
    save_file(changed, file)
    sealed(step)
    with pytest.raises(DamagedFile, match=words):
        fit(toy_run(store), tmp_path / "run")


@pytest.mark.parametrize("text", ['{"model": 5}', "[]", "[" * 100_000, "{", '{"steps": 3}'])
@pytest.mark.usefixtures("unchecked")
def test_a_damaged_record_of_the_run(store, tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(DamagedFile, match=r"run\.json is damaged: .*choose a new directory"):
        fit(toy_run(store), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "5",
        "[" * 100_000,
        "\x00\x01",
        '{"step": 3}',
        f'{{"step": {10**400}}}',
        '{"step": "x", "tokens": 1, "seconds": 1}',
        '{"step": 3, "tokens": 1, "seconds": "long"}',
        '{"step": 3, "tokens": 1, "seconds": null}',
        '{"step": 3, "tokens": 5, "seconds": 1, "loss": 2.0}',
    ],
)
def test_a_damaged_line_of_metrics(store, whole, tmp_path, line):
    """A run that is finished says which line it leaves out; a reader that needs all of them stops."""
    shutil.copytree(whole, tmp_path / "run")
    file = tmp_path / "run/metrics.jsonl"
    lines = file.read_text().splitlines()
    good = rows(whole)
    file.write_text("\n".join([*lines[:2], line, *lines[3:]]) + "\n")
    with pytest.raises(DamagedFile, match=r"metrics\.jsonl, line 3, is damaged"):
        read(tmp_path / "run")
    said = []
    assert read(tmp_path / "run", said.append) == good[:2] + good[3:]
    assert len(said) == 1
    assert "line 3" in said[0]


def test_a_finished_run_with_damaged_metrics_still_has_a_summary(store, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    file = tmp_path / "run/metrics.jsonl"
    content = bytearray(file.read_bytes())
    content[content.index(b"\n") + 1] ^= 1
    file.write_bytes(content)
    (tmp_path / "run/samples.txt").write_bytes(b"--- step 24, sample 0\n\xff\xfe\n")
    said = []
    load(fit(toy_run(store), tmp_path / "run", say=said.append))
    assert len(said) == 1
    assert "line 2, is damaged" in said[0]
    file.unlink()
    fit(toy_run(store), tmp_path / "run")  # nothing to tell is no reason to fail
    assert "Training run" in (tmp_path / "run/summary.md").read_text()


def test_a_presets_warmup_is_shortened_and_ones_own_is_not(store, tmp_path, monkeypatch, capsys):
    small = ["--dim", 16, "--depth", 1, "--context", 32, "--batch", 2, "--trackers", ""]
    given = ["laptop", "--data", store.directory, "--steps", 12, *small]
    status, error = call(monkeypatch, capsys, *given, "--out", tmp_path / "a")
    assert status == 0, error
    assert (
        "warmup=100 is longer than steps=12: shortened to 1, a tenth of the steps but at" in error
    )
    assert json.loads((tmp_path / "a/run.json").read_text())["warmup"] == 1
    status, error = call(monkeypatch, capsys, *given, "--out", tmp_path / "b", "--warmup", 50)
    assert status == 2
    assert "warmup=50 must be at most steps=12" in error
    (tmp_path / "mine.json").write_text('{"warmup": 20}')
    mine = [*given, "--config", tmp_path / "mine.json", "--out", tmp_path / "b"]
    status, error = call(monkeypatch, capsys, *mine)
    assert status == 2
    assert "warmup=20 must be at most steps=12" in error
    assert preset("laptop", "x", steps=40).warmup == 4
    assert preset("laptop", "x", steps=400).warmup == 100


def test_a_full_disk_at_the_first_checkpoint(store, tmp_path):
    with small_files(3_000), pytest.raises(OSError, match="there is no checkpoint yet"):
        fit(toy_run(store), tmp_path / "run")
    assert not (tmp_path / "run/checkpoints").exists()
    assert not [file for file in os.listdir(tmp_path / "run") if file.startswith(".step")]
