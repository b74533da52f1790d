"""The embedded corpus: the documentation that every CPython carries, more than 2 MB of English.

One document a topic of `help()`, then one a module of the standard library: its docstrings in the
order of the source, each under the name it explains. Modules are parsed, never imported. The text
is that of the running Python, so another version gives another corpus.
"""

import ast
import json
import os
import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from toeplix.files import replace_file

LEAST = 400  # characters of a document: shorter ones teach little
APART = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
VERSION = 1  # of the rules in this file

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def python_corpus() -> Path:
    """A file of JSON lines, `name` and `text`; made on the first call, in `$TOEPLIX_CACHE`."""
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
    """Name and text of what `help("topics")` lists; nothing where a distribution left it out."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return
    for name, text in sorted(topics.items()):
        if len(text) >= LEAST:
            yield f"topic {name}", text.strip() + "\n"


def modules(root: Path) -> Iterator[tuple[str, str]]:
    """Name and docstrings of every module below `root`, in the order of their names."""
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        if APART & set(parts):
            continue
        try:
            tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):  # a template, or a sample of what does not parse
            continue
        name = ".".join(part for part in parts if part != "__init__")
        text = "\n\n".join([name, *_docstrings(tree, "")]) + "\n"
        if len(text) >= LEAST:
            yield name, text


def _docstrings(node: Documented, name: str) -> Iterator[str]:
    if text := ast.get_docstring(node):
        yield f"{name}\n\n{text}" if name else text
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstrings(child, f"{name}.{child.name}".lstrip("."))
