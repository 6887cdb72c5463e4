"""Audit trail of the commands that change a cluster's metadata themselves.

Leaves which commands write it to `quire.cli.audit`, and changes that a server makes for its clients
to that server's audit log.

Format: the value of `/security/audit` is a msgpack array

    index  field           msgpack type
    0      format version  int, 1
    1      records         [[time in ms since 1970 int, who str, host str, act str, arguments str,
                           result str]], the oldest first

Invariants: the newest RECORDS_MAX records that take at most BYTES_MAX are kept; a record is added
by compare-and-set, so that commands at the same time lose none; for any bytes, decoding returns
records or raises MetadataFormatError. A client that may write the node may rewrite it: the
trail helps honest operators, and proves nothing against others.

Source: protocol rules 1.2-1.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from metadata.errors import MetadataFormatError
from metadata.msgpack_fields import (
    FieldError,
    Packed,
    array_of,
    int_of,
    pack,
    pack_checked,
    text_of,
    unpack_versioned,
)
from metadata.paths import AUDIT_TRAIL
from metadata.store.interface import MetadataStore, find
from metadata.store.value_changes import change_value

RECORDS_MAX: Final = 1_000
BYTES_MAX: Final = 256 * 1024
TEXT_CHARACTERS_MAX: Final = 500
"""Maximum length of each text of a record; the rest is cut."""

_FORMAT_VERSION: Final = 1
_FIELD_COUNT: Final = 2
_RECORD_FIELDS: Final = 6
_TIME_MS_MAX: Final = 2**63 - 1
_ARRAY_BYTES: Final = 16
"""Bytes of the array around the records."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One act."""

    time_ms: int
    """Time of its end, in ms since 1970."""
    who: str
    """User of the operating system."""
    host: str
    act: str
    """The command, such as `ledger delete`."""
    arguments: str
    result: str
    """`done`, or how it failed."""


class AuditTrail:
    """The audit trail of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._store = store
        self._rng = rng

    async def get(self) -> list[AuditRecord]:
        """Read the records with a fresh read, the oldest first. Raises MetadataError."""
        stored = await find(self._store, AUDIT_TRAIL)
        return [] if stored is None else unpack_trail(stored.value)

    async def add(self, record: AuditRecord) -> None:
        """Add a record, and remove the oldest ones if there are too many.

        Repeats until the outcome is certain or the call is cancelled. Raises MetadataError: when
        the connection fails, the record may have been added.
        """

        def added(value: bytes | None) -> bytes:
            known = [] if value is None else unpack_trail(value)
            return pack_trail(known if record in known else [*known, record])

        await change_value(self._store, AUDIT_TRAIL, added, self._rng)


def pack_trail(records: Sequence[AuditRecord]) -> bytes:
    """Return the stored form of the newest records that have room."""
    kept: list[Packed] = []
    size = _ARRAY_BYTES
    for each in reversed(records[-RECORDS_MAX:]):
        fields: list[Packed] = [
            each.time_ms,
            *(_cut(text) for text in (each.who, each.host, each.act, each.arguments, each.result)),
        ]
        size += len(pack(AUDIT_TRAIL, fields))
        if size > BYTES_MAX:
            break
        kept.append(fields)
    return pack_checked(AUDIT_TRAIL, [_FORMAT_VERSION, kept[::-1]], unpack_trail)


def unpack_trail(value: bytes) -> list[AuditRecord]:
    """Read a stored form. Raises MetadataFormatError for anything else."""
    fields = unpack_versioned(AUDIT_TRAIL, value, _FORMAT_VERSION, _FIELD_COUNT)
    try:
        return [_record_of(array_of(each)) for each in array_of(fields[1])]
    except FieldError as error:
        raise MetadataFormatError(AUDIT_TRAIL, str(error)) from error


def _record_of(fields: Sequence[Packed]) -> AuditRecord:
    if len(fields) != _RECORD_FIELDS:
        raise FieldError(f"a record has {len(fields)} fields, not {_RECORD_FIELDS}")
    time_ms, *texts = fields
    return AuditRecord(int_of(time_ms, 0, _TIME_MS_MAX), *map(text_of, texts))


def _cut(text: str) -> str:
    # Half characters, which a terminal may pass, have no UTF-8 form.
    return text[:TEXT_CHARACTERS_MAX].encode(errors="replace").decode()
