"""Conversion of the options of ledger verbs to arguments of the client.

Leaves their declaration to `quire.cli.ledger.verbs`.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ledger_client import (
    ClientConfig,
    Encryption,
    LedgerClient,
    PayloadEncryption,
    Quorum,
    read_key_file,
)
from ledger_client.replication import REPLICA_LAG_TIME_MAX_S
from quire.errors import UsageError
from quire.identity.secret_files import read_ledger_password

if TYPE_CHECKING:
    from ledger_client import LedgerWriter
    from ledger_client.handle import AwaitableHandle

Digest = Literal["crc32c", "hmac-sha256"]

COPIES_DEFAULT: Final = 3


@dataclass(frozen=True, slots=True)
class NewLedgerOptions:
    """Properties of a ledger that a verb creates."""

    ledger_id: int | None
    quorum: Quorum
    digest: Digest
    password: bytes
    custom_metadata: Mapping[str, str | bytes]
    encryption: Encryption | PayloadEncryption | None = None

    def create_with(self, client: LedgerClient) -> "AwaitableHandle[LedgerWriter]":
        """Return a call that creates the ledger; await it or enter it."""
        return client.create_ledger(
            self.quorum,
            ledger_id=self.ledger_id,
            digest=self.digest,
            password=self.password,
            metadata=self.custom_metadata,
            encryption=self.encryption,
        )


def creation_of(arguments: argparse.Namespace, default: Quorum | None = None) -> NewLedgerOptions:
    """Read the options of `create`, `append` and `import`. Raises UsageError.

    Missing numbers follow from the given ones: as many copies as bookies, all but one to confirm.
    """
    return NewLedgerOptions(
        ledger_id=getattr(arguments, "id", None),
        quorum=_in_sync_of(arguments) if arguments.in_sync else _quorum_of(arguments, default),
        digest="hmac-sha256" if arguments.digest == "hmac-sha256" else "crc32c",
        password=password_of(arguments),
        custom_metadata=dict(_pair(text) for text in arguments.meta),
        encryption=encryption_of(arguments),
    )


def _quorum_of(arguments: argparse.Namespace, default: Quorum | None) -> Quorum:
    if arguments.min_in_sync is not None or arguments.replica_lag_time_max is not None:
        raise UsageError(
            "--min-in-sync and --replica-lag-time-max have a meaning only in in-sync mode",
            try_next="add --in-sync, or leave them out",
        )
    if default is not None and arguments.ensemble is arguments.write is arguments.ack is None:
        return default
    ensemble = arguments.ensemble or arguments.write or COPIES_DEFAULT
    write = arguments.write or ensemble
    ack = arguments.ack or max(1, write - 1)
    if not ensemble >= write >= ack:
        raise UsageError(
            "a quorum needs --ensemble >= --write >= --ack >= 1, "
            f"but these are {ensemble}, {write}, {ack}"
        )
    return Quorum(ensemble=ensemble, write=write, ack=ack)


def _in_sync_of(arguments: argparse.Namespace) -> Quorum:
    if arguments.write is not None or arguments.ack is not None:
        raise UsageError(
            "with --in-sync every member writes and confirms: leave out --write and --ack"
        )
    replicas = arguments.ensemble or COPIES_DEFAULT
    least = arguments.min_in_sync or max(1, replicas - 1)
    asked_s = arguments.replica_lag_time_max
    lag_s = REPLICA_LAG_TIME_MAX_S if asked_s is None else asked_s
    deadline_s = ClientConfig().append_deadline_s
    if lag_s >= deadline_s:
        raise UsageError(
            f"--replica-lag-time-max is {lag_s:g} s, and an append fails after {deadline_s:g} s: a "
            "lagging member must leave before that",
            try_next=f"--replica-lag-time-max with less than {deadline_s:g}",
        )
    try:
        return Quorum.in_sync(replicas, least, replica_lag_time_max=lag_s)
    except ValueError as error:
        raise UsageError(str(error)) from error


def password_of(arguments: argparse.Namespace) -> bytes:
    """Read the file named by --password-file; no password without it. Raises SecretError."""
    path: str | None = arguments.password_file
    return b"" if path is None else read_ledger_password(path)


def encryption_of(arguments: argparse.Namespace) -> Encryption | None:
    """Read the file named by --key-file; None for a verb without it, or if it is not given. Raises
    KeyFileError, EncryptionUnavailableError.
    """
    path: str | None = getattr(arguments, "key_file", None)
    return None if path is None else read_key_file(path)


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"--meta must be NAME=VALUE, not {text!r}")
    return name, value
