"""Numbers that a request asks for."""

import pytest
from aiohttp import web

from quire.console.templating import asked_number


@pytest.mark.parametrize("fields", [{}, {"minutes": ""}, {"minutes": "  "}])
def test_a_number_that_is_not_there_is_the_default(fields: dict[str, str]) -> None:
    assert asked_number(fields, "minutes", 60, 1_000) == 60


def test_a_number_has_a_maximum() -> None:
    assert asked_number({"minutes": " 7 "}, "minutes", 60, 1_000) == 7
    assert asked_number({"minutes": "99999"}, "minutes", 60, 1_000) == 1_000


@pytest.mark.parametrize("text", ["abc", "-5", "1.5", "٣", "0x10", "9" * 20])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(web.HTTPBadRequest) as refused:
        asked_number({"minutes": text}, "minutes", 60, 1_000)
    assert refused.value.text == "minutes must be a whole number from 0 to 1000"
