"""`toeplix probe`: what its table calls the encoders, and that nothing else is printed."""

import json
import os
import subprocess
import sys

import pytest

from toeplix import Model, build, save
from toeplix.cli.probe import SHOWN_ENCODERS
from toeplix.data import Tokenizer
from toeplix.experiments.engine.text_probe import ENCODERS

TEXT = "to be or not to be, that is the question, and so on until the end of the text. "


@pytest.mark.slow
def test_encoders_have_names_and_the_tokenizer_is_no_warning(tmp_path):
    """In a process of its own, in which nothing has registered toeplix's models with transformers."""
    tokenizer = Tokenizer.train([TEXT] * 20, 280)
    tokenizer.save(tmp_path / "tokenizer")
    model = build(Model(vocab=tokenizer.vocab, context=16, dim=16, depth=1))
    save(model, tmp_path / "model", tokenizer=tmp_path / "tokenizer")
    lines = [json.dumps({"text": f"{number} {TEXT * 3}"}) for number in range(80)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    command = [sys.executable, "-m", "toeplix", "probe", "model", "--data", "texts.jsonl"]
    command += ["--steps", "2", "--batch", "4", "--work", "work", "--device", "cpu"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"COLUMNS": "100"},
    )
    assert done.returncode == 0, done.stderr
    assert set(SHOWN_ENCODERS) == set(ENCODERS)
    said = [f"training a decoder: {SHOWN_ENCODERS[name]}" for name in reversed(ENCODERS)]
    assert done.stderr.splitlines() == said
    for name in SHOWN_ENCODERS.values():
        assert f" {name} " in done.stdout
    assert "bits kept per token:" in " ".join(done.stdout.split())
