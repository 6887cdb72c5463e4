"""Input from pipes and files is split into the same entries, however it arrives."""

import asyncio
import os
from pathlib import Path

import pytest

from quire.cli import ledger_data as standard_input
from quire.cli.ledger_data import read_blocks, read_lines
from quire.errors import UsageError


async def lines_of(*parts: bytes) -> list[bytes]:
    """Return the lines read from a pipe into which the parts are written one after the other."""
    reading, writing = os.pipe()

    async def write() -> None:
        for part in parts:
            os.write(writing, part)
            await asyncio.sleep(0)
        os.close(writing)

    writer = asyncio.create_task(write())
    try:
        return [line async for lines in read_lines(reading) for line in lines]
    finally:
        await writer
        os.close(reading)


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        ((), []),
        ((b"a\nb\n",), [b"a", b"b"]),
        ((b"a\nb",), [b"a", b"b"]),
        ((b"a", b"b\n\n", b"c"), [b"ab", b"", b"c"]),
    ],
)
async def test_lines_of_a_pipe(parts: tuple[bytes, ...], lines: list[bytes]) -> None:
    assert await lines_of(*parts) == lines


async def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_input, "LINE_BYTES_MAX", 10)
    with pytest.raises(UsageError, match="longer than 10 bytes"):
        await lines_of(b"x" * 11)


async def test_blocks_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        blocks = [block async for some in read_blocks(file.fileno(), 4) for block in some]
    assert blocks == [b"0123", b"4567", b"89"]


async def test_input_that_cannot_be_polled_is_read() -> None:
    with Path(os.devnull).open("rb") as file:
        assert [lines async for lines in read_lines(file.fileno())] == []
