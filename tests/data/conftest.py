"""A small corpus that is awkward on purpose, its tokenizer, and a store of it."""

import json
import random

import pytest

from tests.data import build_worker
from toeplix.data import Recipe, Tokenizer, build, building

WORDS = ["the", "model", "reads", "Übung", "東京", "naïve", "don't", "x=1", "(word)", "🙂", "a\tb"]
WORDS += ["end.", "12", "3.14", "<|eos|>", "“quoted”", "\r\n"]


def make_texts(count: int, seed: int = 0) -> list[str]:
    chosen = random.Random(seed)
    return [
        f"document {index}: "
        + "".join(
            chosen.choice(WORDS) + chosen.choice([" ", " ", " ", "  ", "\n", "\n\n"])
            for _ in range(chosen.randrange(1, 120))
        )
        for index in range(count)
    ]


def write_lines(file, texts):
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return str(file)


@pytest.fixture(scope="session")
def texts():
    return make_texts(400)


@pytest.fixture(scope="session")
def lines(texts, tmp_path_factory):
    return write_lines(tmp_path_factory.mktemp("lines") / "texts.jsonl", texts)


@pytest.fixture(scope="session")
def tokenizer(texts):
    return Tokenizer.train(texts, 400)


@pytest.fixture(scope="session")
def recipe(lines):
    return Recipe(sources=(lines,), vocab=400, val_fraction=0.1)


@pytest.fixture(scope="session")
def store(recipe, tmp_path_factory):
    return build(recipe, tmp_path_factory.mktemp("store") / "store")


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TOEPLIX_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def pooled(monkeypatch):
    """Processes at once, and many small batches for them."""
    monkeypatch.setattr(building, "ONE_PROCESS_CHARACTERS", 0)
    monkeypatch.setattr(building, "BATCH_CHARACTERS", build_worker.SMALL)


def whole(folder):
    """Everything in a store, by name."""
    files = [file for file in folder.rglob("*") if file.is_file() and file.name != ".lock"]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}
