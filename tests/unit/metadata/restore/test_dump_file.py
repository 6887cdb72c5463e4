"""A dump that is not complete, or was changed, is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.errors import DumpFormatError
from metadata.restore.dump_contents import DumpedNode
from metadata.restore.dump_file import DumpReader, DumpWriter

NODES = [DumpedNode("/instance", b"\x00\xff", 0), DumpedNode("/ledgers/0000", b"", 3)]


def lines_of(nodes: list[DumpedNode]) -> list[bytes]:
    writer = DumpWriter()
    lines = [writer.head(5, "0.9.0"), *(writer.node(node, {"kind": "x"}) for node in nodes)]
    return [f"{line}\n".encode() for line in (*lines, writer.end())]


def test_nodes_round_trip() -> None:
    reader = DumpReader("file", lines_of(NODES))
    assert list(reader.nodes()) == NODES
    assert (reader.taken_ms, reader.node_count, len(reader.digest)) == (5, 2, 32)


@pytest.mark.parametrize("kept", range(4))
def test_a_dump_without_its_end_is_refused(kept: int) -> None:
    with pytest.raises(DumpFormatError, match="it has no end"):
        list(DumpReader("file", lines_of(NODES)[:kept]).nodes())


def test_a_changed_or_missing_line_is_refused() -> None:
    lines = lines_of(NODES)
    changed = [lines[0], lines[1].replace(b'"version": 0', b'"version": 1'), *lines[2:]]
    for wrong, why in (
        (changed, "checksum"),
        ([lines[0], *lines[2:]], "1 nodes instead of 2"),
        ([*lines, lines[1]], "behind its end"),
        (lines[1:], "not the head"),
    ):
        with pytest.raises(DumpFormatError, match=why):
            list(DumpReader("file", wrong).nodes())


@pytest.mark.parametrize(
    ("field", "value"),
    [("path", "a"), ("path", "/a//b"), ("path", "/../a"), ("value", "!"), ("version", -1)],
)
def test_a_field_that_is_not_valid_is_refused(field: str, value: object) -> None:
    lines = lines_of(NODES)
    lines[1] = json.dumps(json.loads(lines[1]) | {field: value}).encode() + b"\n"
    with pytest.raises(DumpFormatError, match="line 2"):
        list(DumpReader("file", lines).nodes())


def test_a_newer_format_is_refused() -> None:
    lines = lines_of(NODES)
    lines[0] = lines[0].replace(b'"format": 1', b'"format": 2')
    with pytest.raises(DumpFormatError, match="this release reads 1"):
        list(DumpReader("file", lines).nodes())


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_any_bytes_are_refused(lines: list[bytes]) -> None:
    with pytest.raises(DumpFormatError):
        list(DumpReader("file", lines).nodes())
