"""Records are decoded for a page, whatever their bytes are."""

import pytest

from broker_layer.kafka.record_batch import (
    ControlKind,
    Record,
    build_batch,
    build_control_batch,
)
from quire.console.topics.records import (
    BYTES_SHOWN_MAX,
    HEADERS_SHOWN_MAX,
    batches_of,
    first_time_ms,
    next_offset_of,
    row_of,
    shown_data,
)


@pytest.mark.parametrize(
    ("data", "form", "text"),
    [
        (None, "null", "null"),
        (b"", "text", ""),
        (b"plain", "text", "plain"),
        (b'{"a":1e400, "a": 2}', "JSON", '{"a":1e400, "a": 2}'),
        (b"{no", "text", "{no"),
        (b"[" * 4_000, "text", "[" * 4_000),
        ("ü".encode(), "text", "ü"),
        (b"\xff\xfe", "hex", "ff fe"),
        (b"a\0b", "hex", "61 00 62"),
    ],
)
def test_bytes_are_shown_as_what_they_are(data: bytes | None, form: str, text: str) -> None:
    found = shown_data(data)
    assert (found.form, found.text) == (form, text)


def test_long_values_are_cut_within_a_character() -> None:
    data = "ü".encode() * BYTES_SHOWN_MAX
    found = shown_data(b"x" + data)
    assert found.form == "text"
    assert found.is_cut
    assert found.size_bytes == len(data) + 1
    assert shown_data(b"\xff" * 5_000).form == "hex"
    assert shown_data(b"abc", "hex").text == "61 62 63"
    assert shown_data(b"\xff", "text").form == "text"


def test_markers_and_incomplete_batches_are_left_out() -> None:
    batch = bytes(build_batch([Record(5, 1_000, None, b"a"), Record(6, 3_000, None, b"b")]))
    marker = bytearray(build_control_batch(ControlKind.COMMIT, 1, 0, 0, 2_000))
    data = batch + bytes(marker) + batch[:-1]
    assert [[record.offset for record in records] for _, records in batches_of(data)] == [[5, 6]]
    assert next_offset_of(batch) == 7
    assert next_offset_of(batch[:-1]) is None
    assert first_time_ms(batch, 6) == 3_000
    assert first_time_ms(batch, 7) is None
    assert first_time_ms(b"", 0) is None


def test_many_headers_are_counted() -> None:
    headers = tuple((f"h{n}", b"") for n in range(HEADERS_SHOWN_MAX + 3))
    row = row_of(Record(1, 2, None, None, headers), is_transactional=True, form="auto")
    assert (len(row.headers), row.headers_left_out) == (HEADERS_SHOWN_MAX, 3)


def test_characters_that_change_the_direction_of_text_are_escaped() -> None:
    shown = shown_data("a\u202eb\x1b[0m".encode())
    assert shown.text == "a\\u202eb\\x1b[0m"
