"""`quire ledger export|import`: copy of a ledger to a file, and of a file to a new ledger.

Leaves the file's bytes to `quire.operate.ledger_file`.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

from ledger_client import AS_STORED, LedgerClient, LedgerError, LedgerInfo, Quorum
from metadata.ids import UpdateToken
from metadata.ledgers.ledger_metadata import QuorumSpec
from metadata.ledgers.payload_encryption import Cipher, PayloadEncryption
from quire.cli.command_line import metadata_address
from quire.cli.ledger.ledger_options import creation_of, password_of
from quire.cli.output import Output
from quire.cli.progress import Progress
from quire.errors import DamagedFileError, ExitCode, UsageError
from quire.operate.claims import ONE_LEDGER
from quire.operate.ledger_file import (
    BLOCK_ENTRIES_MAX,
    EncryptionHeader,
    FileHeader,
    InSyncHeader,
    LedgerFileReader,
    LedgerFileWriter,
)
from quire.operate.pipelined_append import PipelinedAppend

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
    found = header.encryption
    if found is None:
        return None
    try:
        return PayloadEncryption(
            cipher=Cipher(found["cipher"]),
            key_id=found["key_id"],
            key_token=UpdateToken(found["key_token"]),
            key_check=found["key_check"],
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
