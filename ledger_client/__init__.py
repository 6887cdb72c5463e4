"""The replication protocol: writers, readers and recovery over bookies that only store.

This module lists the public names; `ledger_client.sync` offers the same without `async`.
"""

import ledger_client.own_packages  # noqa: F401 - raises if another module hides our packages
from ledger_client.batches import Entry, EntryBatch
from ledger_client.bookies.placement_policy import PlacementPolicy, Shortage, SpreadPolicy
from ledger_client.chains import Chain, ChainInfo
from ledger_client.client import LedgerClient
from ledger_client.config import ClientConfig
from ledger_client.errors import (
    BackpressureError,
    ChainExistsError,
    ChainNotFoundError,
    ClientClosedError,
    DigestMismatchError,
    EntryConflictError,
    EntryNotFoundError,
    EntryTooLargeError,
    LedgerClosedError,
    LedgerError,
    LedgerExistsError,
    LedgerFencedError,
    LedgerNotFoundError,
    LedgersCollectedError,
    MetadataConflictError,
    MetadataTooLargeError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
    NotEnoughInSyncReplicasError,
    QuorumTimeoutError,
    RecoveryUndecidedError,
    TooManyFragmentsError,
    UnauthorizedError,
)
from ledger_client.info import LedgerInfo
from ledger_client.observability import (
    BookieConnected,
    BookieDeparted,
    BookieQuarantined,
    BookieSuspected,
    BookieUnreachable,
    ClientEvent,
    ClientStats,
    EnsembleChanged,
    LedgerFenced,
    LedgerRecovered,
    MemberCaughtUp,
    MemberCopied,
    MemberCopyFailed,
    MetadataSessionChanged,
    ReplicaDamaged,
)
from ledger_client.reading.reader import LedgerReader
from ledger_client.replication import Quorum
from ledger_client.writing.writer import LedgerWriter
from metadata.ledgers.chain import ChainLink, LinkedLedger
from metadata.ledgers.chain_store import Published
from metadata.ledgers.ledger_metadata import Fragment, LedgerState

__all__ = [
    "BackpressureError",
    "BookieConnected",
    "BookieDeparted",
    "BookieQuarantined",
    "BookieSuspected",
    "BookieUnreachable",
    "Chain",
    "ChainExistsError",
    "ChainInfo",
    "ChainLink",
    "ChainNotFoundError",
    "ClientClosedError",
    "ClientConfig",
    "ClientEvent",
    "ClientStats",
    "DigestMismatchError",
    "EnsembleChanged",
    "Entry",
    "EntryBatch",
    "EntryConflictError",
    "EntryNotFoundError",
    "EntryTooLargeError",
    "Fragment",
    "LedgerClient",
    "LedgerClosedError",
    "LedgerError",
    "LedgerExistsError",
    "LedgerFenced",
    "LedgerFencedError",
    "LedgerInfo",
    "LedgerNotFoundError",
    "LedgerReader",
    "LedgerRecovered",
    "LedgerState",
    "LedgerWriter",
    "LedgersCollectedError",
    "LinkedLedger",
    "MemberCaughtUp",
    "MemberCopied",
    "MemberCopyFailed",
    "MetadataConflictError",
    "MetadataSessionChanged",
    "MetadataTooLargeError",
    "MetadataUnavailableError",
    "NotEnoughBookiesError",
    "NotEnoughInSyncReplicasError",
    "PlacementPolicy",
    "Published",
    "Quorum",
    "QuorumTimeoutError",
    "RecoveryUndecidedError",
    "ReplicaDamaged",
    "Shortage",
    "SpreadPolicy",
    "TooManyFragmentsError",
    "UnauthorizedError",
]
