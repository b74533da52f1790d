"""The outcome of a case: how the command ended, what it did to files, and whether its result is right.

ok            exit 0, and every expectation held
rejected      exit 2 with a line that says why, and nothing left behind
interrupted   told to end by a signal, it ended: 0, 130 or 143
unforeseen    exit 70: an error that no reader expected
traceback     a traceback on a standard stream
status        any other exit status, or a rejection without a word
hang          no end within the bound, or none after the signal
killed        a signal that nobody sent
damage        files changed, replaced, removed or half-written that were not the command's to write
leftover      rejected, but new files remain
wrong         exit 0 with a result that cannot be right
"""

import hashlib
import json
import os
import re
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.forking import Ended

FINE = ("ok", "rejected", "interrupted")
FAILURES = (
    *("traceback", "unforeseen", "status", "hang", "killed", "damage", "leftover", "wrong"),
)
Tree = dict[str, tuple[Any, ...]]
CACHE, DIVERGED = "home/.cache/toeplix", "toeplix: the loss is "


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command line in a directory that holds all it reads, and what must be true afterwards."""

    kind: str
    number: int
    seed: str
    title: str  # what was done to what
    argv: list[str]  # as os.fsdecode gives bytes; "@explore" and "@serve" are asking.py's
    env: dict[str, str] = field(default_factory=dict)
    stdin: str | None = ""
    closed_stdout: bool = False
    executable: bool = False
    patience: float = 25.0
    ending: int = 9
    grace: float = 15.0
    writes: list[str] = field(default_factory=list)  # paths that may appear or change
    statuses: list[int] = field(default_factory=lambda: [0, 2])
    expect: dict[str, Any] = field(default_factory=dict)  # see checks.py

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A word, and what was seen; `signature` is the same for cases of the same cause."""

    word: str
    detail: str = ""
    signature: str = ""

    @property
    def fine(self) -> bool:
        return self.word in FINE


def tree(root: Path) -> Tree:
    """All that lies below a directory: kinds, links and contents."""
    found: Tree = {}
    for folder, folders, files in os.walk(os.fsencode(root)):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            known = os.lstat(path)
            label = os.fsdecode(os.path.relpath(path, os.fsencode(root)))
            if stat.S_ISREG(known.st_mode):
                with open(path, "rb") as opened:
                    found[label] = ("file", hashlib.sha256(opened.read()).hexdigest())
            elif stat.S_ISLNK(known.st_mode):
                found[label] = ("link", os.fsdecode(os.readlink(path)))
            else:
                found[label] = (stat.S_IFMT(known.st_mode), known.st_rdev)
    return found


def judge(case: Case, ended: Ended, before: Tree, after: Tree, place: Path) -> Outcome:
    """What happened; the first of the rules that is broken."""
    err = ended.err.decode("utf-8", "replace")
    text = err + ended.out.decode("utf-8", "replace")
    last = err.strip().splitlines()[-1][:300] if err.strip() else ""
    if ended.status is None:
        said = "after the signal" if ended.told else f"within {case.patience:g} s"
        return _failed("hang", case, f"no end {said}; {last}")
    if "Traceback (most recent call last)" in text:
        return _failed("traceback", case, _crash(text))
    if ended.status == 70:
        return _failed("unforeseen", case, _logged(err) or last)
    allowed = {*case.statuses, 130, 143} if ended.told else set(case.statuses)
    if ended.status >= 128 and ended.status not in allowed:
        return _failed("killed", case, f"signal {ended.status - 128}; {last}")
    if ended.status not in allowed:
        return _failed("status", case, f"exit {ended.status}: {last}")
    if ended.status == 2 and not case.closed_stdout and not (err.strip() or ended.out.strip()):
        return _failed("status", case, "exit 2 without a word")
    if damage := _damage(case, before, after):
        return _failed("damage", case, damage)
    left = sorted(each for each in set(after) - set(before) if not _belongs(each))
    # a run that trained until its loss diverged is a result, and its directory stays
    if ended.status == 2 and left and not last.startswith(DIVERGED):
        return _failed("leftover", case, f"{', '.join(left[:4])} after: {last}")
    if ended.status == 0 and not ended.told:
        from tests.fuzz.checks import wrong

        if problem := wrong(case, ended, place):
            return _failed("wrong", case, problem)
    word = "interrupted" if ended.told else "rejected" if ended.status == 2 else "ok"
    return Outcome(word=word, detail=last)


def _belongs(label: str) -> bool:
    """The user's cache, where figures that were drawn before the failure are kept."""
    return f"{CACHE}/".startswith(f"{label}/") or label.startswith(f"{CACHE}/")


def _damage(case: Case, before: Tree, after: Tree) -> str:
    def allowed(label: str) -> bool:
        return any(label == each or label.startswith(f"{each}/") for each in case.writes)

    def above(label: str) -> bool:  # a directory on the way to what may be written
        return any(each.startswith(f"{label}/") for each in case.writes)

    changed = [
        label for label, known in before.items() if after.get(label) != known and not allowed(label)
    ]
    if changed:
        gone = "removed" if changed[0] not in after else "changed"
        return f"{gone}: {', '.join(changed[:4])}"
    new = [each for each in after if each not in before and not allowed(each) and not above(each)]
    return (
        f"appeared: {', '.join(sorted(new)[:4])}" if new and not case.expect.get("any_new") else ""
    )


def _crash(text: str) -> str:
    """The last line of a traceback, and the innermost places of the program in it."""
    frames = re.findall(r'File "[^"]*/(toeplix/[^"]+)", line (\d+), in (\S+)', text)
    places = [f"{file}:{line} {name}" for file, line, name in frames if "/cli.py" not in file]
    ends = re.findall(
        r"^(\w[\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Damaged)\b.*)$", text, re.M
    )
    return f"{(ends or ['?'])[-1][:200]} at {places[-1] if places else '?'}"


def _logged(err: str) -> str:
    """The cause of an unforeseen error, from the log file that its line names."""
    named = re.search(r"the traceback is in (\S+)", err)
    try:
        return _crash(Path(named[1]).read_text(errors="replace")) if named else ""
    except OSError:
        return ""


def _failed(word: str, case: Case, detail: str) -> Outcome:
    """Numbers, paths and values differ between cases of one cause: they are not in the signature."""
    command = " ".join(case.argv[:2] if case.argv[:1] in (["data"], ["bench"]) else case.argv[:1])
    if word == "traceback" or (word == "unforeseen" and " at " in detail):
        error, _, place = detail.rpartition(" at ")
        where = re.sub(r":\d+ ", " ", place)
        told = f"{error.partition(':')[0]} {where}"
    elif word == "hang":
        told = case.title.replace(", sealed", "")
    elif word in ("leftover", "damage"):
        told = re.sub(r"\d+", "0", detail.partition(" after: ")[0])
    else:
        told = re.sub(r"\d+", "0", re.sub(r"['\"][^'\"]*['\"]|\S*/\S*", "", detail))[:60]
    return Outcome(
        word=word, detail=detail, signature=f"{word}: {command}: {' '.join(told.split())}"
    )
