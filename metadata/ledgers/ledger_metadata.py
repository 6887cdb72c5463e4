"""One ledger's metadata as an immutable value, with the transitions that the rules allow.

Leaves its bytes to `metadata.ledgers.codec` and its storing, by compare-and-set, to
`metadata.ledgers.ledger_store`.

Invariants: fragments strictly increasing, the first at 0; each ensemble holds `ensemble_size`
distinct bookies; last entry id and length present exactly when CLOSED.

Source: protocol rules 1.1, 1.4, 1.5, 5.1, 6.1, 7.1, 7.5, 9.1, 9.9.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from metadata.errors import InvalidTransitionError
from metadata.ids import (
    NO_ENTRY,
    UPDATE_TOKEN_BYTES,
    BookieId,
    ClientId,
    EntryId,
    LedgerId,
    UpdateToken,
)
from metadata.ledgers.ledger_owner import NO_OWNER, is_owner
from metadata.ledgers.lost_entries import LostRange, range_of, why_invalid, with_ranges
from metadata.ledgers.payload_encryption import PayloadEncryption

STRIPE_ENTRIES_DEFAULT: Final = 1024
STRIPE_ENTRIES_MAX: Final = 2**63 - 1
FRAGMENTS_MAX: Final = 10_000
UNCLAIMED_NAME: Final = "quire.unclaimed"
"""Name in the custom metadata that marks a ledger without a writer. Names that begin with `quire.`
belong to Quire.
"""


class LedgerState(StrEnum):
    """State of a ledger; it only moves forward (rule 1.5)."""

    OPEN = "open"
    IN_RECOVERY = "in_recovery"
    CLOSED = "closed"


class QuorumMode(StrEnum):
    """Rule for the replica set: fixed quorums with replacement, or Kafka's in-sync rule (section
    11).
    """

    QUORUM = "quorum"
    IN_SYNC = "in_sync"


class DigestType(StrEnum):
    """Protection of a batch beyond its own CRC: none, or a keyed MAC."""

    CRC32C = "crc32c"
    HMAC_SHA256 = "hmac-sha256"


@dataclass(frozen=True, slots=True)
class QuorumSpec:
    """Replication of a ledger: E >= WQ >= AQ >= 1, and S entries per stripe (rule 3.1)."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    stripe_entries: int = STRIPE_ENTRIES_DEFAULT
    mode: QuorumMode = QuorumMode.QUORUM
    min_in_sync: int = 1
    replica_lag_time_max_ms: int = 30_000

    def __post_init__(self) -> None:
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum >= 1:
            raise ValueError(
                "a quorum needs ensemble >= write >= ack >= 1, got "
                f"{self.ensemble_size}/{self.write_quorum}/{self.ack_quorum}"
            )
        if self.stripe_entries < 1:
            raise ValueError(f"stripe_entries must be at least 1, got {self.stripe_entries}")
        if self.mode is QuorumMode.IN_SYNC:
            self._check_in_sync()

    def _check_in_sync(self) -> None:
        if self.ack_quorum != self.ensemble_size:
            raise ValueError(
                "in-sync mode needs equal numbers for ensemble, write quorum and ack quorum, got "
                f"{self.ensemble_size}/{self.write_quorum}/{self.ack_quorum}"
            )
        if not 1 <= self.min_in_sync <= self.ensemble_size:
            raise ValueError(
                f"min_in_sync must be 1 to {self.ensemble_size}, got {self.min_in_sync}"
            )
        if self.replica_lag_time_max_ms < 1:
            raise ValueError("replica_lag_time_max must be at least 1 ms")

    @property
    def is_in_sync(self) -> bool:
        """Whether Kafka's rule determines the replica set (section 11)."""
        return self.mode is QuorumMode.IN_SYNC

    def with_members(self, count: int) -> "QuorumSpec":
        """Return the quorum of an in-sync fragment with `count` members: all of them (11.1)."""
        return replace(
            self,
            ensemble_size=count,
            write_quorum=count,
            ack_quorum=count,
            min_in_sync=min(self.min_in_sync, count),
        )


