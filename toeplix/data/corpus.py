"""The embedded corpus: the documentation included in every CPython, more than 2 MB of English.

It has one document per topic of `help()` and one per module of the standard library, with its docstrings
in source order, each under the name that it documents. Modules are parsed, never imported. The text is
that of the running Python, so another version gives another corpus.
"""

import ast
import json
import os
import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from toeplix.files import replace_file

MIN_CHARACTERS = 400  # of a document; shorter ones are left out
EXCLUDED_DIRECTORIES = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idle_test",
    "__pycache__",
}
VERSION = 1  # of the rules in this file; part of the name of the cached file

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def python_corpus() -> Path:
    """Return a file of JSON lines with `name` and `text`, made on the first call in `$TOEPLIX_CACHE`."""
    made_by = f"{platform.python_implementation()}-{platform.python_version()}".lower()
    file = cache_directory() / f"python-{made_by}-{VERSION}.jsonl"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        pairs = [*topics(), *modules(Path(sysconfig.get_path("stdlib")))]
        lines = [json.dumps({"name": name, "text": text}) + "\n" for name, text in pairs]
        replace_file(file, lambda aside: aside.write_text("".join(lines), encoding="utf-8"))
    return file


def cache_directory() -> Path:
    return Path(os.environ.get("TOEPLIX_CACHE") or Path.home() / ".cache" / "toeplix")


def topics() -> Iterator[tuple[str, str]]:
    """Yield name and text of each topic of `help("topics")`; some distributions have none."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return
    for name, text in sorted(topics.items()):
        if len(text) >= MIN_CHARACTERS:
            yield f"topic {name}", text.strip() + "\n"


def modules(root: Path) -> Iterator[tuple[str, str]]:
    """Yield name and docstrings of every module below `root`, sorted by name."""
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        if EXCLUDED_DIRECTORIES & set(parts):
            continue
        try:
            tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):  # a template, or a sample of invalid code
            continue
        name = ".".join(part for part in parts if part != "__init__")
        text = "\n\n".join([name, *_docstrings(tree, "")]) + "\n"
        if len(text) >= MIN_CHARACTERS:
            yield name, text


def _docstrings(node: Documented, name: str) -> Iterator[str]:
    if text := ast.get_docstring(node):
        yield f"{name}\n\n{text}" if name else text
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstrings(child, f"{name}.{child.name}".lstrip("."))
