"""Every page of docs/reference/ is what the code says now."""

import pytest

from tests.reference.pages import DIRECTORY, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_code_says(name: str) -> None:
    assert (DIRECTORY / name).read_text() == PAGES[name](), "run `make docs` and commit the page"


def test_nothing_else_is_there() -> None:
    assert sorted(path.name for path in DIRECTORY.iterdir()) == sorted(PAGES)