@dataclass(frozen=True, slots=True)
class Fragment:
    """Entries from `first_entry_id` to below the next fragment's first entry, and the bookies that
    hold them.

    `incoming` names bookies to which a repair copies entries (rule 9.1); their copies do not count
    yet.
    """

    first_entry_id: EntryId
    ensemble: tuple[BookieId, ...]
    incoming: tuple[BookieId, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """Metadata of one ledger, as the cluster agreed on it (rule 1.1). Change it only through its
    methods.
    """

    ledger_id: LedgerId
    state: LedgerState
    quorum: QuorumSpec
    fragments: tuple[Fragment, ...]
    digest: DigestType
    created_ms: int
    creation_token: UpdateToken
    update_token: UpdateToken
    writer: ClientId
    last_entry_id: EntryId | None = None
    length: int | None = None
    custom: Mapping[str, str | bytes] = field(default_factory=lambda: MappingProxyType({}))
    given_up: tuple[Fragment, ...] = ()
    """Fragments that an unclean recovery cut off (rule 11.6). Their entries from the first one's
    first entry on may have been acknowledged, and no longer belong to the ledger.
    """
    lost: tuple[LostRange, ...] = ()
    """Entries whose loss an operator accepted (rule 9.9): nothing returns them any more."""
    encryption: PayloadEncryption | None = None
    """How the payloads are encrypted; None for a ledger with plain payloads. Never changes."""
    owner: str = NO_OWNER
    """Principal that created the ledger; empty if none was known. Never changes."""

    def __post_init__(self) -> None:
        assert self.fragments, "a ledger has at least one fragment"
        assert self.fragments[0].first_entry_id == 0, "the first fragment starts at entry 0"
        firsts = [fragment.first_entry_id for fragment in self.fragments]
        assert all(a < b for a, b in pairwise(firsts)), "fragments increase"
        for fragment in self.fragments:
            assert len(set(fragment.ensemble)) == len(fragment.ensemble), "an ensemble is distinct"
        assert len(self.update_token) == UPDATE_TOKEN_BYTES
        closed = self.state is LedgerState.CLOSED
        assert closed or not self.given_up, "only a closed ledger has given up entries"
        assert not (why := why_invalid(self.lost, self.last_entry_id)), why
        assert closed == (self.last_entry_id is not None), "a last entry exactly when closed"
        assert closed == (self.length is not None), "a length exactly when closed"
        assert not self.owner or is_owner(self.owner), "an owner is a principal"

    @property
    def is_unclaimed(self) -> bool:
        """Whether the ledger has no writer yet: it was created to be filled by another client, and
        that client claims it before its first entry.
        """
        return self.state is LedgerState.OPEN and UNCLAIMED_NAME in self.custom

    @property
    def last_fragment(self) -> Fragment:
        """The only fragment that a writer may change (rule 5.1)."""
        return self.fragments[-1]

    def quorum_of(self, fragment: Fragment) -> QuorumSpec:
        """Return the quorum of one fragment: the ledger's, or in in-sync mode all its members
        (11.1).
        """
        size = len(fragment.ensemble)
        if not self.quorum.is_in_sync or size == self.quorum.ensemble_size:
            return self.quorum
        return self.quorum.with_members(size)

    @property
    def in_sync_members(self) -> tuple[BookieId, ...]:
        """Members of the last fragment that every earlier fragment names too: they hold each entry
        of the ledger (rule 11.2). Only meaningful in in-sync mode.
        """
        members = self.last_fragment.ensemble
        return tuple(member for member in members if not any(self.fragments_without(member)))

    def fragments_without(self, bookie_id: BookieId) -> Iterator[Fragment]:
        """Yield the fragments before the last one that do not name a bookie, the newest first: a
        member of the last one catches up with these (rule 11.2).
        """
        earlier = reversed(self.fragments[:-1])
        return (fragment for fragment in earlier if bookie_id not in fragment.ensemble)

    def last_entry_of(self, index: int) -> EntryId | None:
        """Return the last entry of a fragment, below its first one if it has no entry; None while
        it is open.
        """
        end = self.last_entry_id
        if index + 1 == len(self.fragments):
            return end
        before_next = EntryId(self.fragments[index + 1].first_entry_id - 1)
        return before_next if end is None else min(end, before_next)

    def fragment_of(self, entry_id: EntryId) -> Fragment:
        """Return the fragment that contains, or would contain, an entry."""
        return self.fragments[self.fragment_index_of(entry_id)]

    def fragment_index_of(self, entry_id: EntryId) -> int:
        """Return the index of the fragment with the greatest first entry id that is <=
        `entry_id`.
        """
        low, high = 0, len(self.fragments)
        while high - low > 1:
            middle = (low + high) // 2
            if self.fragments[middle].first_entry_id <= entry_id:
                low = middle
            else:
                high = middle
        return low

    def lost_range_of(self, entry_id: int) -> LostRange | None:
        """Return the range of lost entries that contains an entry (rule 9.9)."""
        return range_of(self.lost, entry_id)

    def names(self, bookie_id: BookieId) -> bool:
        """Return whether any fragment names a bookie, including incoming ones (rule 10.1) and
        given-up fragments. Entries that an unclean recovery cut off are kept for inspection.
        """
        return any(
            bookie_id in f.ensemble or bookie_id in f.incoming
            for f in (*self.fragments, *self.given_up)
        )

    def with_ensemble_change(
        self, first_entry_id: EntryId, ensemble: tuple[BookieId, ...], token: UpdateToken
    ) -> "LedgerMetadata":
        """Make `ensemble` store the entries from `first_entry_id` on (rule 5.1): in a new fragment,
        or in the last one if it starts there. Raises InvalidTransitionError unless OPEN.
        """
        self._require(LedgerState.OPEN)
        fragments = self._fragments_from(first_entry_id, ensemble)
        return replace(self, fragments=fragments, update_token=token)

    def with_recovery_begun(self, token: UpdateToken) -> "LedgerMetadata":
        """Move OPEN to IN_RECOVERY (rule 7.1). Raises InvalidTransitionError in any other state."""
        self._require(LedgerState.OPEN)
        return replace(self, state=LedgerState.IN_RECOVERY, update_token=token)

    def with_closed(
        self, last_entry_id: EntryId, length: int, token: UpdateToken
    ) -> "LedgerMetadata":
        """Close at the writer's LAC (rule 6.1). Raises InvalidTransitionError unless OPEN."""
        self._require(LedgerState.OPEN)
        return self._closed(self.fragments, last_entry_id, length, token)

    def with_recovered(
        self,
        recovered: tuple[Fragment, ...],
        last_entry_id: EntryId,
        length: int,
        token: UpdateToken,
    ) -> "LedgerMetadata":
        """Close at the end that recovery found (rule 7.5). Raises InvalidTransitionError unless
        IN_RECOVERY.

        `recovered` are the fragments that recovery changed or added. They start at the fragment
        that was last when recovery began. All older fragments are kept as currently stored.
        """
        self._require(LedgerState.IN_RECOVERY)
        fragments = self.fragments
        if recovered:
            start = recovered[0].first_entry_id
            kept = tuple(f for f in self.fragments if f.first_entry_id < start)
            if start < self.last_fragment.first_entry_id:
                raise InvalidTransitionError(
                    self.ledger_id, "recovery may not change a fragment before the last one"
                )
            fragments = kept + recovered
        return self._closed(fragments, last_entry_id, length, token)

    def with_given_up(self, index: int, length: int, token: UpdateToken) -> "LedgerMetadata":
        """Close at the end of the fragment before `index`, and record the other fragments as given
        up (rule 11.6). If `index` is 0, no entry remains; the first fragment is kept without
        entries, because a ledger has at least one. Raises InvalidTransitionError unless
        IN_RECOVERY.
        """
        self._require(LedgerState.IN_RECOVERY)
        assert 0 <= index < len(self.fragments), "some fragment is given up"
        given_up = self.fragments[index:]
        last_entry_id = EntryId(given_up[0].first_entry_id - 1)
        closed = self._closed(self.fragments[: max(index, 1)], last_entry_id, length, token)
        return replace(closed, given_up=given_up)

    def with_fragment(self, index: int, fragment: Fragment, token: UpdateToken) -> "LedgerMetadata":
        """Replace one fragment in place, with the same first entry id: one step of a repair (rule
        9.1).
        """
        if self.fragments[index].first_entry_id != fragment.first_entry_id:
            raise InvalidTransitionError(
                self.ledger_id, "a repair keeps a fragment's first entry id"
            )
        if index == len(self.fragments) - 1 and self.state is not LedgerState.CLOSED:
            raise InvalidTransitionError(
                self.ledger_id, "the last fragment can be repaired only after the ledger is closed"
            )
        fragments = (*self.fragments[:index], fragment, *self.fragments[index + 1 :])
        return replace(self, fragments=fragments, update_token=token)

    def with_lost(
        self, ranges: Sequence[tuple[int, int]], accepted_ms: int, token: UpdateToken
    ) -> "LedgerMetadata":
        """Accept the loss of entries, given as ascending (first, last), in addition to those
        accepted before (rule 9.9). The end stays. Raises InvalidTransitionError unless CLOSED, and
        for more ranges than fit.
        """
        self._require(LedgerState.CLOSED)
        lost = with_ranges(self.lost, ranges, accepted_ms)
        if why := why_invalid(lost, self.last_entry_id):
            raise InvalidTransitionError(self.ledger_id, why)
        return replace(self, lost=lost, update_token=token)

    def _fragments_from(
        self, first_entry_id: EntryId, ensemble: tuple[BookieId, ...]
    ) -> tuple[Fragment, ...]:
        last = self.last_fragment
        if first_entry_id < last.first_entry_id:
            raise InvalidTransitionError(
                self.ledger_id,
                f"a fragment at {first_entry_id} would be before the last one, at "
                f"{last.first_entry_id}",
            )
        kept = self.fragments[:-1] if first_entry_id == last.first_entry_id else self.fragments
        return (*kept, Fragment(first_entry_id, ensemble))

    def _closed(
        self,
        fragments: tuple[Fragment, ...],
        last_entry_id: EntryId,
        length: int,
        token: UpdateToken,
    ) -> "LedgerMetadata":
        assert last_entry_id >= NO_ENTRY
        assert length >= 0
        return replace(
            self,
            state=LedgerState.CLOSED,
            fragments=fragments,
            last_entry_id=last_entry_id,
            length=length,
            update_token=token,
        )

    def _require(self, state: LedgerState) -> None:
        if self.state is not state:
            raise InvalidTransitionError(
                self.ledger_id, f"its state is {self.state}, and this change needs {state}"
            )
