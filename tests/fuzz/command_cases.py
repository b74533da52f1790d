"""Cases of kind `commands`: command lines of every subcommand, from the options that it declares itself.

A case begins with a command line that works (command_lines.py) and is then changed: values that do not
belong, paths to what is no file, options left out, doubled or unknown, streams closed. Whatever it is,
the command ends with 0 or 2, or when it is told to; and nothing that was there before is changed.
"""

import functools
import os
import socket
import stat
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import fixtures
from tests.fuzz.command_lines import BASES, FLOATS, INTEGERS, PATHS, TEXTS
from tests.fuzz.oracles import Case

KIND = "commands"
REAL = 0.004
SKIPPED = ("--compile",)  # a C++ compiler works for a minute, and heeds no signal


@functools.cache
def commands() -> dict[str, list[Any]]:
    """Parameters of every subcommand, as the application declares them."""
    import typer

    from toeplix.cli.main import app

    found: dict[str, list[Any]] = {}

    def walk(command: Any, name: str) -> None:
        inside = getattr(command, "commands", None)
        if inside is None or not name:
            found[name] = command.params
        for each, below in (inside or {}).items():
            walk(below, f"{name} {each}".strip())

    walk(typer.main.get_command(app), "")
    return found


def make(seed: str, number: int, root: Path, place: Path, truths: object) -> Case:
    rng = Random(seed)
    known = commands()
    if missing := sorted(set(known) - set(BASES)):
        raise RuntimeError(
            f"no command line is known for {', '.join(missing)}: add it to command_lines.py"
        )
    names = [name for name in BASES if name in known]
    (name,) = rng.choices(names, [BASES[each].share for each in names])
    base = BASES[name]
    fixtures.copy(root, place, base.fixtures)
    surroundings(place)
    words, options = list(base.positional), _pairs(base.options)
    parameters = [each for each in known[name] if not set(each.opts) & set(SKIPPED)]
    changes = rng.choice([0, 1, 1, 1, 1, 2, 2, 3])
    done = [_change(rng, parameters, words, options) for _ in range(changes)]
    flat = [
        part
        for option, value in options
        for part in ([option] if value is None else [option, value])
    ]
    stdin: str | None = rng.choice(["one\n"] * 12 + ["", "\udcff\udcfe", "x" * 100_000, None])
    if rng.random() < 0.1 and name == "generate" and len(words) > 1:
        words[1] = "-"
    argv = [*name.split(), *(words + flat if rng.random() < 0.7 else flat + words)]
    return Case(
        kind=KIND,
        number=number,
        seed=seed,
        title=f"command {name or '(none)'}: {', '.join(done) or 'as it is'}",
        argv=argv,
        env={"BROWSER": "/bin/true"},
        stdin=stdin,
        closed_stdout=rng.random() < 0.02,
        executable=rng.random() < REAL,
        patience=base.patience,
        ending=base.ending,
        writes=["home"],
        statuses=list(base.statuses),
        expect={"any_new": True},
    )


def surroundings(place: Path) -> None:
    """A user's own things, in the way of outputs and mistaken for inputs."""
    for folder in ("home", "user/dir", "user/empty", "docs", "runs", "figures"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    for file in ("user/notes.md", "user/dir/letter.txt", "docs/experiments.md", "page.html"):
        (place / file).write_text("a user's own words\n")
    for file in ("runs/experiments.html", "figures/complexity-laptop.svg", "user/secret"):
        (place / file).write_text("a user's own words\n")
    (place / "user/secret").chmod(0)
    (place / "user/script.py").write_text("run = {'steps': 1}\n")
    (place / "user/link").symlink_to("notes.md")
    (place / "user/loop").symlink_to("loop")
    (place / "user/dangling").symlink_to("nowhere")
    os.mkfifo(place / "user/fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.getcwd()
        os.chdir(place)  # a name of at most 100 bytes
        listening.bind("user/socket")
        os.chdir(here)
    try:
        os.mknod(place / "user/device", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except OSError:
        (place / "user/device").symlink_to("/dev/null")


def _pairs(options: list[str]) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    for part in options:
        if part.startswith("--"):
            found.append((part, None))
        else:
            found[-1] = (found[-1][0], part)
    return found


def _change(
    rng: Random, parameters: list[Any], words: list[str], options: list[tuple[str, str | None]]
) -> str:
    """Change a command line in place; where it was changed."""
    action = rng.random()
    if action < 0.6 and parameters:
        parameter = rng.choice(parameters)
        if parameter.param_type_name == "argument":
            value = hostile(rng, parameter)
            if words and rng.random() < 0.9:
                words[rng.randrange(len(words))] = value
            else:
                words.append(value)
            return parameter.name
        name = rng.choice([*parameter.opts, *parameter.secondary_opts])
        options[:] = [each for each in options if each[0] not in parameter.opts]
        options.append((name, None if parameter.is_flag else hostile(rng, parameter)))
        return name
    if action < 0.7 and words:
        words.pop(rng.randrange(len(words)))
        return "argument missing"
    if action < 0.8 and options:
        at = rng.randrange(len(options))
        name, _ = options[at]
        if rng.random() < 0.5:
            options.pop(at)
            return f"{name} missing"
        options[at] = (name, None)
        return f"{name} without its value"
    if action < 0.9 and options:
        options.append(rng.choice(options))
        return f"{options[-1][0]} twice"
    extra: Any = rng.choice(
        [("--unknown", "1"), ("--unknown", None), ("-x", None), ("--help", None)]
    )
    options.append(extra)
    return extra[0]


def hostile(rng: Random, parameter: Any) -> str:
    """A value that a parameter of this type may be given by mistake or in malice."""
    described = getattr(parameter, "type_descriptor", None)  # of typer since it has no click inside
    kind = str(described.annotation if described else parameter.type).lower()
    if "int" in kind:
        pool = INTEGERS
    elif "float" in kind:
        pool = FLOATS
    else:
        pool = PATHS if "path" in kind else [*TEXTS, *PATHS]
    return rng.choice(pool if rng.random() < 0.95 else [*INTEGERS, *FLOATS, *TEXTS, *PATHS])
