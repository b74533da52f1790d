"""Sources of text: a name stands for parts (files or shards), and a part is read document by document.

    python                                   the embedded corpus (corpus.py)
    novel.txt, 'texts/**/*.md'               text: one document per file, or several separated by a form
                                             feed or by at least two blank lines
    wiki.jsonl, .jsonl.gz, .jsonl.xz, .zst   one object per line, its field "text"
    shard.parquet                            one document per row, its column "text"
    directory                                all such files in it, sorted by name
    hf:NAME[:CONFIG[:SPLIT]]                 a data set of the Hugging Face hub, or a local directory in
                                             its format, streamed; the default split is train

Memory does not depend on the size of a part, only on its longest document. Data that cannot be read are
an error that names the file, the line or row, and what to do; nothing is skipped silently.
"""

import functools
import glob
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toeplix.data.corpus import python_corpus
from toeplix.data.reading import KINDS, Damaged, records, suffix_of
from toeplix.files import DamagedFile, printable

HUB = "hf:"


@dataclass(frozen=True, kw_only=True)
class Part:
    """A file, or a shard of a hub data set: the unit from which reading can resume."""

    name: str  # for messages
    size: int | None  # bytes of the file
    location: str  # a path, or NAME:CONFIG:SPLIT
    shard: int | None = None  # of the hub data set
    field: str = "text"

    def documents(self, skip: int = 0) -> Iterator[str]:
        """Yield the documents of the part in order, without the first `skip`."""
        number, unit = 0, "row" if self.shard is not None or ".parquet" in self.location else "line"
        if self.shard is None:
            found = records(Path(self.location), self.field, skip)
        else:
            found = _hub_rows(self.location, self.shard, self.field, skip)
        try:
            for number, value in found:  # noqa: B007 - used in error messages
                if not isinstance(value, str):
                    raise Damaged(
                        f"field {self.field!r} is {type(value).__name__}, not text",
                        "name another with --field, or drop the row",
                    )
                try:
                    value.encode()
                except UnicodeEncodeError as problem:
                    raise Damaged(
                        f"half of a surrogate pair at character {problem.start}",
                        "mend or delete this line",
                    ) from problem
                yield value
        except Damaged as problem:
            place = problem.place or (f"{unit} {number}" if number else "at its start")
            raise DamagedFile(
                printable(f"{self.name}, {place}: {problem.trouble}: {problem.remedy}")
            ) from problem


def resolve(names: Iterable[str], field: str = "text") -> list[Part]:
    """Return the parts of several sources. Missing and unknown sources are rejected."""
    parts: list[Part] = []
    for name in names:
        if not name:
            raise ValueError("a source has no name: give a file, a directory ('.'), or hf:NAME")
        if name == "python":
            parts.append(_file(python_corpus(), name, "text"))
        elif name.startswith(HUB):
            parts += _hub(name, field)
        else:
            parts += [_file(path, str(path), field) for path in _paths(name)]
    if not parts:
        raise ValueError("no source: give files, directories, 'python' or hf:NAME")
    return parts


def _file(path: Path, name: str, field: str) -> Part:
    return Part(name=name, size=path.stat().st_size, location=str(path), field=field)


def _paths(name: str) -> list[Path]:
    path = Path(name)
    kinds = ", ".join(sorted(KINDS)) + " (also .gz, .xz, .zst)"
    if path.is_file():
        if suffix_of(path) is None:
            raise ValueError(f"{printable(name)}: files of this kind are not read, only {kinds}")
        return [path]
    if path.is_dir():
        found = sorted(path.rglob("*"))
    elif glob.has_magic(name):
        found = sorted(map(Path, glob.glob(name, recursive=True)))
    else:
        raise FileNotFoundError(
            f"{printable(name)} is no file or directory "
            "(other sources: 'python', and hf:NAME for the hub)"
        )
    found = [each for each in found if each.is_file() and suffix_of(each) is not None]
    if not found:
        raise FileNotFoundError(f"{printable(name)} holds or matches no {kinds}")
    return found


def _hub(name: str, field: str) -> list[Part]:
    location = name.removeprefix(HUB)
    shards = _hub_stream(location).num_shards
    return [
        Part(name=f"{name}#{index}", size=None, location=location, shard=index, field=field)
        for index in range(shards)
    ]


@functools.lru_cache(maxsize=4)
def _hub_stream(location: str) -> Any:
    from datasets import load_dataset

    given = location.split(":")
    if not given[0] or len(given) > 3:
        raise ValueError(f"{HUB}{location} is not hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT")
    name, config, split = [*given, "", ""][:3]
    try:
        return load_dataset(name, config or None, split=split or "train", streaming=True)
    except Exception as problem:  # of the hub, the network or the data set: any class
        reason = str(problem).strip().partition("\n")[0] or type(problem).__name__
        raise ValueError(f"{HUB}{location} cannot be opened: {reason}") from problem


def _hub_rows(location: str, shard: int, field: str, skip: int) -> Iterator[tuple[int, Any]]:
    stream = _hub_stream(location)
    rows = stream.shard(num_shards=stream.num_shards, index=shard).skip(skip)
    number = skip
    try:
        for number, row in enumerate(rows, skip + 1):
            if field not in row:
                raise Damaged(
                    f"no field {field!r}, only {', '.join(map(repr, row))}", "choose with --field"
                )
            yield number, row[field]
    except (Damaged, GeneratorExit):
        raise
    except Exception as problem:  # as above
        reason = str(problem).strip().partition("\n")[0] or type(problem).__name__
        raise Damaged(
            reason, "run the same command again to go on from here", place=f"after row {number}"
        ) from problem
