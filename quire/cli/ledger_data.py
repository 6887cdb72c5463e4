"""`quire ledger append|read|tail|export|import`: entries between pipes, files and ledgers.

Format: a line is an entry without its newline; with -o json an entry is one line, `{"entry_id": 5,
"data": "text"}`, or `"data_base64"` if it is not UTF-8.

Invariant: of the standard input, at most one line, of at most LINE_BYTES_MAX, and one chunk are
held.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from ledger_client import (
    AS_STORED,
    EntryBatch,
    LedgerClient,
    LedgerError,
    LedgerInfo,
    LedgerState,
    Quorum,
)
from metadata.ids import LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import QuorumSpec
from metadata.ledgers.payload_encryption import Cipher, PayloadEncryption
from quire.cli.command_line import metadata_address
from quire.cli.ledger import creation_of, encryption_of, password_of
from quire.cli.output import Output
from quire.cli.progress import Progress
from quire.errors import DamagedFileError, ExitCode, UsageError
from quire.operate.as_json import data_as_json
from quire.operate.fields import Row
from quire.operate.ledger_file import (
    BLOCK_ENTRIES_MAX,
    EncryptionHeader,
    FileHeader,
    InSyncHeader,
    LedgerFileReader,
    LedgerFileWriter,
)

if TYPE_CHECKING:
    from ledger_client import LedgerWriter


async def append(arguments: argparse.Namespace, output: Output) -> int:
    """Append the standard input to a ledger, then close the ledger."""
    from quire.operate.appends import PipelinedAppend

    descriptor, size = sys.stdin.fileno(), arguments.chunk_bytes
    entries = read_lines(descriptor) if size is None else read_blocks(descriptor, size)
    opened: LedgerWriter | None = None
    try:
        async with _writer(arguments) as ledger:
            opened = ledger
            if output.remarks_to_person:
                output.remark(f"appending to ledger {ledger.id}")
            with Progress(output, "appended", "entries") as progress:
                async with PipelinedAppend(ledger, progress.advance) as pipeline:
                    async for group in entries:
                        await pipeline.add(group)
    except BaseException:  # an interruption too
        if opened is not None:
            output.remark(_kept(opened))
        raise
    info = ledger.info
    row: Row = {
        "ledger_id": info.id,
        "state": str(info.state),
        "last_entry_id": info.last_entry_id,
        "length": info.length,
    }
    if output.as_json:
        output.record(row)
    else:
        output.line(str(info.id))
        output.remark(f"ledger {info.id}: {progress.done} entries, closed")
    return ExitCode.DONE


def _kept(ledger: "LedgerWriter") -> str:
    """Return what a ledger has after an append that did not end."""
    safe = f"ledger {ledger.id} has the first {ledger.last_confirmed + 1} entries of the input"
    if ledger.info.state == LedgerState.CLOSED:
        return f"{safe}, and is closed"
    return f"{safe}, perhaps more; close it: quire ledger recover {ledger.id} --yes"


@asynccontextmanager
async def _writer(arguments: argparse.Namespace) -> AsyncIterator["LedgerWriter"]:
    """Open a new ledger, or one that was created and has no writer yet."""
    from quire.operate.appends import ONE_LEDGER, claimed_writer

    address, creation = metadata_address(arguments), creation_of(arguments)
    if arguments.ledger is not None:
        ledger_id, keys = LedgerId(arguments.ledger), encryption_of(arguments)
        async with claimed_writer(address, ledger_id, creation.password, keys) as ledger:
            yield ledger
        return
    async with (
        LedgerClient(address, config=ONE_LEDGER) as client,
        creation.create_with(client) as ledger,
    ):
        yield ledger


async def read(arguments: argparse.Namespace, output: Output) -> int:
    """Print the entries of a range, up to the last confirmed one."""
    password, keys = password_of(arguments), encryption_of(arguments)
    async with (
        LedgerClient(metadata_address(arguments)) as client,
        client.open_ledger(arguments.ledger, password=password, encryption=keys) as reader,
    ):
        last = arguments.last
        if last is None:
            last = await reader.refresh_last_confirmed()
        if arguments.first > last:
            return ExitCode.DONE
        total = last - arguments.first + 1
        await _print(reader.read(arguments.first, last), arguments, output, total)
    return ExitCode.DONE


async def tail(arguments: argparse.Namespace, output: Output) -> int:
    """Print entries as they are confirmed, until the ledger is closed and read to its end."""
    password, keys = password_of(arguments), encryption_of(arguments)
    async with (
        LedgerClient(metadata_address(arguments)) as client,
        client.open_ledger(arguments.ledger, password=password, encryption=keys) as reader,
    ):
        start = arguments.first
        if start is None:
            start = max(0, await reader.refresh_last_confirmed() + 1 - arguments.lines)
        await _print(reader.tail(start=start), arguments, output, None)
    return ExitCode.DONE


async def _print(
    batches: AsyncIterator[EntryBatch],
    arguments: argparse.Namespace,
    output: Output,
    total: int | None,
) -> None:
    # A moving line would fall between the entries when both go to one terminal.
    quiet = total is None or sys.stdout.isatty() or not output.remarks_to_person
    progress = None if quiet else Progress(output, "read", "entries", total)
    try:
        async for batch in batches:
            if output.as_json:
                text = _json_lines(batch)
            else:
                line = bytes if arguments.raw else output.data_line
                text = b"".join(line(entry.data) for entry in batch)
            sys.stdout.buffer.write(text)
            if total is None:
                sys.stdout.buffer.flush()  # a reader that follows needs each entry at once
            if progress is not None:
                progress.advance(len(batch))
    finally:
        if progress is not None:
            progress.end()
    sys.stdout.buffer.flush()


def _json_lines(batch: EntryBatch) -> bytes:
    rows = ({"entry_id": entry.id} | data_as_json("data", entry.data) for entry in batch)
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


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


PIPE: Final = "-"


async def export(arguments: argparse.Namespace, output: Output) -> int:
    """Write a ledger, up to its last confirmed entry, to a file that appears only once it is
    complete.
    """
    password = password_of(arguments)
    async with (
        LedgerClient(metadata_address(arguments)) as client,
        client.open_ledger(arguments.ledger, password=password, encryption=AS_STORED) as reader,
    ):
        info = reader.info
        last = await reader.refresh_last_confirmed()
        with _file_to_write(arguments.file) as stream:
            writer = LedgerFileWriter(stream, _header(info))
            with Progress(output, "exported", "entries", last + 1) as progress:
                if last >= 0:
                    async for batch in reader.read(0, last):
                        payloads = [entry.data for entry in batch]
                        for start in range(0, len(payloads), BLOCK_ENTRIES_MAX):
                            writer.add(payloads[start : start + BLOCK_ENTRIES_MAX])
                        progress.advance(len(payloads))
                writer.end()
    row = {
        "ledger_id": info.ledger_id,
        "state": str(info.state),
        "entry_count": writer.entry_count,
        "length": writer.payload_bytes,
        "file": arguments.file,
    }
    if arguments.file != PIPE:
        output.record(row)
    return ExitCode.DONE


async def import_file(arguments: argparse.Namespace, output: Output) -> int:
    """Append a file's entries to a new ledger; delete the ledger again if the file is damaged. The
    ciphertext of an encrypted ledger is appended as it is.
    """
    from quire.operate.appends import ONE_LEDGER, PipelinedAppend

    with _file_to_read(arguments.file) as stream:
        source = LedgerFileReader(stream)
        header = source.header
        creation = creation_of(arguments, _quorum_of(header))
        custom = {**header.custom_metadata, **creation.custom_metadata}
        creation = replace(creation, custom_metadata=custom, encryption=_encryption_of(header))
        address = metadata_address(arguments)
        async with LedgerClient(address, config=ONE_LEDGER) as client:
            ledger = await creation.create_with(client)
            progress = Progress(output, "imported", "entries")
            try:
                async with PipelinedAppend(ledger, progress.advance) as pipeline:
                    for payloads in source.blocks():
                        await pipeline.add(payloads)
            except DamagedFileError as error:
                await ledger.aclose()
                await client.delete_ledger(ledger.id)
                raise DamagedFileError(
                    f"{error}; the incomplete ledger {ledger.id} was deleted"
                ) from error
            finally:
                progress.end()
                await ledger.aclose()
    output.record(
        {
            "ledger_id": ledger.id,
            "entry_count": source.entry_count,
            "length": source.payload_bytes,
            "exported_ledger_id": header.ledger_id,
        }
    )
    return ExitCode.DONE


def _header(info: LedgerInfo) -> FileHeader:
    return FileHeader(
        ledger_id=info.ledger_id,
        state=str(info.state),
        ensemble_size=info.quorum.ensemble_size,
        write_quorum=info.quorum.write_quorum,
        ack_quorum=info.quorum.ack_quorum,
        digest=str(info.digest),
        custom_metadata=dict(info.metadata),
        in_sync=_in_sync_of(info.quorum),
        encryption=_encryption_header(info.encryption),
    )


def _in_sync_of(quorum: QuorumSpec) -> InSyncHeader | None:
    if not quorum.is_in_sync:
        return None
    return {
        "min_in_sync": quorum.min_in_sync,
        "replica_lag_time_max_ms": quorum.replica_lag_time_max_ms,
    }


def _encryption_header(encryption: PayloadEncryption | None) -> EncryptionHeader | None:
    if encryption is None:
        return None
    return {
        "cipher": str(encryption.cipher),
        "key_id": encryption.key_id,
        "key_token": encryption.key_token,
        "key_check": encryption.key_check,
    }


def _encryption_of(header: FileHeader) -> PayloadEncryption | None:
    """Return how the exported payloads are encrypted. Raises DamagedFileError."""
    encryption = header.encryption
    if encryption is None:
        return None
    try:
        return PayloadEncryption(
            cipher=Cipher(encryption["cipher"]),
            key_id=encryption["key_id"],
            key_token=UpdateToken(encryption["key_token"]),
            key_check=encryption["key_check"],
        )
    except ValueError as error:
        raise DamagedFileError(f"the header's encryption is not valid: {error}") from error


def _quorum_of(header: FileHeader) -> Quorum:
    """Return the quorum of the exported ledger. Raises DamagedFileError if it is not valid."""
    try:
        if header.in_sync is None:
            return Quorum(header.ensemble_size, header.write_quorum, header.ack_quorum)
        lag_s = header.in_sync["replica_lag_time_max_ms"] / 1000
        least = header.in_sync["min_in_sync"]
        return Quorum.in_sync(header.ensemble_size, least, replica_lag_time_max=lag_s)
    except ValueError as error:
        raise DamagedFileError(f"the header's quorum is not valid: {error}") from error


@contextlib.contextmanager
def _file_to_write(name: str) -> Iterator[BinaryIO]:
    if name == PIPE:
        if sys.stdout.isatty():
            raise UsageError(
                "a ledger's file cannot be written to a terminal: name a file, or use a pipe"
            )
        yield sys.stdout.buffer
        return
    target = Path(name)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(target)
    except LedgerError:  # an error of the ledger: its timeouts are OSErrors too
        raise
    except OSError as error:
        raise UsageError(
            f"{name} cannot be written: {error}", try_next="name a file in another directory"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _file_to_read(name: str) -> Iterator[BinaryIO]:
    if name == PIPE:
        yield sys.stdin.buffer
        return
    if not Path(name).is_file():
        raise UsageError(
            f"{name} is not a file that can be read", try_next="name a file of quire ledger export"
        )
    with Path(name).open("rb") as stream:
        yield stream
