"""Cases of kind `files`: one file changed, one command that reads it.

`make` is a function of the seed: it fills a directory and says what must be true afterwards.
"""

import json
import os
import shutil
import signal
import stat
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import benchmarks, fixtures, formats, mutators, targets
from tests.fuzz.asking import SOUND
from tests.fuzz.oracles import Case
from tests.fuzz.targets import LASTING, Reader, Target

REAL = 0.002  # share of cases that start the program itself, not a fork
KIND = "files"
TARGETS = [*targets.TARGETS, *benchmarks.TARGETS]
Truths = dict[str, dict[str, Any]]  # by command: what it prints and writes over sound files


def key(reader: Reader) -> str:
    return json.dumps(reader.argv)


def readers() -> list[tuple[Target, Reader]]:
    """Commands whose result over sound files has to be known."""
    return [(target, each) for target in TARGETS for each in target.readers if each.expect]


def fill(root: Path, place: Path, target: Target, reader: Reader) -> None:
    """The fixtures of a target, copied."""
    fixtures.copy(root, place, target.fixtures)
    (place / "home").mkdir()
    if reader.argv[0] == "@explore":
        shutil.copytree(place / "run", place / SOUND)


def make(seed: str, number: int, root: Path, place: Path, truths: Truths) -> Case:
    rng = Random(seed)
    (target,) = rng.choices(TARGETS, [each.share for each in TARGETS])
    (reader,) = rng.choices(target.readers, [each.share for each in target.readers])
    fill(root, place, target, reader)
    found = sorted({file for pattern in target.files for file in place.glob(pattern)})
    file = rng.choice([each for each in found if each.is_file()])
    name, before = str(file.relative_to(place)), file.read_bytes()
    mutator, sealed, after = None, False, before
    if rng.random() < 0.06:
        done = mutators.in_its_place(rng, file)
    else:
        mutator = _fitting(rng, target, file)
        after = mutator(rng, before)
        sealed = rng.random() < 0.4
        if sealed and file.suffix == ".safetensors":
            after = formats.unsigned(after)
        file.write_bytes(after)
        if sealed:
            formats.sealed(place, before, after)
        done = f"{getattr(mutator, '__name__', 'changed')}{', sealed' * sealed}"
    strict = not sealed or target.archive or target.lines  # which have no checksums of ours
    expect = _expected(target, reader, file, before, after, truths) if strict else {}
    return Case(
        kind=KIND,
        number=number,
        seed=seed,
        title=f"{target.name}: {name}: {done}",
        argv=reader.argv,
        env=reader.env,
        writes=[*reader.writes, "home"],
        patience=LASTING if reader.lasting else 25.0,
        ending=signal.SIGTERM if reader.lasting else signal.SIGKILL,
        executable=not reader.argv[0].startswith("@") and rng.random() < REAL,
        expect=expect,
    )


def _fitting(rng: Random, target: Target, file: Path) -> mutators.Bytes:
    """A mutator that can take this file apart."""
    chosen = rng.choice(target.mutators)
    if chosen is formats.safetensors and file.suffix != ".safetensors":
        chosen = mutators.json_text
    if chosen is mutators.json_text and file.suffix != ".json":
        chosen = mutators.any_bytes
    if chosen is mutators.any_bytes and rng.random() < 0.4 and "records" in target.name:
        chosen = {".json": mutators.json_text, ".jsonl": mutators.json_lines}.get(
            file.suffix, chosen
        )
    return chosen


def _expected(
    target: Target, reader: Reader, file: Path, before: bytes, after: bytes, truths: Truths
) -> dict[str, Any]:
    regular = file.exists() and stat.S_ISREG(os.lstat(file).st_mode)
    if target.archive and regular:
        content = formats.decoded(target.archive, after)
        if content is None:
            return {"rejected": "the archive is damaged by a strict reading of its format"}
        try:
            rows = [json.loads(line) for line in content.decode().splitlines() if line.strip()]
            return {"documents": [row["text"] for row in rows]}
        except (ValueError, KeyError, TypeError, RecursionError):
            return {}  # what it holds is no text: any answer but a crash
    if target.lines and regular:
        lines = after.replace(b"\xef\xbb\xbf", b"").split(b"\n")
        return {"lines": sum(bool(line.strip()) for line in lines)}
    if regular and (after == before or formats.signed(before) > formats.signed(after)):
        return {}  # nothing was changed, or the checksum itself is gone
    truth = truths.get(key(reader), {})
    if reader.expect == "stdout":
        return {"same_stdout": truth["stdout"]}
    if reader.expect == "weights":
        return {"weights": {reader.weights: truth["weights"]}}
    return {"rejected": f"{file.name} was changed"} if reader.expect == "rejected" else {}
