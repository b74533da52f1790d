"""Hooks of MkDocs: files of the repository that lie outside of docs/ become pages of the site.

    README.md, CONTRIBUTING.md, CHANGELOG.md    index.md, contributing.md, changelog.md
    figures/                                    figures/
    other files that a page links               the same file in the repository on the web

The documents link each other by paths in the repository, so that they can be read there too; links are
rewritten when a page is built.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"(\]\()(?!https?:|#)([^)#\s]+)([^)]*\))")


def on_files(files: Files, config: Any) -> Files:
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=rewritten(text, source, page, config)))
    for figure in sorted((ROOT / "figures").glob("*.svg")):
        files.append(File.generated(config, f"figures/{figure.name}", abs_src_path=str(figure)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    uri = page.file.src_uri
    if uri in PAGES.values():
        return markdown  # rewritten already
    return rewritten(markdown, f"docs/{uri}", uri, config)


def rewritten(text: str, source: str, page: str, config: Any) -> str:
    """Return the text of `source`, a path in the repository, with links that are right on `page`."""

    def link(found: re.Match[str]) -> str:
        start, target, end = found.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path in PAGES:
            place = PAGES[path]
        elif path.startswith("docs/"):
            place = path.removeprefix("docs/")
        elif path.startswith("figures/"):
            place = path
        else:
            return f"{start}{config['repo_url']}/blob/main/{path}{end}"
        return f"{start}{posixpath.relpath(place, posixpath.dirname(page) or '.')}{end}"

    return LINK.sub(link, text)
