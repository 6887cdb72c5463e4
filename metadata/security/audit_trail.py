"""Audit trail of the commands that change a cluster's metadata themselves.

Leaves which commands write it to `quire.cli.audit`, and changes that a server makes for its clients
to that server's audit log.

Invariants: the newest RECORDS_MAX records that take at most BYTES_MAX are kept; a record is added
by compare-and-set, so that commands at the same time lose none. A client that may write the node
may rewrite it: the trail helps honest operators, and proves nothing against others.

Source: protocol rules 1.2-1.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from metadata.msgpack_fields import pack
from metadata.paths import AUDIT_TRAIL
from metadata.records import Ms, array, codec_of_one, row_of
from metadata.store.interface import MetadataStore
from metadata.store.records import RecordNode

RECORDS_MAX: Final = 1_000
BYTES_MAX: Final = 256 * 1024
TEXT_CHARACTERS_MAX: Final = 500
"""Maximum length of each text of a record; the rest is cut."""

_ARRAY_BYTES: Final = 16
"""Bytes of the array around the records."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One act."""

    time_ms: Ms
    """Time of its end, in ms since 1970."""
    who: str
    """User of the operating system."""
    host: str
    act: str
    """The command, such as `ledger delete`."""
    arguments: str
    result: str
    """`done`, or how it failed."""


_ROW: Final = row_of(AuditRecord)
AUDIT_CODEC: Final = codec_of_one("records", array(_ROW))
AUDIT_NODE: Final = RecordNode(AUDIT_TRAIL, AUDIT_CODEC)


class AuditTrail:
    """The audit trail of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._store = store
        self._rng = rng

    async def get(self) -> list[AuditRecord]:
        """Read the records with a fresh read, the oldest first. Raises MetadataError."""
        return list(await AUDIT_NODE.find(self._store) or ())

    async def add(self, record: AuditRecord) -> None:
        """Add a record, and remove the oldest ones if there are too many.

        Repeats until the outcome is certain or the call is cancelled. Raises MetadataError: when
        the connection fails, the record may have been added.
        """

        def added(known: tuple[AuditRecord, ...] | None) -> tuple[AuditRecord, ...]:
            present = known or ()
            return newest(present if record in present else (*present, record))

        await AUDIT_NODE.change(self._store, self._rng, added)


def newest(records: Sequence[AuditRecord]) -> tuple[AuditRecord, ...]:
    """Return the newest records that have room, as they are stored."""
    kept: list[AuditRecord] = []
    size = _ARRAY_BYTES
    for record in map(_shortened, reversed(records[-RECORDS_MAX:])):
        size += len(pack(AUDIT_TRAIL, [_ROW.pack(record)]))
        if size > BYTES_MAX:
            break
        kept.append(record)
    return tuple(reversed(kept))


def _shortened(record: AuditRecord) -> AuditRecord:
    return replace(
        record,
        who=_cut(record.who),
        host=_cut(record.host),
        act=_cut(record.act),
        arguments=_cut(record.arguments),
        result=_cut(record.result),
    )


def _cut(text: str) -> str:
    # Half characters, which a terminal may pass, have no UTF-8 form.
    return text[:TEXT_CHARACTERS_MAX].encode(errors="replace").decode()
