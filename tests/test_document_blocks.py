"""Code in the documents runs: Python blocks page by page, and shell commands made small, in one place.

Blocks of a page are executed one after the other and share their names, as a reader would try them. Shell
commands that need a network, a server or hours are read by tests/test_documents.py and not run.
"""

import re
import shlex
import shutil

import pytest

from tests.test_documents import COMMAND, DOCUMENTS, ROOT, of_toeplix, shell_lines

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*pin_memory:UserWarning"),  # Trainer without a GPU
    pytest.mark.usefixtures("one_thread"),
]
TINY = "--steps 2 --dim 16 --depth 2 --context 32 --batch 2 --eval-sequences 2 --sample-every 0"
# pages whose commands run, in this order, and what makes a command small
PAGES = (
    "README.md",
    "docs/getting-started.md",
    "docs/tutorials/own-text.md",
    "docs/data.md",
    "docs/tutorials/reproduce-a-figure.md",
    "docs/tutorials/serve-and-evaluate.md",
)
SMALL = {
    ("data", "build", "python"): "--limit 60",
    ("data", "build", "docs"): "",
    ("data", "show"): "",
    ("data", "check"): "",
    ("plan",): "",
    ("train", "laptop"): TINY,
    ("train", "--config"): "",
    ("generate",): "--max-new-tokens 5",
    ("spectrum", "runs/mine"): "",
    ("experiment", "list"): "",
    ("experiment", "run", "complexity", "--scale", "smoke"): "",
    ("experiment", "plot", "complexity", "--scale", "smoke"): "",
    ("page",): "",
    ("quantize",): "",
}
# executed by a test of their own
ELSEWHERE = {
    "docs/adding-a-mixer.md": "tests/test_adding_a_mixer.py",
    "docs/training.md": "tests/training/test_trainer.py",
}


def blocks(document):
    return re.findall(r"^```python\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)


WITH_PYTHON = {str(page.relative_to(ROOT)): page for page in DOCUMENTS if blocks(page)}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory in which the shell commands of all pages have run, each once."""
    folder = tmp_path_factory.mktemp("documents")
    (folder / "docs").mkdir()
    for page in sorted((ROOT / "docs" / "tutorials").glob("*.md")):
        shutil.copy(page, folder / "docs")
    done = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for page in PAGES:
            for words in shell_lines(ROOT / page):
                arguments = of_toeplix(words) or []
                starts = [key for key in SMALL if tuple(arguments[: len(key)]) == key]
                line = [*arguments, *shlex.split(SMALL[starts[0]])] if starts else arguments
                # the same output is not made twice
                if starts and (written := " ".join([*starts[0], *outputs(line)])) not in done:
                    COMMAND.main(line, prog_name="toeplix", standalone_mode=False)
                    done.add(written)
    ran = {key for key in SMALL if any(each.startswith(" ".join(key)) for each in done)}
    assert ran == set(SMALL), "commands that no page has any more"
    return folder


def outputs(arguments):
    """What a command reads and writes: its arguments without a dash, and the value of --out."""
    named = [each for each in arguments[1:3] if not each.startswith("-")]
    return [
        *named,
        *(arguments[arguments.index("--out") + 1 :][:1] if "--out" in arguments else ()),
    ]


@pytest.mark.parametrize("page", sorted(set(WITH_PYTHON) - set(ELSEWHERE)))
def test_python_blocks_run(page, place, monkeypatch, request):
    monkeypatch.chdir(place)
    names = {"__name__": "__main__"}
    if page == "docs/serving.md":
        server = request.getfixturevalue("served")
    for block in blocks(WITH_PYTHON[page]):
        if page == "docs/serving.md":
            block = block.replace("http://localhost:8000", server.url)
        exec(compile(block, page, "exec"), names)
    if page == "CONTRIBUTING.md":
        check_experiment(names)
    if page == "docs/tutorials/trainer.md":
        check_control_tokens(names["tokenizer"], names["theirs"])


def check_control_tokens(tokenizer, model):
    """Texts begin with the start token, as our own tools have it, and `generate()` knows the end."""
    assert tokenizer("7").input_ids[0] == tokenizer.bos_token_id
    assert tokenizer.eos_token_id in model.generation_config.eos_token_id  # a list


@pytest.mark.parametrize("page", ELSEWHERE)
def test_other_pages_have_a_test(page):
    assert page.rpartition("/")[2] in (ROOT / ELSEWHERE[page]).read_text()
    assert page in WITH_PYTHON


@pytest.fixture
def served(place):
    """The model that the pages trained, under the name that they use."""
    from toeplix.serving.limits import Limits
    from toeplix.serving.server import running
    from toeplix.serving.service import open_service

    with running(open_service(place / "runs" / "mine", "mine", Limits())) as server:
        yield server


def check_experiment(names):
    """The example of an experiment has all functions of one, which work without and with rows."""
    from types import SimpleNamespace

    from toeplix.experiments import SCALES, Experiment

    experiment = SimpleNamespace(**names)
    assert isinstance(experiment, Experiment)
    cases = experiment.cases(SCALES["smoke"], [])
    assert {case.model for case in cases} == {"one", "two"}
    assert all(isinstance(case, experiment.Case) for case in cases)
    assert experiment.holds([]) == {}
