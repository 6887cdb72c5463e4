"""Reads the standard input without blocking the event loop, and splits it into entries.

Leaves the use of the entries to the verbs.

Invariant: at most one line, of at most LINE_BYTES_MAX, and one chunk are held.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Final

from quire.errors import UsageError

CHUNK_BYTES: Final = 256 * 1024
LINE_BYTES_MAX: Final = 8 * 1024 * 1024


async def read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Yield each chunk as it arrives, until the input ends.

    The descriptor stays blocking: a terminal shares that setting with the standard output.
    """
    while chunk := await _read_chunk(descriptor):
        yield chunk


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Yield the lines of each chunk without their newlines; the last line may lack its newline."""
    rest = b""
    async for chunk in read_chunks(descriptor):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
        if len(rest) > LINE_BYTES_MAX:
            raise UsageError(
                f"a line is longer than {LINE_BYTES_MAX} bytes, the limit of an entry",
                try_next="--chunk-bytes 1048576, which splits the input by size, not by lines",
            )
    if rest:
        yield [rest]


async def read_blocks(descriptor: int, size: int) -> AsyncIterator[list[bytes]]:
    """Yield the blocks of `size` bytes of each chunk; the last block may be shorter."""
    rest = bytearray()
    async for chunk in read_chunks(descriptor):
        rest += chunk
        whole = len(rest) - len(rest) % size
        if whole:
            yield [bytes(rest[start : start + size]) for start in range(0, whole, size)]
            del rest[:whole]
    if rest:
        yield [bytes(rest)]


async def _read_chunk(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(descriptor, _mark, readable)
    except PermissionError:  # a regular file: reading it never waits
        await asyncio.sleep(0)
        return os.read(descriptor, CHUNK_BYTES)
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, CHUNK_BYTES)


def _mark(readable: "asyncio.Future[None]") -> None:
    if not readable.done():
        readable.set_result(None)
