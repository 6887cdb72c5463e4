"""`quire ledger append|read|tail`: entries between pipes and ledgers.

Leaves opening and closing ledgers to the client, claims of created ledgers to
`quire.operate.claims`, and splitting the input to `standard_input`.

Format: a line is an entry without its newline; with -o json an entry is one line, `{"entry_id": 5,
"data": "text"}`, or `"data_base64"` if it is not UTF-8.
"""

import argparse
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ledger_client import EntryBatch, LedgerClient, LedgerState
from metadata.ids import LedgerId
from quire.cli.command_line import metadata_address
from quire.cli.ledger.ledger_options import creation_of, encryption_of, password_of
from quire.cli.output import Output
from quire.cli.progress import Progress
from quire.cli.standard_input import read_blocks, read_lines
from quire.errors import ExitCode
from quire.operate.as_json import data_as_json
from quire.operate.fields import Row

if TYPE_CHECKING:
    from ledger_client import LedgerWriter


async def append(arguments: argparse.Namespace, output: Output) -> int:
    """Append the standard input to a ledger, then close the ledger."""
    from quire.operate.pipelined_append import PipelinedAppend

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
    from quire.operate.claims import ONE_LEDGER, claimed_writer

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
                text = b"".join(_lines(batch, b"" if arguments.raw else b"\n"))
            sys.stdout.buffer.write(text)
            if total is None:
                sys.stdout.buffer.flush()  # a reader that follows needs each entry at once
            if progress is not None:
                progress.advance(len(batch))
    finally:
        if progress is not None:
            progress.end()
    sys.stdout.buffer.flush()


def _lines(batch: EntryBatch, end: bytes) -> list[bytes]:
    return [entry.data + end for entry in batch]


def _json_lines(batch: EntryBatch) -> bytes:
    rows = ({"entry_id": each.id} | data_as_json("data", each.data) for each in batch)
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
