"""Replication protocol: writers, readers and recovery over bookies that only store.

The names in `__all__` are the public interface; `ledger_client.sync` offers the same without
`async`. A name is imported when it is first used: a command that needs only the metadata does not
load the protocols.

- `client`: the client as users hold it.
- `client_session`: its start, open handles and end.
- `client_services`: what all handles of one client share, such as who it is to bookies.
- `ledger_calls`: create, find, list, recover and delete ledgers.
- `replication`: ways to replicate, `Quorum`.
- `config`: limits and delays, `ClientConfig`.
- `batches`: entries as users get them.
- `info`: a ledger as it is stored.
- `chains`: lists of ledgers to publish in.
- `errors`: failures of a call, one class per fact.
- `own_packages`: check that other modules do not hide packages of Quire.
- `metadata_failures`: failures of the metadata service, translated.
- `observability`: events and counters.
- `digest`: keys and digests of a ledger.
- `encryption/`: encryption of payloads.
- `handle`: what clients, writers, readers and chains have in common; refusal of handles in another
  event loop, thread or process.
- `tasks`: work in the background, and calls for the next loop iteration.
- `cluster_access`: metadata and registrations, for commands.
- `sync`: the client without `async`.
- `sync_handles`: its writer and reader.
- `sync_loop`: its event loop, in one background thread.
- `protocol/`: decisions, pure.
- `writing/`: shell of the writer.
- `reading/`: shells of readers.
- `recovery/`: shell of recovery.
- `copying`: copies of stored entries to one more bookie, or to a member that lost them.
- `bookies/`: connections and placement.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

import ledger_client.own_packages  # noqa: F401 - raises if another module hides our packages

if TYPE_CHECKING:
    from ledger_client.batches import Entry, EntryBatch
    from ledger_client.bookies.placement_policy import PlacementPolicy, Shortage, SpreadPolicy
    from ledger_client.chains import Chain, ChainInfo
    from ledger_client.client import LedgerClient
    from ledger_client.config import ClientConfig
    from ledger_client.encryption.keys import AS_STORED, Encryption, StoredPayloads, read_key_file
    from ledger_client.errors import (
        ApplicationTakenError,
        BackpressureError,
        ChainExistsError,
        ChainNotFoundError,
        ClientClosedError,
        ClusterNotFoundError,
        DecryptionError,
        DigestMismatchError,
        EncryptedLedgerError,
        EncryptionKeyError,
        EncryptionUnavailableError,
        EntryConflictError,
        EntryLostError,
        EntryNotFoundError,
        EntryTooLargeError,
        KeyFileError,
        LedgerClosedError,
        LedgerError,
        LedgerExistsError,
        LedgerFencedError,
        LedgerNotFoundError,
        LedgersCollectedError,
        MetadataConflictError,
        MetadataRefusedError,
        MetadataTooLargeError,
        MetadataUnavailableError,
        NotEnoughBookiesError,
        NotEnoughInSyncReplicasError,
        PlainLedgerError,
        PrincipalUnknownError,
        QuorumTimeoutError,
        RecoveryUndecidedError,
        TooManyFragmentsError,
        UnauthorizedError,
        WriterAliveError,
    )
    from ledger_client.info import LedgerInfo
    from ledger_client.observability import (
        BookieConnected,
        BookieDeparted,
        BookieQuarantined,
        BookieSuspected,
        BookieUnreachable,
        CallbackFailed,
        ClientEvent,
        ClientStats,
        EnsembleChanged,
        LedgerFenced,
        LedgerRecovered,
        LedgerUnreadable,
        MemberCaughtUp,
        MemberCopied,
        MemberCopyFailed,
        MetadataSessionChanged,
        ReplicaDamaged,
    )
    from ledger_client.reading.many_ledgers import LedgerRange, RangePart
    from ledger_client.reading.reader import LedgerReader
    from ledger_client.recovery.abandoned_recovery import (
        AbandonedLedger,
        AbandonedLedgers,
        AbandonedRecovered,
    )
    from ledger_client.replication import Quorum
    from ledger_client.writing.writer import LedgerWriter
    from metadata.ledgers.chain import ChainLink, LinkedLedger
    from metadata.ledgers.chain_store import Published
    from metadata.ledgers.ledger_metadata import Fragment, LedgerState
    from metadata.ledgers.lost_entries import LostRange
    from metadata.ledgers.payload_encryption import PayloadEncryption

__all__ = [
    "AS_STORED",
    "AbandonedLedger",
    "AbandonedLedgers",
    "AbandonedRecovered",
    "ApplicationTakenError",
    "BackpressureError",
    "BookieConnected",
    "BookieDeparted",
    "BookieQuarantined",
    "BookieSuspected",
    "BookieUnreachable",
    "CallbackFailed",
    "Chain",
    "ChainExistsError",
    "ChainInfo",
    "ChainLink",
    "ChainNotFoundError",
    "ClientClosedError",
    "ClientConfig",
    "ClientEvent",
    "ClientStats",
    "ClusterNotFoundError",
    "DecryptionError",
    "DigestMismatchError",
    "EncryptedLedgerError",
    "Encryption",
    "EncryptionKeyError",
    "EncryptionUnavailableError",
    "EnsembleChanged",
    "Entry",
    "EntryBatch",
    "EntryConflictError",
    "EntryLostError",
    "EntryNotFoundError",
    "EntryTooLargeError",
    "Fragment",
    "KeyFileError",
    "LedgerClient",
    "LedgerClosedError",
    "LedgerError",
    "LedgerExistsError",
    "LedgerFenced",
    "LedgerFencedError",
    "LedgerInfo",
    "LedgerNotFoundError",
    "LedgerRange",
    "LedgerReader",
    "LedgerRecovered",
    "LedgerState",
    "LedgerUnreadable",
    "LedgerWriter",
    "LedgersCollectedError",
    "LinkedLedger",
    "LostRange",
    "MemberCaughtUp",
    "MemberCopied",
    "MemberCopyFailed",
    "MetadataConflictError",
    "MetadataRefusedError",
    "MetadataSessionChanged",
    "MetadataTooLargeError",
    "MetadataUnavailableError",
    "NotEnoughBookiesError",
    "NotEnoughInSyncReplicasError",
    "PayloadEncryption",
    "PlacementPolicy",
    "PlainLedgerError",
    "PrincipalUnknownError",
    "Published",
    "Quorum",
    "QuorumTimeoutError",
    "RangePart",
    "RecoveryUndecidedError",
    "ReplicaDamaged",
    "Shortage",
    "SpreadPolicy",
    "StoredPayloads",
    "TooManyFragmentsError",
    "UnauthorizedError",
    "WriterAliveError",
    "read_key_file",
]
_MODULES: Final = {
    "ledger_client.batches": ("Entry", "EntryBatch"),
    "ledger_client.bookies.placement_policy": ("PlacementPolicy", "Shortage", "SpreadPolicy"),
    "ledger_client.chains": ("Chain", "ChainInfo"),
    "ledger_client.client": ("LedgerClient",),
    "ledger_client.config": ("ClientConfig",),
    "ledger_client.encryption.keys": (
        "AS_STORED",
        "Encryption",
        "StoredPayloads",
        "read_key_file",
    ),
    "ledger_client.errors": tuple(name for name in __all__ if name.endswith("Error")),
    "ledger_client.info": ("LedgerInfo",),
    "ledger_client.observability": (
        "BookieConnected",
        "BookieDeparted",
        "BookieQuarantined",
        "BookieSuspected",
        "BookieUnreachable",
        "CallbackFailed",
        "ClientEvent",
        "ClientStats",
        "EnsembleChanged",
        "LedgerFenced",
        "LedgerRecovered",
        "LedgerUnreadable",
        "MemberCaughtUp",
        "MemberCopied",
        "MemberCopyFailed",
        "MetadataSessionChanged",
        "ReplicaDamaged",
    ),
    "ledger_client.reading.many_ledgers": ("LedgerRange", "RangePart"),
    "ledger_client.reading.reader": ("LedgerReader",),
    "ledger_client.recovery.abandoned_recovery": (
        "AbandonedLedger",
        "AbandonedLedgers",
        "AbandonedRecovered",
    ),
    "ledger_client.replication": ("Quorum",),
    "ledger_client.writing.writer": ("LedgerWriter",),
    "metadata.ledgers.chain": ("ChainLink", "LinkedLedger"),
    "metadata.ledgers.chain_store": ("Published",),
    "metadata.ledgers.ledger_metadata": ("Fragment", "LedgerState"),
    "metadata.ledgers.lost_entries": ("LostRange",),
    "metadata.ledgers.payload_encryption": ("PayloadEncryption",),
}
"""Modules of the public names. Each is imported when one of its names is first used."""
_HOME: Final = {name: module for module, names in _MODULES.items() for name in names}


if not TYPE_CHECKING:  # type checkers would take any name for one that exists

    def __getattr__(name: str) -> object:
        """Import a public name."""
        module = _HOME.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Return the public names too, though they are imported later."""
    return sorted({*globals(), *__all__})
