"""python -m tests.fuzz --minutes 5 --seed 0: hostile input for a while, and counts by outcome.

Failing cases are saved as directories below --out; --replay DIR runs one of them again. Exit status 1 if
anything failed.
"""

import argparse
import collections
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.fuzz import isolation, kinds
from tests.fuzz.oracles import FAILURES, FINE

EVER = 10**9


def parser() -> argparse.ArgumentParser:
    own = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    own.add_argument("--minutes", type=float, help="for all kinds together; default: 5")
    own.add_argument("--cases", type=int, help="at most so many of files and of commands")
    own.add_argument("--seed", default="0")
    own.add_argument("--kinds", default=",".join((*kinds.FORKED, *kinds.OTHERS)))
    own.add_argument("--out", type=Path, default=Path("runs/fuzz"), help="for reproducers")
    own.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cases at a time")
    own.add_argument("--replay", type=Path, nargs="+", help="saved cases, once more")
    own.add_argument("--json", type=Path, help="counts and failures, for programs")
    return own


def main() -> int:
    given = parser().parse_args()
    place = isolation.scratch()
    if place is None:
        try:
            return isolation.enter(sys.argv[1:], given.out)
        except isolation.NotPossible as problem:
            print(f"fuzz: {problem}: files and commands are not run", file=sys.stderr)
            return outside(given)
    out = Path(os.environ["TOEPLIX_FUZZ_OUT"])
    isolation.seal(place, out)
    return inside(given, place, out)


def inside(given: argparse.Namespace, place: Path, out: Path) -> int:
    from tests.fuzz.campaign import Campaign

    began = time.monotonic()
    campaign = Campaign(place, out)
    if given.replay:
        return replayed(campaign, given.replay)
    campaign.make_fixtures()
    made = time.monotonic() - began
    print(f"fixtures made in {made:.0f} s", flush=True)
    counts: dict[str, collections.Counter[str]] = {}
    failures: dict[str, dict[str, Any]] = {}
    chosen = _chosen(given.kinds)
    whole = sum(kinds.SHARES[name] for name in chosen)
    for name in chosen:
        seconds = max(5.0, _seconds(given) - made) * kinds.SHARES[name] / whole
        if name in kinds.FORKED:
            many = given.cases or EVER
            found = campaign.run(name, seconds, given.seed, many, given.jobs, progress)
            counts[name] = found[0]
            failures |= found[1]
        else:
            counts[name] = _other(name, seconds, given.seed, out, campaign.root)
    return report(counts, failures, out, given.json)


def replayed(campaign: Any, folders: list[Path]) -> int:
    """Saved cases over the code as it is now; how many still fail is told at the end."""
    from tests.fuzz import reproducers

    again, streams = campaign.scratch / "again", campaign.scratch / "streams"
    streams.mkdir()
    failed = 0
    for folder in folders:
        outcome = campaign.one(reproducers.load(folder, again), again, streams)
        failed += not outcome.fine
        if len(folders) == 1:
            print((streams / "err").read_text(errors="replace"), end="")
        line = f"{folder.name}: {outcome.word}: {outcome.detail}"
        print(line.encode("utf-8", "backslashreplace").decode(), flush=True)
    print(f"{failed} of {len(folders)} fail")
    return int(failed > 0)


def _chosen(names: str) -> list[str]:
    """Kinds in the order in which they can follow each other."""
    known, given = (*kinds.FORKED, *kinds.OTHERS), set(filter(None, names.split(",")))
    if unknown := sorted(given - set(known)):
        raise SystemExit(f"fuzz: there is no kind {unknown[0]}: {', '.join(known)}")
    return [name for name in known if name in given]


def _seconds(given: argparse.Namespace) -> float:
    if given.minutes is not None:
        return 60 * given.minutes
    return EVER if given.cases and set(given.kinds.split(",")) <= set(kinds.FORKED) else 300


def outside(given: argparse.Namespace) -> int:
    """Where there are no namespaces: what writes nothing."""
    counts = {}
    for name in set(_chosen(given.kinds)) & {"operator"}:
        counts[name] = _other(name, _seconds(given), given.seed, given.out, Path())
    return report(counts, {}, given.out, given.json) if counts else 1


def _other(name: str, seconds: float, seed: str, out: Path, root: Path) -> collections.Counter[str]:
    run = kinds.other(name, root)
    if run is None:
        print(f"{name}: what it needs is not installed", flush=True)
        return collections.Counter()
    return run(seconds, seed, out)


_said = [0.0]


def progress(kind: str, counts: collections.Counter[str], seconds: float, signatures: int) -> None:
    """A line while it works: on a terminal the same one, elsewhere every half a minute."""
    shown = sys.stderr.isatty()
    if time.monotonic() - _said[0] < (0.2 if shown else 30):
        return
    _said[0] = time.monotonic()
    failed = sum(counts[word] for word in FAILURES)
    line = f"{kind}: {counts.total():,} cases, {counts.total() / max(seconds, 1e-3):.1f}/s"
    line += f", {failed} failed in {signatures} ways"
    print(
        f"\r{line}\033[K" if shown else line, end="" if shown else "\n", file=sys.stderr, flush=True
    )


def report(
    counts: dict[str, collections.Counter[str]],
    failures: dict[str, dict[str, Any]],
    out: Path,
    file: Path | None,
) -> int:
    words = [*FINE, *FAILURES]
    words += sorted({each for found in counts.values() for each in found} - set(words))
    print(f"\n{'outcome':14}" + "".join(f"{kind:>10}" for kind in counts))
    for word in words:
        row = [found[word] for found in counts.values()]
        if any(row) or word in FINE:
            print(f"{word:14}" + "".join(f"{number:>10,}" for number in row))
    print(f"{'all':14}" + "".join(f"{found.total():>10,}" for found in counts.values()))
    for signature, first in sorted(failures.items()):
        line = f"{first['times']:5} x {signature} [{first['title']}] {first['detail'][:160]}"
        print(line.encode("utf-8", "backslashreplace").decode())
    if failures:
        print(f"reproducers are in {out}; python -m tests.fuzz --replay DIR runs one again")
    if file is not None:
        text = json.dumps({"counts": counts, "failures": failures}, indent=1)
        (out / file.name).write_text(text)
    return int(any(found[word] for found in counts.values() for word in words if word not in FINE))


if __name__ == "__main__":
    sys.exit(main())
