"""Documents are true: the map of modules, and every command and option that they name."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import typer

from toeplix.cli.main import app

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = typer.main.get_command(app)
FOREIGN = {"--max-restarts", "--replay"}  # in inline code: options of torchrun and of tests.fuzz


def test_the_map_has_every_module_and_nothing_else():
    text = (ROOT / "docs" / "architecture.md").read_text()
    listed = re.findall(r"^- `([\w/]+\.py)`: \S", text, re.MULTILINE)
    packages = re.findall(r"^## ([\w/]+/)$", text, re.MULTILINE)
    files = [file.relative_to(ROOT / "toeplix") for file in (ROOT / "toeplix").rglob("*.py")]
    modules = {str(file) for file in files if file.name != "__init__.py"}
    assert sorted(modules - set(listed)) == [], "modules that docs/architecture.md does not list"
    assert sorted(set(listed) - modules) == [], "lines of docs/architecture.md without a module"
    assert len(listed) == len(set(listed)), "a module is listed twice"
    folders = {f"{file.parent}/" for file in files if file.name == "__init__.py"}
    assert set(packages) == folders - {"./"} | {"toeplix/"}


def test_a_module_is_listed_under_its_package():
    package = ""
    for line in (ROOT / "docs" / "architecture.md").read_text().splitlines():
        if line.startswith("## "):
            package = line.removeprefix("## ").removeprefix("toeplix/")
        if found := re.match(r"- `([\w/]+\.py)`: ", line):
            assert found[1].rpartition("/")[0] == package.rstrip("/"), line


def test_links_lead_somewhere():
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links {target}"


def shell_lines(document):
    """Commands of the `sh` blocks, without comments."""
    for block in re.findall(r"```sh\n(.*?)```", document.read_text(), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield words


def of_toeplix(words):
    """The arguments of `toeplix` in a command line, or None."""
    if words[0] == "toeplix":
        return words[1:]
    for place, pair in enumerate(pairwise(words)):
        if pair == ("-m", "toeplix"):
            return words[place + 2 :]
    return None


def resolved(arguments):
    """The command that the first words name, those words, and the rest."""
    command, names = COMMAND, []
    while arguments and hasattr(command, "commands"):
        if arguments[0] not in command.commands:
            assert arguments[0].startswith("-"), f"there is no command {[*names, arguments[0]]}"
            break
        names.append(arguments[0])
        command, arguments = command.commands[arguments[0]], arguments[1:]
    return command, names, arguments


def options(command):
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {
        "--help"
    }


LINES = [
    pytest.param(arguments, id=f"{document.name}: {shlex.join(arguments)}")
    for document in DOCUMENTS
    for words in shell_lines(document)
    if (arguments := of_toeplix(words)) is not None
]


@pytest.mark.parametrize("arguments", LINES)
def test_commands_in_blocks_are_taken(arguments):
    """Parsed as the command line parses them, and not run."""
    command, names, rest = resolved(arguments)
    if rest[-1:] == ["..."]:
        assert {each.split("=")[0] for each in rest if each.startswith("--")} <= options(command)
    else:
        command.make_context(" ".join(names), list(rest))


def inline(document):
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    return re.findall(r"`([^`]+)`", text)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_commands_in_sentences_exist(document):
    everywhere = FOREIGN | _all_options(COMMAND)
    for code in inline(document):
        words = code.split()
        given = of_toeplix(words)
        if given and re.match(r"[a-z-]", given[0]):
            command, _, rest = resolved(given)
            known = options(command)
        else:
            rest, known = words, everywhere
        for word in rest:
            if re.match(r"--[a-z]", word):
                name = re.match(r"--[\w-]+", word)[0]
                assert name in known, f"{document.name}: `{code}`"


def _all_options(command):
    below = getattr(command, "commands", {}).values()
    return options(command).union(*(_all_options(each) for each in below))


# what makes a command of the README small; those that are not here need a network, a server or long
SMALL = {
    ("data", "build", "python"): ["--limit", "60"],
    ("data", "show"): [],
    ("data", "check"): [],
    ("plan",): [],
    ("train", "laptop"): shlex.split(
        "--steps 2 --dim 16 --depth 1 --context 32 --batch 2 --eval-sequences 2 --sample-every 0"
    ),
    ("train", "--config"): [],
    ("generate",): [],
    ("spectrum", "runs/mine"): [],
}


@pytest.mark.slow
def test_commands_of_the_readme_run(tmp_path, monkeypatch, capsys):
    """One after the other in a new directory, made small."""
    monkeypatch.chdir(tmp_path)
    ran = set()
    for words in shell_lines(ROOT / "README.md"):
        arguments = of_toeplix(words) or []
        for start, added in SMALL.items():
            if tuple(arguments[: len(start)]) == start:
                COMMAND.main([*arguments, *added], prog_name="toeplix", standalone_mode=False)
                assert capsys.readouterr().out, arguments
                ran.add(start)
    assert ran == set(SMALL)
