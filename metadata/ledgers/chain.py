"""Immutable values for a chain of ledgers, the allowed changes, and their bytes.

Leaves storing them, by compare-and-set, to `metadata.ledgers.chain_store`.

A chain is a head and one link for each publication. A link names the ledgers that became visible
together: the ledgers of one batch of a Spark query, or the next ledger of a topic's partition.

Invariants: links are numbered from 0 without gaps; links below the head's first index no longer
belong to the chain; a batch of an application is linked at most once; one query numbers the batches
of an application.

Source: Spark design, "Writing: exactly once"; topics design, "The mapping".
"""

import string
from dataclasses import dataclass, replace
from typing import Annotated, Final

from metadata.errors import InvalidChainNameError, LedgersCollectedError
from metadata.ids import (
    ENTRY_ID_MAX,
    NO_ENTRY,
    EntryId,
    LedgerId,
    UpdateToken,
)
from metadata.msgpack_fields import ITEMS_MAX
from metadata.records import Bytes, Count, Ms, codec_of, whole

CHAIN_NAME: Final = "quire.chain"
"""Custom metadata key of a ledger that is to be linked in a chain; the value is the chain's name.
"""
NAME_CHARACTERS_MAX: Final = 200
APPLICATION_CHARACTERS_MAX: Final = 1_000
LEDGERS_PER_LINK_MAX: Final = ITEMS_MAX
INDEX_MAX: Final = 10**10 - 1
NO_BATCH: Final = -1
"""The batch of a link that belongs to no application."""

_Index = Annotated[int, whole(0, INDEX_MAX)]
_NAME_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "._-")


@dataclass(frozen=True, slots=True)
class LinkedLedger:
    """A ledger of a chain, as it was when it was linked. Last entry and length are None if the
    ledger was open then.
    """

    ledger_id: LedgerId
    created_ms: Ms
    last_entry_id: Annotated[EntryId, whole(NO_ENTRY, ENTRY_ID_MAX)] | None = None
    length: Bytes | None = None


@dataclass(frozen=True, slots=True)
class ChainLink:
    """Ledgers that one publication made visible, in order."""

    ledgers: tuple[LinkedLedger, ...]
    published_ms: Ms
    token: UpdateToken
    application: str = ""
    batch: Annotated[int, whole(NO_BATCH)] = NO_BATCH


@dataclass(frozen=True, slots=True)
class AppliedBatch:
    """Last linked batch of an application, the index of its link, and the query that alone may link
    further ones.
    """

    application: str
    batch: Count
    index: _Index
    query: str = ""
    """Identity of what numbers the batches; empty if the application has no other than its name."""


@dataclass(frozen=True, slots=True)
class ChainHead:
    """Head of a chain: its links are numbered from `first_index` to below `next_index`."""

    token: UpdateToken
    first_index: _Index = 0
    next_index: _Index = 0
    collected_before_ms: Ms = 0
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


def _check_indices(head: ChainHead) -> None:
    if head.first_index > head.next_index:
        raise ValueError(f"link {head.first_index} is not below {head.next_index}")


HEAD_CODEC: Final = codec_of(ChainHead, _check_indices)
LINK_CODEC: Final = codec_of(ChainLink)
APPLIED_CODEC: Final = codec_of(AppliedBatch)
