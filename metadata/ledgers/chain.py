"""Immutable values for a chain of ledgers, the allowed changes, and their bytes.

Leaves storing them, by compare-and-set, to `metadata.ledgers.chain_store`.

A chain is a head and one link for each publication. A link names the ledgers that became visible
together: the ledgers of one batch of a Spark query, or the next ledger of a topic's partition.

Format, versioned msgpack arrays:

    head         [1, first index int, next index int, collected before int in ms since 1970,
                 token bin of 16 bytes, is deleted bool]
    link         [1, [[ledger id int, created int in ms, last entry id int or nil, length int or
                 nil]], published int in ms, token bin of 16 bytes, application str, batch int]
    application  [1, application str, batch int, link index int]

Invariants: links are numbered from 0 without gaps; links below the head's first index no longer
belong to the chain; a batch of an application is linked at most once.

Source: Spark design, "Writing: exactly once"; topics design, "The mapping".
"""

import string
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from metadata.errors import InvalidChainNameError, LedgersCollectedError, MetadataFormatError
from metadata.ids import (
    ENTRY_ID_MAX,
    LEDGER_ID_MAX,
    NO_ENTRY,
    UPDATE_TOKEN_BYTES,
    EntryId,
    LedgerId,
    UpdateToken,
)
from metadata.msgpack_fields import (
    ITEMS_MAX,
    FieldError,
    Packed,
    array_of,
    bool_of,
    bytes_of,
    int_of,
    optional_int_of,
    pack_checked,
    text_of,
    unpack_versioned,
)

CHAIN_NAME: Final = "quire.chain"
"""Custom metadata key of a ledger that is to be linked in a chain; the value is the chain's name.
"""
NAME_CHARACTERS_MAX: Final = 200
APPLICATION_CHARACTERS_MAX: Final = 1_000
LEDGERS_PER_LINK_MAX: Final = ITEMS_MAX
INDEX_MAX: Final = 10**10 - 1
NO_BATCH: Final = -1
"""The batch of a link that belongs to no application."""

_FORMAT_VERSION: Final = 1
_INT64_MAX: Final = 2**63 - 1
_NAME_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "._-")


@dataclass(frozen=True, slots=True)
class LinkedLedger:
    """A ledger of a chain, as it was when it was linked. Last entry and length are None if the
    ledger was open then.
    """

    ledger_id: LedgerId
    created_ms: int
    last_entry_id: EntryId | None = None
    length: int | None = None


@dataclass(frozen=True, slots=True)
class ChainLink:
    """Ledgers that one publication made visible, in order."""

    ledgers: tuple[LinkedLedger, ...]
    published_ms: int
    token: UpdateToken
    application: str = ""
    batch: int = NO_BATCH


@dataclass(frozen=True, slots=True)
class AppliedBatch:
    """Last linked batch of an application, and the index of its link."""

    application: str
    batch: int
    index: int


@dataclass(frozen=True, slots=True)
class ChainHead:
    """Head of a chain: its links are numbered from `first_index` to below `next_index`."""

    token: UpdateToken
    first_index: int = 0
    next_index: int = 0
    collected_before_ms: int = 0
    """Unlinked ledgers created before this time may be gone; none of them can be linked."""
    is_deleted: bool = False
    """Whether the chain is being deleted: nothing can be linked, and readers do not see the chain.
    """

    def with_link(self, link: ChainLink, *, replaces: bool) -> "ChainHead":
        """Make room for one more link; with `replaces`, it becomes the only link. Raises
        LedgersCollectedError for a ledger that may have been collected.
        """
        for ledger in link.ledgers:
            if ledger.created_ms < self.collected_before_ms:
                raise LedgersCollectedError(ledger.ledger_id)
        index = self.next_index
        first = index if replaces else self.first_index
        return replace(self, first_index=first, next_index=index + 1, token=link.token)

    def with_first_index(self, first_index: int, token: UpdateToken) -> "ChainHead":
        """Remove the links below an index; a lower index changes nothing."""
        first = max(self.first_index, min(first_index, self.next_index))
        return replace(self, first_index=first, token=token)

    def with_collected_before(self, created_ms: int, token: UpdateToken) -> "ChainHead":
        """Refuse to link any ledger created before a time."""
        return replace(
            self, collected_before_ms=max(self.collected_before_ms, created_ms), token=token
        )

    def with_deletion(self, token: UpdateToken) -> "ChainHead":
        """Mark the chain as being deleted."""
        return replace(self, first_index=self.next_index, is_deleted=True, token=token)

    def with_token(self, token: UpdateToken) -> "ChainHead":
        """Change only the token, so that writes sent earlier and not yet applied fail."""
        return replace(self, token=token)


