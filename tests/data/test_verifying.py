"""A store that is not what was built is found before anything is computed from it."""

import json
import os
import random
import shutil

import numpy as np
import pytest

from tests.data.test_commands import toeplix  # noqa: F401 - a fixture
from tests.toy import toy_run, toy_store
from toeplix.data import Packed, Padded, Recipe, Store, build, verification
from toeplix.data import store as stores
from toeplix.files import DamagedFile
from toeplix.training.loop import fit

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture
def copy(store, tmp_path):
    return Store.open(shutil.copytree(store.directory, tmp_path / "copy"))


@pytest.fixture
def settled(monkeypatch):
    monkeypatch.setattr(verification, "SETTLED_NANOSECONDS", 0)


@pytest.fixture
def reads(monkeypatch):
    """Names of files whose sha256 was computed."""
    found = []
    whole = stores.sha256
    monkeypatch.setattr(stores, "sha256", lambda file: found.append(file.name) or whole(file))
    return found


def flip(file, place, bit=0):
    content = bytearray(file.read_bytes())
    content[place] ^= 1 << bit
    file.write_bytes(content)


@pytest.mark.parametrize("name", ["train.bin", "train.idx", "train.size", "val.idx", "val.bin"])
def test_train_notices_a_flipped_bit(copy, tmp_path, name):
    flip(copy.directory / name, 17)
    with pytest.raises(DamagedFile, match=rf"sha256 disagrees: {name}"):
        fit(toy_run(copy, vocab=400), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_train_can_be_told_not_to_verify(tmp_path, monkeypatch):
    store = toy_store(tmp_path)
    monkeypatch.setattr(Store, "check", lambda self: 1 / 0)
    fit(toy_run(store, steps=4), tmp_path / "run", verify=False)
    with pytest.raises(ZeroDivisionError):
        fit(toy_run(store, steps=4), tmp_path / "other")


def test_the_option_of_the_command(toeplix, tmp_path):  # noqa: F811
    store = toy_store(tmp_path)
    flip(
        store.directory / "train.bin", 40
    )  # still a token of the vocabulary, or not: not looked at
    options = ["--steps", 2, "--context", 16, "--dim", 8, "--depth", 1, "--heads", 1, "--batch", 2]
    options += ["--warmup", 1, "--trackers", "", "--sample-every", 0, "--eval-every", 0]
    arguments = ["train", "--data", store.directory, "--out", tmp_path / "run", *options]
    status, _, error = toeplix(*arguments)
    assert status == 2
    assert "sha256 disagrees: train.bin" in error
    assert toeplix(*arguments, "--no-verify")[0] == 0


@pytest.mark.usefixtures("settled")
def test_what_was_verified_is_remembered_until_a_file_changes(copy, reads):
    copy.verify()
    assert len(reads) == len(copy.manifest["files"])
    copy.verify()
    Store.open(copy.directory).verify()
    assert len(reads) == len(copy.manifest["files"]), "once"
    times = os.stat(copy.directory / "train.bin")
    flip(copy.directory / "train.bin", 9)
    os.utime(copy.directory / "train.bin", ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(DamagedFile, match=r"train\.bin"):
        Store.open(copy.directory).verify()
    flip(copy.directory / "train.bin", 9)
    reads.clear()
    Store.open(copy.directory).verify()
    assert reads, "mended, but another file than the one that was read"
    reads.clear()
    moved = shutil.copytree(copy.directory, copy.directory.with_name("moved"))
    Store.open(moved).verify()
    assert reads, "a copy is another store"


@pytest.mark.usefixtures("settled")
def test_a_damaged_record_or_no_place_for_one_means_to_verify(copy, reads, monkeypatch, tmp_path):
    monkeypatch.setenv("TOEPLIX_CACHE", str(tmp_path / "cache"))
    copy.verify()
    (record,) = (tmp_path / "cache" / "verified").iterdir()
    known = record.read_text()
    for text in ("", "{", "[]", DEEP, "{}", known.replace('"train.bin"', '"train.bim"')):
        record.write_text(text)
        reads.clear()
        copy.verify()
        assert reads
    reads.clear()
    copy.verify()
    assert not reads
    (tmp_path / "file").write_text("no directory")
    monkeypatch.setenv("TOEPLIX_CACHE", str(tmp_path / "file"))
    copy.verify()
    assert reads


@pytest.mark.usefixtures("settled")
def test_records_of_stores_that_are_gone_go_too(store, monkeypatch, tmp_path):
    monkeypatch.setenv("TOEPLIX_CACHE", str(tmp_path / "cache"))
    for name in ("a", "b"):
        folder = shutil.copytree(store.directory, tmp_path / name)
        Store.open(folder).verify()
        shutil.rmtree(folder)
    assert len(list((tmp_path / "cache" / "verified").iterdir())) == 1


def test_a_store_that_was_just_written_is_not_yet_remembered(copy, reads):
    """A change right after might leave size and times as they are."""
    copy.verify()
    reads.clear()
    copy.verify()
    assert reads


def test_verifying_writes_nothing_into_the_store(copy):
    before = sorted(os.listdir(copy.directory))
    copy.verify()
    assert sorted(os.listdir(copy.directory)) == before


def test_every_flipped_bit_of_a_manifest_is_found_or_means_nothing(copy):
    file = copy.directory / "manifest.json"
    content = file.read_bytes()
    chosen, found = random.Random(0), 0
    for place in chosen.sample(range(len(content)), 400):
        changed = bytearray(content)
        changed[place] ^= 1 << chosen.randrange(8)
        file.write_bytes(changed)
        try:
            assert Store.open(copy.directory).manifest == copy.manifest
        except ValueError:
            found += 1
    assert found > 390


def sizes(manifest):
    return manifest["files"]["train.bin"]


CHANGES = {
    "dtype": lambda m: m.update(dtype="<f8"),
    "dtype object": lambda m: m.update(dtype="O"),
    "dtype number": lambda m: m.update(dtype=5),
    "huge vocabulary": lambda m: m["tokenizer"].update(vocab=10**9),
    "vocabulary NaN": lambda m: m["tokenizer"].update(vocab=float("nan")),
    "vocabulary infinite": lambda m: m["tokenizer"].update(vocab=float("inf")),
    "vocabulary of text": lambda m: m["tokenizer"].update(vocab="400"),
    "pad": lambda m: m["tokenizer"].update(pad=400),
    "no pad": lambda m: m["tokenizer"].pop("pad"),
    "negative": lambda m: m["splits"]["train"].update(documents=-1),
    "huge": lambda m: m["splits"]["train"].update(documents=10**30),
    "huge bytes": lambda m: sizes(m).update(bytes=10**400),
    "fraction": lambda m: m["splits"]["train"].update(tokens=1.5),
    "more tokens": lambda m: m["splits"]["train"].update(tokens=m["splits"]["train"]["tokens"] + 1),
    "no split": lambda m: m["splits"].pop("val"),
    "another split": lambda m: m["splits"].update(test={}),
    "splits": lambda m: m.update(splits=[]),
    "files": lambda m: m.update(files=7),
    "no files": lambda m: m.update(files={}),
    "a file elsewhere": lambda m: m["files"].update({"../../etc/passwd": sizes(m)}),
    "a file of dots": lambda m: m["files"].update({"tokenizer/..": sizes(m)}),
    "sha256": lambda m: sizes(m).update(sha256="abc"),
    "recipe": lambda m: m.update(recipe=[]),
    "parts": lambda m: m.update(parts=[5]),
    "read": lambda m: m.update(read=None),
    "unknown": lambda m: m.update(surprise=1),
    "version": lambda m: m.update(version="1"),
    "no version": lambda m: m.pop("version"),
    "deep": lambda m: m.update(recipe=eval("[" * 90 + "]" * 90)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_manifest_that_contradicts_itself(copy, recipe, name):
    """Without its checksum, as somebody may have written it on purpose."""
    manifest = json.loads((copy.directory / "manifest.json").read_text())
    del manifest["sha256"]
    CHANGES[name](manifest)
    (copy.directory / "manifest.json").write_text(json.dumps(manifest))
    for call in (Store.open, lambda folder: build(recipe, folder)):
        with pytest.raises(DamagedFile, match=r"manifest\.json is damaged: .*; build the store"):
            call(copy.directory)


@pytest.mark.parametrize(
    "text", ["", "{", "null", "5", '"x"', DEEP, '{"version": ' + DEEP + "}", b"\xff\xfe\x00"]
)
def test_a_manifest_of_another_kind(toeplix, copy, text):  # noqa: F811
    file = copy.directory / "manifest.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    for command in (["data", "show"], ["data", "check"], ["train", "--out", "run", "--data"]):
        status, out, error = toeplix(*command, copy.directory)
        assert (status, out) == (2, "")
        assert error.count("\n") == 1
        assert "manifest.json is damaged" in error


def write(store, name, numbers):
    """Other numbers of the same length, with the sha256 that belongs to them."""
    file = store.directory / name
    file.write_bytes(numbers.tobytes())
    manifest = json.loads((store.directory / "manifest.json").read_text())
    manifest.pop("sha256", None)
    manifest["files"][name]["sha256"] = stores.sha256(file)
    (store.directory / "manifest.json").write_text(json.dumps(manifest))
    return Store.open(store.directory)


@pytest.mark.parametrize("name", ["train.idx", "train.size", "val.idx"])
@pytest.mark.parametrize("value", [-1, 0, 2**62, -(2**63), 2**63 - 1])
def test_documents_must_lie_one_after_the_other(copy, name, value):
    numbers = np.fromfile(copy.directory / name, "<i8")
    for place in (0, 1, len(numbers) // 2, len(numbers) - 1):
        changed = numbers.copy()
        changed[place] = value
        if (changed == numbers).all():
            continue
        store = write(copy, name, changed)
        with pytest.raises(DamagedFile, match=rf"{name} is damaged: .*; build the store again"):
            store.check()
        with pytest.raises(DamagedFile, match=rf"{name} is damaged"):  # even if nobody verifies
            _ = store.train if name.startswith("train") else store.val


def test_tokens_must_be_in_the_vocabulary(copy):
    tokens = np.fromfile(copy.directory / "val.bin", "<u2")
    tokens[5] = copy.vocab
    with pytest.raises(DamagedFile, match=r"val\.bin is damaged: it holds token 400 of a voc"):
        write(copy, "val.bin", tokens).check()


def test_flipped_bits_anywhere_never_pass_the_check(copy):
    chosen = random.Random(1)
    for name in copy.manifest["files"]:
        file = copy.directory / name
        content = file.read_bytes()
        for _ in range(12):
            flip(file, chosen.randrange(len(content)), chosen.randrange(8))
            with pytest.raises(ValueError, match=name):
                Store.open(copy.directory).check()
            file.write_bytes(content)
    copy.check()
    for kind in (Padded, Packed):
        kind(copy.train, context=16)[0]


def test_a_store_without_checksums_of_its_records_is_read(copy):
    manifest = json.loads((copy.directory / "manifest.json").read_text())
    del manifest["sha256"]
    (copy.directory / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    Store.open(copy.directory).verify()


class Halt(BaseException):
    pass


@pytest.fixture
def unfinished(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("toeplix.data.building.BATCH_CHARACTERS", 2**11)

    def stop(progress):
        if progress.documents > 200:
            raise Halt

    with pytest.raises(Halt):
        build(recipe, tmp_path / "new", processes=1, report=stop, every=0)
    return tmp_path / "new"


def test_every_flipped_bit_of_progress_is_found_or_means_nothing(recipe, store, unfinished):
    """A count that is off by one would lose a document, and nothing later could tell."""
    file, chosen = unfinished / "progress.json", random.Random(2)
    content = file.read_bytes()
    for place in chosen.sample(range(len(content)), 150):
        changed = bytearray(content)
        changed[place] ^= 1 << chosen.randrange(8)
        file.write_bytes(changed)
        with pytest.raises(ValueError, match=r"progress\.json is damaged: .*; delete .*new and"):
            build(recipe, unfinished, processes=1)
    file.write_bytes(content)
    build(recipe, unfinished, processes=1)
    assert (unfinished / "train.bin").read_bytes() == (store.directory / "train.bin").read_bytes()


@pytest.mark.parametrize("text", ["", "{", "null", "[]", "{}", DEEP, '{"read": 1e999}', b"\xff"])
def test_progress_of_another_kind(toeplix, lines, unfinished, text):  # noqa: F811
    file = unfinished / "progress.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    options = ["--out", unfinished, "--vocab", 400, "--val-fraction", 0.1]
    status, out, error = toeplix("data", "build", lines, *options)
    assert (status, out) == (2, "")
    assert error.count("\n") == 1
    assert "progress.json is damaged" in error


def test_progress_without_a_checksum_goes_on(recipe, store, unfinished):
    """As an earlier version left it."""
    progress = json.loads((unfinished / "progress.json").read_text())
    for name in ("sha256", "prepared"):
        del progress[name]
    (unfinished / "progress.json").write_text(json.dumps(progress))
    build(recipe, unfinished, processes=1)
    assert (unfinished / "train.bin").read_bytes() == (store.directory / "train.bin").read_bytes()


def test_an_index_that_was_changed_under_an_unfinished_store_is_found(recipe, unfinished):
    progress = json.loads((unfinished / "progress.json").read_text())
    flip(unfinished / "train.idx", progress["splits"]["train"]["documents"] * 8)
    with pytest.raises(DamagedFile, match=r"train\.idx is damaged: it does not end where progress"):
        build(recipe, unfinished, processes=1)


def test_names_that_are_not_utf8(toeplix, texts, tmp_path):  # noqa: F811
    folder = tmp_path / "\udcff"
    folder.mkdir()
    source = folder / "a\udcfe.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[:50]))
    out = folder / "store"
    status, told, error = toeplix("data", "build", source, "--out", out, "--vocab", 300)
    assert (status, error.count("Traceback")) == (0, 0)
    told.encode()
    for command in ("show", "check"):
        assert toeplix("data", command, out)[0] == 0
    Store.open(out).verify()
    assert toeplix("data", "build", folder / "gone\udcfd.txt", "--out", out)[0] == 2
    assert toeplix("data", "show", folder / "gone\udcfd")[0] == 2


@pytest.mark.parametrize("value", ["inf", "nan", "-inf", "1e308", "1e999"])
def test_benchmarks_take_numbers(toeplix, value):  # noqa: F811
    for command in (["data", "--megabytes"], ["ops", "--seconds"], ["spectrum", "--seconds"]):
        status, _, error = toeplix("bench", *command, value)
        assert status == 2
        assert error.count("\n") == 1


def test_a_recipe_is_told_from_another_in_a_damaged_store(copy, lines):
    with pytest.raises(ValueError, match="was begun with vocab=400, not 401"):
        build(Recipe(sources=(lines,), vocab=401, val_fraction=0.1), copy.directory)
