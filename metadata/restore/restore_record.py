"""Record of a restore: that the metadata came from a dump, and whether an operator accepted that.

Leaves writing the content to `restoring.py`, and what waits for the acceptance to the bookies'
collectors, to repair and to the sweeps of brokers and chains.

Format: the value of `/restore` is a msgpack array [1, token bin of 16 bytes, state str, dump taken
int in milliseconds since 1970, SHA-256 of the dump bin of 32 bytes].

Invariants: the node is the first that a restore creates, so no process sees restored metadata
without it; while the state is `running` there is no `/instance`, so nothing takes the metadata for
a cluster; the state changes only running -> finished -> accepted.

Source: protocol rule 10.6.
"""

import contextlib
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from metadata.errors import (
    MetadataError,
    MetadataFormatError,
    NeverRestoredError,
    VersionConflictError,
)
from metadata.ids import Version
from metadata.msgpack_fields import (
    FieldError,
    Packed,
    bytes_of,
    int_of,
    pack_checked,
    text_of,
    unpack_versioned,
)
from metadata.paths import RESTORE
from metadata.store.interface import MetadataStore, find

TOKEN_BYTES: Final = 16
DIGEST_BYTES: Final = 32
ACCEPT_ATTEMPTS_MAX: Final = 10

_FORMAT_VERSION: Final = 1
_FIELD_COUNT: Final = 5
_INT64_MAX: Final = 2**63 - 1


class RestoreState(StrEnum):
    """State of a restore."""

    RUNNING = "running"
    FINISHED = "finished"
    """Complete; what the metadata does not know is kept until an operator accepts it."""
    ACCEPTED = "accepted"


@dataclass(frozen=True, slots=True)
class RestoreRecord:
    """One restore, by its random token."""

    token: bytes
    state: RestoreState
    taken_ms: int
    """Time of the dump."""
    digest: bytes
    """SHA-256 of the dump."""

    @property
    def is_accepted(self) -> bool:
        """Whether an operator accepted that the metadata is as it was at the dump."""
        return self.state is RestoreState.ACCEPTED

    def with_state(self, state: RestoreState) -> "RestoreRecord":
        """Return the record in another state."""
        return replace(self, state=state)


async def read_restore(store: MetadataStore) -> tuple[RestoreRecord, Version] | None:
    """Return the record, by a fresh read; None if the metadata was never restored. Raises
    MetadataError.
    """
    stored = await find(store, RESTORE)
    return None if stored is None else (unpack_restore(stored.value), stored.version)


async def is_unaccepted(store: MetadataStore) -> bool:
    """Return whether the metadata was restored and no operator accepted that, by a fresh read.
    Nothing may be removed then because the metadata does not know it. Raises MetadataError.
    """
    found = await read_restore(store)
    return found is not None and not found[0].is_accepted


async def accept_restore(store: MetadataStore) -> RestoreRecord:
    """Accept that the metadata is as it was at the dump; again without effect. Raises
    NeverRestoredError, MetadataError.
    """
    for _ in range(ACCEPT_ATTEMPTS_MAX):
        found = await read_restore(store)
        if found is None or found[0].state is RestoreState.RUNNING:
            raise NeverRestoredError(store.address)
        record, version = found
        if record.is_accepted:
            return record
        accepted = record.with_state(RestoreState.ACCEPTED)
        with contextlib.suppress(VersionConflictError):
            await store.compare_and_set(RESTORE, pack_restore(accepted), version)
            return accepted
    raise MetadataError(f"{RESTORE} changed {ACCEPT_ATTEMPTS_MAX} times meanwhile: try again")


def pack_restore(record: RestoreRecord) -> bytes:
    """Return the stored form."""
    fields: list[Packed] = [
        _FORMAT_VERSION,
        record.token,
        str(record.state),
        record.taken_ms,
        record.digest,
    ]
    return pack_checked(RESTORE, fields, unpack_restore)


def unpack_restore(value: bytes) -> RestoreRecord:
    """Read a stored form. Raises MetadataFormatError for anything else."""
    fields = unpack_versioned(RESTORE, value, _FORMAT_VERSION, _FIELD_COUNT)
    try:
        return RestoreRecord(
            token=bytes_of(fields[1], TOKEN_BYTES),
            state=_state_of(text_of(fields[2])),
            taken_ms=int_of(fields[3], 0, _INT64_MAX),
            digest=bytes_of(fields[4], DIGEST_BYTES),
        )
    except FieldError as error:
        raise MetadataFormatError(RESTORE, str(error)) from error


def _state_of(text: str) -> RestoreState:
    try:
        return RestoreState(text)
    except ValueError:
        raise FieldError(f"{text!r} is not a state of a restore") from None