def check_chain_name(name: str) -> str:
    """Return the name. Raises InvalidChainNameError unless it has 1 to 200 letters, digits, `.`,
    `_` and `-`, and does not begin with a dot.
    """
    well = 0 < len(name) <= NAME_CHARACTERS_MAX and name[0] != "."
    if not well or not _NAME_CHARACTERS.issuperset(name):
        raise InvalidChainNameError(name)
    return name


def pack_head(what: str, head: ChainHead) -> bytes:
    """Return the stored form of a head."""
    return pack_checked(
        what,
        [
            _FORMAT_VERSION,
            head.first_index,
            head.next_index,
            head.collected_before_ms,
            head.token,
            head.is_deleted,
        ],
        partial(unpack_head, what),
    )


def unpack_head(what: str, value: bytes) -> ChainHead:
    """Read the stored form of a head. Raises MetadataFormatError for anything else."""
    fields = unpack_versioned(what, value, _FORMAT_VERSION, 6)
    try:
        next_index = int_of(fields[2], 0, INDEX_MAX)
        return ChainHead(
            first_index=int_of(fields[1], 0, next_index),
            next_index=next_index,
            collected_before_ms=int_of(fields[3], 0, _INT64_MAX),
            token=UpdateToken(bytes_of(fields[4], UPDATE_TOKEN_BYTES)),
            is_deleted=bool_of(fields[5]),
        )
    except FieldError as error:
        raise MetadataFormatError(what, str(error)) from error


def pack_link(what: str, link: ChainLink) -> bytes:
    """Return the stored form of a link."""
    ledgers: list[Packed] = [
        [each.ledger_id, each.created_ms, each.last_entry_id, each.length] for each in link.ledgers
    ]
    fields: list[Packed] = [_FORMAT_VERSION, ledgers, link.published_ms, link.token]
    return pack_checked(what, [*fields, link.application, link.batch], partial(unpack_link, what))


def unpack_link(what: str, value: bytes) -> ChainLink:
    """Read the stored form of a link. Raises MetadataFormatError for anything else."""
    fields = unpack_versioned(what, value, _FORMAT_VERSION, 6)
    try:
        return ChainLink(
            ledgers=tuple(_ledger_of(each) for each in array_of(fields[1])),
            published_ms=int_of(fields[2], 0, _INT64_MAX),
            token=UpdateToken(bytes_of(fields[3], UPDATE_TOKEN_BYTES)),
            application=text_of(fields[4]),
            batch=int_of(fields[5], NO_BATCH, _INT64_MAX),
        )
    except FieldError as error:
        raise MetadataFormatError(what, str(error)) from error


def pack_applied(what: str, applied: AppliedBatch) -> bytes:
    """Return the stored form of an application's last batch."""
    fields: list[Packed] = [_FORMAT_VERSION, applied.application, applied.batch, applied.index]
    return pack_checked(what, fields, partial(unpack_applied, what))


def unpack_applied(what: str, value: bytes) -> AppliedBatch:
    """Read the stored form of an application's last batch. Raises MetadataFormatError for anything
    else.
    """
    fields = unpack_versioned(what, value, _FORMAT_VERSION, 4)
    try:
        return AppliedBatch(
            application=text_of(fields[1]),
            batch=int_of(fields[2], 0, _INT64_MAX),
            index=int_of(fields[3], 0, INDEX_MAX),
        )
    except FieldError as error:
        raise MetadataFormatError(what, str(error)) from error


def _ledger_of(field: Packed) -> LinkedLedger:
    fields = array_of(field)
    if len(fields) != 4:  # noqa: PLR2004 - from the format
        raise FieldError(f"a ledger has {len(fields)} fields instead of 4")
    last = optional_int_of(fields[2], NO_ENTRY, ENTRY_ID_MAX)
    return LinkedLedger(
        ledger_id=LedgerId(int_of(fields[0], 0, LEDGER_ID_MAX)),
        created_ms=int_of(fields[1], 0, _INT64_MAX),
        last_entry_id=None if last is None else EntryId(last),
        length=optional_int_of(fields[3], 0, _INT64_MAX),
    )
