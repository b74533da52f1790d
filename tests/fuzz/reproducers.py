"""A failing case as a directory: what the command read, the command, what was expected, what was seen.

case.json   the case; input/ is what lay in its directory before
README      the same in words, and how to run it again
stdout, stderr
"""

import json
import os
import re
import shlex
import shutil
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.fuzz.oracles import Case, Outcome

SECONDS = 15.0  # that making a command line smaller may take
SPECIALS = "specials.json"  # what no copy can hold: pipes, sockets, devices


def save(out: Path, case: Case, outcome: Outcome, place: Path, aside: Path) -> Path:
    """Write a reproducer; `place` is the directory of the case before it was run."""
    name = re.sub(r"[^a-z0-9]+", "-", outcome.signature.lower()).strip("-")[:70]
    folder = out / f"{name}-{case.kind}-{case.number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _copy(place, folder / "input", folder / SPECIALS)
    (folder / "case.json").write_text(case.to_json() + "\n")
    for name in ("out", "err"):
        shutil.copyfile(aside / name, folder / f"std{name}")
    shown = " ".join(shlex.quote(each) for each in case.argv)
    shown = (shown if len(shown) < 2000 else shown[:2000] + " ...").encode(
        "utf-8", "backslashreplace"
    )
    expected = {key: value for key, value in case.expect.items() if key != "any_new"}
    text = f"""{case.title}

command:   toeplix {shown.decode()}
expected:  exit {" or ".join(map(str, case.statuses))}, nothing changed but {", ".join(case.writes)}
           {json.dumps(expected)[:500]}
seen:      {outcome.word}: {outcome.detail}
again:     python -m tests.fuzz --replay {folder}
seed:      {case.seed}
"""
    (folder / "README").write_bytes(text.encode("utf-8", "backslashreplace"))
    return folder


def load(folder: Path, place: Path) -> Case:
    """The case of a reproducer, its files copied to a directory."""
    shutil.rmtree(place, ignore_errors=True)
    folder = folder.resolve()
    shutil.copytree(folder / "input", place, symlinks=True)
    for name, mode, device in json.loads((folder / SPECIALS).read_text()):
        os.mknod(place / name, mode, device)
    (place / "home").mkdir(exist_ok=True)
    return Case(**json.loads((folder / "case.json").read_text()))


def smaller(campaign: Any, case: Case, outcome: Outcome, place: Path, aside: Path) -> Case:
    """The same failure with fewer words on the command line; of changed files there is but one."""
    if case.kind != "commands" or outcome.word == "hang":
        return case
    at, until = 1, time.monotonic() + SECONDS
    while at < len(case.argv) and time.monotonic() < until:
        shorter = replace(case, argv=case.argv[:at] + case.argv[at + 1 :])
        campaign.made(case.kind, case.seed, case.number, place)
        if campaign.one(shorter, place, aside).signature == outcome.signature:
            case = shorter
        else:
            at += 1
    return case


def _copy(source: Path, target: Path, specials: Path) -> None:
    found = []
    for folder, folders, files in os.walk(source):
        here = Path(folder)
        for name in (*folders, *files):
            known = os.lstat(here / name)
            if not any(kind(known.st_mode) for kind in (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)):
                label = str((here / name).relative_to(source))
                found.append([label, known.st_mode, known.st_rdev])
    listed = {label for label, *_ in found}
    shutil.copytree(
        source,
        target,
        symlinks=True,
        ignore=lambda folder, names: [
            name for name in names if str((Path(folder) / name).relative_to(source)) in listed
        ],
    )
    specials.write_text(json.dumps(found) + "\n")
