"""Payloads as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.console.entries import SHOWN_BYTES_MAX, Form, form_of, shown


def test_text() -> None:
    assert shown("grün\n".encode(), Form.TEXT).text == "grün\n"
    assert shown(b"\xff\x00", Form.TEXT).text == "\\xff\\x00"
    assert shown("a\u202eb".encode(), Form.TEXT).text == "a\\u202eb"


def test_json_is_indented_and_anything_else_is_text() -> None:
    found = shown(b'{"a": [1]}', Form.JSON)
    assert (found.form, found.text) == (Form.JSON, '{\n  "a": [\n    1\n  ]\n}')
    for odd in (b"{", b"[" * 4_000, b"\xff", b"[[" * 1_000 + b"]]" * 1_000):
        assert shown(odd, Form.JSON).form is Form.TEXT


def test_hex() -> None:
    lines = shown(b"0123456789abcdef\x00", Form.HEX).text.split("\n")
    assert lines[0].startswith("00000000  30 31 32")
    assert lines[0].endswith(" 0123456789abcdef")
    assert lines[1].startswith("00000010  00")


@pytest.mark.parametrize("form", list(Form))
def test_a_long_payload_is_cut_and_that_is_said(form: Form) -> None:
    found = shown(b"x" * (SHOWN_BYTES_MAX + 1), form)
    assert found.is_cut
    assert (found.shown_bytes, found.length) == (SHOWN_BYTES_MAX, SHOWN_BYTES_MAX + 1)
    assert not shown(b"x" * SHOWN_BYTES_MAX, form).is_cut


@given(st.binary(max_size=200), st.sampled_from(Form))
def test_any_bytes_are_printable(payload: bytes, form: Form) -> None:
    text = shown(payload, form).text
    assert all(each.isprintable() or each in "\n\t" for each in text)


def test_names_of_forms() -> None:
    assert [form_of(name) for name in ("hex", "json", None, "<b>")] == [
        Form.HEX,
        Form.JSON,
        Form.TEXT,
        Form.TEXT,
    ]
