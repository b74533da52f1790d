"""Whether a command that succeeded is right: expectations by name, each with its truth beside it.

same_stdout    what the command prints over the sound file
rejected       it must not succeed at all: what was asked for is not there
documents      texts that the store must hold, in order, as an independent reader finds them
lines          documents that must have been read: an object a line
weights        digest of the tensors of a file, whatever the order in its header
"""

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

from tests.fuzz.forking import Ended
from tests.fuzz.formats import parts


def wrong(case: Any, ended: Ended, place: Path) -> str:
    """What is wrong, or nothing."""
    for name, truth in case.expect.items():
        if name in CHECKS and (problem := CHECKS[name](truth, ended, place)):
            return f"{name}: {problem}"
    return ""


def _same_stdout(truth: str, ended: Ended, place: Path) -> str:
    found = ended.out.decode("utf-8", "replace")
    return "" if found == truth else f"{found[:80]!r} instead of {truth[:80]!r}"


def _rejected(reason: str, ended: Ended, place: Path) -> str:
    return f"accepted, although {reason}"


def _documents(truth: list[str], ended: Ended, place: Path) -> str:
    found = sorted(documents(place / "new"))
    wanted = sorted(text for text in truth if text.strip())
    if found == wanted:
        return ""
    if len(found) != len(wanted):
        return f"{len(found)} documents in the store, {len(wanted)} in the archive"
    return "documents differ from those in the archive"


def _lines(truth: int, ended: Ended, place: Path) -> str:
    read = json.loads((place / "new" / "manifest.json").read_text())["read"]
    return "" if read == truth else f"{read} documents were read of {truth} lines"


def _weights(truth: dict[str, str], ended: Ended, place: Path) -> str:
    for name, digest in truth.items():
        if weights(place / name) != digest:
            return f"{name} has other weights than a run over sound files"
    return ""


CHECKS = {
    "same_stdout": _same_stdout,
    "rejected": _rejected,
    "documents": _documents,
    "lines": _lines,
    "weights": _weights,
}


def documents(folder: Path) -> list[str]:
    """Texts of a store, training and validation."""
    import numpy as np
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))
    kind = json.loads((folder / "manifest.json").read_text())["dtype"]
    found = []
    for index in sorted(folder.glob("*.idx")):
        offsets = np.fromfile(index, "<i8")
        tokens = np.fromfile(index.with_suffix(".bin"), kind)
        pairs = itertools.pairwise(offsets)
        found += [
            tokenizer.decode(tokens[a:b].tolist(), skip_special_tokens=True) for a, b in pairs
        ]
    return found


def weights(file: Path) -> str:
    """One digest of all tensors of a safetensors file, by name."""
    header, body = parts(file.read_bytes())
    digest = hashlib.sha256()
    for name in sorted(each for each in header if each != "__metadata__"):
        start, end = header[name]["data_offsets"]
        digest.update(f"{name} {header[name]['dtype']} {header[name]['shape']}".encode())
        digest.update(body[start:end])
    return digest.hexdigest()
