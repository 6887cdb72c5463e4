"""Links between documents lead somewhere, and the index of the documentation names every page.

Leaves what documents say of the code to `tests/unit/quire/test_documents.py`.
"""

import re
from pathlib import Path, PurePosixPath

import pytest

from tests.guide import ONE_TEST
from tests.tidy.test_tidy import MODULES, ROOT, TRACKED

DOCUMENTS = [path for path in TRACKED if path.endswith(".md")]
INDEX = "docs/index.md"
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
DEFINED = re.compile(r"def (test_\w+)")
NAMED_TEST = re.compile(r"`(test_\w+)`")
NAMED_FILE = re.compile(
    r"`((?:metadata|bookie|ledger_client|broker_layer|spark_io|quire|tests|docs)/[\w./-]*)`"
)
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
TEST_NAMES = frozenset(
    name
    for path, source in MODULES.items()
    if path.startswith("tests/")
    for name in (PurePosixPath(path).stem, *DEFINED.findall(source.text))
)


def prose(path: str) -> str:
    """Return a document without its code."""
    return FENCED.sub("", (ROOT / path).read_text())


def links(text: str) -> list[tuple[str, str]]:
    """Return (file, anchor) of every link to another document or to a place in this one."""
    return LINK.findall(CODE.sub("", text))


def anchors(text: str) -> list[str]:
    """Return the anchors that a renderer gives to the headings of a document."""
    return [
        re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower())
        for heading in HEADING.findall(text)
    ]


def target(path: str, link: str) -> Path:
    """Return the file that a link of a document leads to."""
    return (ROOT / path).parent / link if link else ROOT / path


@pytest.mark.parametrize("path", DOCUMENTS)
def test_every_link_leads_somewhere(path: str) -> None:
    broken = []
    for link, anchor in links(prose(path)):
        file = target(path, link)
        if not file.exists():
            broken.append(link)
        elif anchor and file.suffix == ".md":
            found = anchors(prose(str(file.resolve().relative_to(ROOT.resolve()))))
            if anchor not in found:
                broken.append(f"{link}#{anchor}")
    assert broken == []


@pytest.mark.parametrize("path", DOCUMENTS)
def test_every_named_file_and_test_exists(path: str) -> None:
    text = (ROOT / path).read_text()
    assert [name for name in NAMED_FILE.findall(text) if not (ROOT / name).exists()] == []
    named = NAMED_TEST.findall(text)
    assert [name for name in named if name not in TEST_NAMES] == [], "renamed? change the document"


def test_the_index_links_every_page() -> None:
    listed = {(ROOT / "docs" / link).resolve() for link, _ in links(prose(INDEX)) if link}
    pages = [path for path in DOCUMENTS if path.startswith("docs/") and path != INDEX]
    assert [path for path in pages if (ROOT / path).resolve() not in listed] == []


def test_the_site_has_every_page() -> None:
    site = (ROOT / "mkdocs.yml").read_text()
    pages = [path.removeprefix("docs/") for path in DOCUMENTS if path.startswith("docs/")]
    assert [page for page in pages if page not in site] == []


def test_links_and_anchors_are_read() -> None:
    text = (
        "# Two words, `code`\n[a](b.md#c) `[x](y)` [here](#two-words-code) [web](https://e.org)\n"
    )
    assert links(text) == [("b.md", "c"), ("", "two-words-code")]
    assert anchors(text) == ["two-words-code"]


def test_the_files_that_a_run_of_tests_names_exist() -> None:
    named = re.findall(r"tests/\S+\.py", ONE_TEST)
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []
