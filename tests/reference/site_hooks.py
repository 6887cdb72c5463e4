"""Hooks of mkdocs.yml: documents outside of docs/ become pages, and links to them are rewritten.

Leaves everything else to mkdocs, which imports this file by its path.
"""

import posixpath
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = "docs/"
OUTSIDE: Final = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "deploy/README.md": "project/deployment.md",
    "tests/README.md": "project/tests.md",
}
"""Where documents of the repository are on the site."""
LINK: Final = re.compile(r"\[([^\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents that are outside of docs/."""
    for path, uri in OUTSIDE.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at pages of the site; a link to a file that is no page becomes its text."""
    del config, files
    here = page.file.src_uri
    stored = {uri: path for path, uri in OUTSIDE.items()}.get(here, DOCS + here)

    def rewritten(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(stored), target))
        uri = OUTSIDE.get(path, path.removeprefix(DOCS) if path.startswith(DOCS) else None)
        if uri is None or not uri.endswith(".md"):
            return text
        return f"[{text}]({posixpath.relpath(uri, posixpath.dirname(here) or '.')}{anchor})"

    return LINK.sub(rewritten, markdown)
