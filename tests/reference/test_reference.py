"""Every page of docs/reference/ and docs/man/ is what the code says now."""

import shutil
import subprocess

import pytest

from quire.cli.main import NOUNS
from tests.reference.man_pages import man_pages
from tests.reference.pages import DIRECTORY, MAN_DIRECTORY, PAGES
from tests.reference.python_api import CONSTRUCTED


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_code_says(name: str) -> None:
    assert (DIRECTORY / name).read_text() == PAGES[name](), "run `make docs` and commit the page"


def test_nothing_else_is_there() -> None:
    assert sorted(path.name for path in DIRECTORY.iterdir()) == sorted(PAGES)


def test_every_option_has_a_meaning() -> None:
    rows = [line for line in PAGES["options.md"]().splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.endswith("|  |")] == []


def test_what_programs_construct_has_its_arguments() -> None:
    page = PAGES["python-api.md"]()
    for each in CONSTRUCTED:
        assert f"| `{each}(" in page
    assert "on_event: EventCallback" in page
    assert "bookies: int" in page


def test_the_manual_pages_are_what_the_code_says() -> None:
    kept = {path.name: path.read_text() for path in MAN_DIRECTORY.iterdir()}
    assert kept == man_pages(), "run `make docs` and commit the pages"
    assert kept.keys() == {"quire.1", *(f"quire-{noun}.1" for noun in NOUNS)}


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_has_no_warning_about_a_manual_page() -> None:
    pages = sorted(map(str, MAN_DIRECTORY.iterdir()))
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-rLL=100n", *pages], capture_output=True, check=True
    )
    assert done.stderr == b""
    assert b"QUIRE-LEDGER(1)" in done.stdout
