"""Hosts, origins and paths that a console takes."""

import pytest

from quire.console.access import (
    HEADERS,
    host_name,
    is_base_path,
    is_known_host,
    is_own_origin,
    is_own_path,
)


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("127.0.0.1:8000", "127.0.0.1"),
        ("LocalHost", "localhost"),
        ("[::1]:8000", "::1"),
        ("a.example:x", None),
        ("user@a.example", None),
        ("a.example/path", None),
        ("", None),
    ],
)
def test_the_name_in_a_host_header(header: str, name: str | None) -> None:
    assert host_name(header) == name


@pytest.mark.parametrize(
    ("header", "known"),
    [
        ("127.0.0.1:1", True),
        ("localhost:1", True),
        ("[::1]", True),
        ("10.0.0.7:1", True),
        ("console.example", True),
        ("CONSOLE.example:443", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("console.example.evil", False),
        ("", False),
    ],
)
def test_a_name_that_is_not_the_consoles_is_refused(header: str, known: bool) -> None:
    assert is_known_host(header, "10.0.0.7", ("console.example",)) is known


@pytest.mark.parametrize(
    ("origin", "own"),
    [
        (None, True),
        ("http://127.0.0.1:8000", True),
        ("https://127.0.0.1:8000", True),
        ("http://127.0.0.1:8001", False),
        ("http://evil.example", False),
        ("null", False),
        ("http://[", False),
    ],
)
def test_the_origin_of_a_form(origin: str | None, own: bool) -> None:
    assert is_own_origin(origin, "127.0.0.1:8000") is own


def test_browsers_send_the_origin_of_a_form() -> None:
    """With the policy `no-referrer` they send `Origin: null`, which is refused."""
    assert HEADERS["Referrer-Policy"] == "same-origin"


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/ledgers?from=7", True),
        ("", False),
        ("//evil.example", False),
        ("/\\evil.example", False),
        ("https://evil.example", False),
        ("/a\r\nSet-Cookie: b", False),
    ],
)
def test_a_login_leads_to_pages_of_the_console_alone(path: str, own: bool) -> None:
    assert is_own_path(path) is own


@pytest.mark.parametrize(
    ("path", "is_one"),
    [("", True), ("/quire", True), ("/a/b-c", True), ("quire", False), ("/quire/", False)],
)
def test_base_paths(path: str, is_one: bool) -> None:
    assert is_base_path(path) is is_one
