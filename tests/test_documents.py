"""Documents are true: the map of modules, and every command, option, link and number that they name."""

import json
import re
import shlex
from collections import Counter
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import typer
import yaml

from toeplix.cli.main import app
from toeplix.experiments.engine.claims import KINDS
from toeplix.experiments.engine.claims_document import NOT_YET

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
COMMAND = typer.main.get_command(app)
# in inline code: options of torchrun, tests.fuzz, pip and examples/ray_serve.py
FOREIGN = {"--max-restarts", "--replay", "--extra-index-url", "--gpus"}


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
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links {target}"


def shell_lines(document):
    """Commands of the `sh` blocks, without comments."""
    for block in re.findall(r"```sh\n(.*?)```", document.read_text(), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield words[: words.index("<")] if "<" in words else words


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


def fences(document):
    """Language and content of every fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_no_block_escapes(document):
    """Python blocks are executed, shell blocks read; what is in neither holds no code."""
    for language, block in fences(document):
        assert language in ("python", "sh", "bibtex", ""), f"{document.name}: ```{language}"
        if language not in ("python", "sh"):
            code = re.search(r"^(toeplix|pip|make|python|import|from) ", block, re.MULTILINE)
            assert not code, f"{document.name}: {code[0]}... in a block without a language"


def known(words):
    """Whether a shell command that is not toeplix's exists as it is written."""
    while re.match(r"\w+=", words[0]):
        assert words[0].startswith("TOEPLIX_"), words
        words = words[1:]
    match words:
        case ["make", *targets]:
            return set(targets) <= TARGETS
        case ["pip", "install", *what]:
            extras = re.findall(r"(?:toeplix|\.)\[([\w,]+)\]", " ".join(what))
            named = {name for several in extras for name in several.split(",")}
            return named <= set(PROJECT["optional-dependencies"])
        case ["curl", *rest]:
            (url,) = [each for each in rest if "localhost" in each]
            body = json.loads(rest[rest.index("-d") + 1])
            path = urlsplit(url if "://" in url else f"http://{url}").path
            return path in ("/v1/completions", "/v1/chat/completions") and "model" in body
        case ["python", "-m", module, *_]:
            return module.startswith("toeplix.") and find_spec(f"{module}.__main__") is not None
        case ["python", file, *_]:
            return (ROOT / file).is_file()
        case ["uvicorn", "--factory", target, *_]:
            return find_spec(target.partition(":")[0]) is not None
    return False


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_other_commands_exist(document):
    for words in shell_lines(document):
        if of_toeplix(words) is None:
            assert known(words), f"{document.name}: {shlex.join(words)}"


def test_the_readme_is_short_and_counts_the_verdicts():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    table = (ROOT / "docs" / "experiments.md").read_text()
    words = re.findall(r"^\| \[C\w+\]\(#c\d+\) \|.*?\| \*\*(.*?)\*\*", table, re.MULTILINE)
    count = Counter(words)
    verbs = {"holds": "hold", "fails": "fail", "control not trained": "without a trained control"}
    counted = ", ".join(
        f"{count[kind]} {verbs.get(kind, kind)}" for kind in (*KINDS, NOT_YET) if count[kind]
    )
    assert f"20 claims are tested in {len(words)} parts" in text
    assert f"\n{counted}.\n" in text, f"the README should say: {counted}."


def test_the_site_has_every_page():
    def pages(entry):
        values = entry.values() if isinstance(entry, dict) else entry
        return (
            [entry] if isinstance(entry, str) else [page for each in values for page in pages(each)]
        )

    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    files = {str(file.relative_to(ROOT / "docs")) for file in (ROOT / "docs").rglob("*.md")}
    generated = {"index.md", "contributing.md", "changelog.md"}
    assert sorted(pages(site["nav"])) == sorted(files | generated)
    assert site["repo_url"] == PROJECT["urls"]["Homepage"]
    assert site["site_url"] == PROJECT["urls"]["Documentation"]


def test_the_workflow_runs_our_commands():
    """Continuous integration has no commands of its own."""
    (file,) = (ROOT / ".github" / "workflows").iterdir()
    jobs = yaml.safe_load(file.read_text())["jobs"]
    ran = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert sorted(ran) == [".ci/run", "make dist", "make docs"]
    assert {"dist", "docs"} <= TARGETS
