"""The cluster's audit trail: the record of a command, once its result is known, and `quire metadata
audit`.

Invariants: no failure of the trail changes the result of a command; a command that was refused for
want of `--yes`, or as wrong usage, did nothing and is not recorded; the address of the metadata,
which may have a password, is not in the record.
"""

import argparse
import asyncio
import getpass
import os
import socket
from collections.abc import Coroutine
from dataclasses import asdict, fields
from typing import Final

from ledger_client.cluster_access import open_cluster, wall_clock_ms
from metadata.errors import MetadataError
from metadata.security.audit_trail import AuditRecord, AuditTrail
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.errors import ExitCode, NeedsConsentError, UsageError, exit_code
from quire.identity.errors import SecurityError
from quire.operate.fields import describe_field

RECORD_S_MAX: Final = 10.0
NOT_RECORDED: Final = (ExitCode.USAGE, ExitCode.NOT_FOUND)
"""Results of commands that did nothing."""
LEFT_OUT: Final = frozenset(
    {"act", "audited_with", "handler", "is_audited", "metadata", "output", "verbose", "yes"}
)
"""Arguments that say nothing of what was changed."""


async def recorded(
    arguments: argparse.Namespace, output: Output, work: Coroutine[None, None, int]
) -> int:
    """Run a command and record its result. Returns its status; raises what it raises.

    The command goes on if the reader of its output ends: what is recorded is what it did.
    """
    output.may_end_early = False
    try:
        status = await work
    except (UsageError, NeedsConsentError):
        raise
    except asyncio.CancelledError:
        await _record(arguments, output, "interrupted")
        raise
    except Exception as error:
        if exit_code(error) not in NOT_RECORDED:
            await _record(arguments, output, f"failed: {error}")
        raise
    await _record(arguments, output, "done" if status == ExitCode.DONE else f"status {status}")
    return status


async def _record(arguments: argparse.Namespace, output: Output, result: str) -> None:
    record = AuditRecord(
        wall_clock_ms(), _user(), socket.gethostname(), arguments.act, text_of(arguments), result
    )
    try:
        async with asyncio.timeout(RECORD_S_MAX):
            async with open_cluster(metadata_address(arguments)) as cluster:
                await AuditTrail(cluster.store, cluster.rng).add(record)
    except (MetadataError, SecurityError, TimeoutError) as error:
        why = str(error) or f"no answer within {RECORD_S_MAX:.0f} s"
        output.remark(f"this command is not in the audit trail: {why}")


def text_of(arguments: argparse.Namespace) -> str:
    """Return the arguments that were given, as text."""
    given = {
        name: value
        for name, value in sorted(vars(arguments).items())
        if name not in LEFT_OUT and value not in (None, False, [])
    }
    return " ".join(f"{name}={describe_field(name, value)}" for name, value in given.items())


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


async def show(arguments: argparse.Namespace, output: Output) -> int:
    """Print the records, the oldest first."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        records = await AuditTrail(cluster.store, cluster.rng).get()
    output.table(
        (asdict(record) for record in records[-arguments.limit :]),
        *(field.name for field in fields(AuditRecord)),
    )
    return ExitCode.DONE
