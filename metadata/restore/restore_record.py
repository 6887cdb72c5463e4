"""Record of a restore: that the metadata came from a dump, or is older than a bookie has seen it,
and whether an operator accepted that. Its token distinguishes this service from the one before.

Leaves writing the content to `restoring.py`, and what waits for the acceptance to the bookies'
collectors, to repair and to the sweeps of brokers and chains.

Invariants: the node is the first that a restore creates, so no process sees restored metadata
without it; while the state is `running` there is no `/instance`, so nothing takes the metadata for
a cluster; the state of a restore changes only running -> finished -> accepted. A service that went
back behind an accepted one gets a new record.

Source: protocol rules 10.5, 10.6.
"""

import contextlib
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Final

from metadata.errors import (
    MetadataError,
    NeverRestoredError,
    NodeExistsError,
    VersionConflictError,
)
from metadata.ids import Version
from metadata.paths import RESTORE
from metadata.records import Ms, codec_of, sized
from metadata.store.interface import MetadataStore
from metadata.store.records import RecordNode

TOKEN_BYTES: Final = 16
DIGEST_BYTES: Final = 32
ACCEPT_ATTEMPTS_MAX: Final = 10


class RestoreState(StrEnum):
    """State of a restore."""

    RUNNING = "running"
    FINISHED = "finished"
    """Complete; what the metadata does not know is kept until an operator accepts it."""
    ACCEPTED = "accepted"


@dataclass(frozen=True, slots=True)
class RestoreRecord:
    """One restore, by its random token."""

    token: Annotated[bytes, sized(TOKEN_BYTES)]
    state: RestoreState
    taken_ms: Ms | None = None
    """Time of the dump; None if a bookie found the service older than it was."""
    digest: Annotated[bytes, sized(DIGEST_BYTES)] | None = None
    """SHA-256 of the dump; None if a bookie found the service older than it was."""

    @property
    def is_accepted(self) -> bool:
        """Whether an operator accepted that the metadata is as it was at the dump."""
        return self.state is RestoreState.ACCEPTED

    def with_state(self, state: RestoreState) -> "RestoreRecord":
        """Return the record in another state."""
        return replace(self, state=state)


RESTORE_CODEC: Final = codec_of(RestoreRecord)
RESTORE_NODE: Final = RecordNode(RESTORE, RESTORE_CODEC)


async def read_restore(store: MetadataStore) -> tuple[RestoreRecord, Version] | None:
    """Return the record, by a fresh read; None if the metadata was never restored. Raises
    MetadataError.
    """
    return await RESTORE_NODE.read(store)


async def is_unaccepted(store: MetadataStore) -> bool:
    """Return whether the metadata was restored and no operator accepted that, by a fresh read.
    Nothing may be removed then because the metadata does not know it. Raises MetadataError.
    """
    restore = await read_restore(store)
    return restore is not None and not restore[0].is_accepted


async def record_older(store: MetadataStore, token: bytes, accepted: bytes) -> None:
    """Record that the service is older than it was, unless it has another record than that of the
    restore that was `accepted`; empty for none. Raises MetadataError.
    """
    stored = await read_restore(store)
    value = RESTORE_NODE.pack(RestoreRecord(token, RestoreState.FINISHED))
    with contextlib.suppress(NodeExistsError, VersionConflictError):  # another bookie was first
        if stored is None:
            await store.create(RESTORE, value)
        elif stored[0].token == accepted:
            await store.compare_and_set(RESTORE, value, stored[1])


async def accept_restore(store: MetadataStore) -> RestoreRecord:
    """Accept that the metadata is as it was at the dump; again without effect. Raises
    NeverRestoredError, MetadataError.
    """
    for _ in range(ACCEPT_ATTEMPTS_MAX):
        restore = await read_restore(store)
        if restore is None or restore[0].state is RestoreState.RUNNING:
            raise NeverRestoredError(store.address)
        record, version = restore
        if record.is_accepted:
            return record
        accepted = record.with_state(RestoreState.ACCEPTED)
        with contextlib.suppress(VersionConflictError):
            await store.compare_and_set(RESTORE, RESTORE_NODE.pack(accepted), version)
            return accepted
    raise MetadataError(f"{RESTORE} changed {ACCEPT_ATTEMPTS_MAX} times meanwhile: try again")
