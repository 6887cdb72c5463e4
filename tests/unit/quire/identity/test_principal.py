"""Principals as text."""

import pytest

from quire.identity.principal import ANONYMOUS, Principal, parse_principal


@pytest.mark.parametrize("text", ["User:alice", "User:CN=a,O=b:c", "User:ANONYMOUS"])
def test_a_principal_is_written_as_it_was_read(text: str) -> None:
    assert parse_principal(text).text == text


def test_parts_of_a_principal() -> None:
    assert parse_principal("User:a:b") == Principal("a:b")
    assert ANONYMOUS.text == "User:ANONYMOUS"


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice", ":"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write User:NAME"):
        parse_principal(text)
