"""What the documents name exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "docs/operating.md")
NAMED = re.compile(r"`((?:metadata|bookie|ledger_client|quire|tests|docs)/[\w./-]*)`")
LINKED = re.compile(r"\]\((?!http)([^)#]+)\)")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_named_file_exists(document: str) -> None:
    text = (ROOT / document).read_text()
    named = [*NAMED.findall(text), *[_beside(document, link) for link in LINKED.findall(text)]]
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_stories_name_most_of_the_code() -> None:
    named = NAMED.findall((ROOT / "ARCHITECTURE.md").read_text())
    assert len(set(named)) > 50


def _beside(document: str, link: str) -> str:
    return str((Path(document).parent / link).as_posix())
