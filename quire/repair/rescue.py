"""Rescue of ledgers that bookies hold and the metadata does not know.

A dump that is restored does not know the ledgers that were created after it. Their copies are still
there: a bookie stores a ledger's key, which begins with its creation token, and each batch has the
writer's LAC. A rescue reads all copies and stores metadata under the old id that names the bookies
which returned them. No entry is copied; repair makes the copies that are missing.

Leaves finding such ledgers to `quire.operate.held_ledgers`.

Invariants: an entry counts for a bookie only if it returned it with a valid digest; a ledger whose
metadata is stored was fenced first on every bookie that holds it; the end is not before an entry
that is known to be acknowledged; entries before the end that no bookie returned are recorded as
lost.

Source: protocol rules 4.2, 4.5, 7.2, 9.9, 10.6 and 11.1; docs/runbooks.md, "ZooKeeper lost and
restored".
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bookie.wire.messages import ReadEntries, ReadLac
from ledger_client.bookies.pool import BookieCallError, BookiePool
from ledger_client.digest import LedgerKeys, creation_token_in
from ledger_client.reading.replica_reading import CALL_TIMEOUT_S, ReadOutcome, ReplicaReading
from metadata.errors import InvalidTransitionError
from metadata.ids import NO_ENTRY, BookieId, ClientId, EntryId, LedgerId, UpdateToken
from metadata.ledgers.entry_ranges import Range, merged, within, without
from metadata.ledgers.ledger_metadata import (
    FRAGMENTS_MAX,
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumMode,
    QuorumSpec,
)
from metadata.ledgers.payload_encryption import PayloadEncryption
from quire.repair.attempts import ANSWER_S, read_master_key

WRITER: Final = ClientId("rescue")


@dataclass(slots=True)
class FoundCopies:
    """What bookies hold of one ledger."""

    keys: LedgerKeys
    lac: int = NO_ENTRY
    """Highest LAC that a bookie knows: the entries up to it were acknowledged."""
    readable: dict[BookieId, list[Range]] = field(default_factory=dict)
    """Entries that each bookie returned, with valid digests."""
    damaged: dict[BookieId, list[Range]] = field(default_factory=dict)
    """Entries that it lists, and does not return or returns damaged."""
    failures: dict[BookieId, str] = field(default_factory=dict)
    """Why it did not answer for all of its entries."""
    sizes: list[tuple[int, int, int]] = field(default_factory=list)
    """First and last entry and payload bytes of entries that are next to each other; each entry
    counts once.
    """
    all_answered: bool = True
    """Whether every bookie of the cluster was asked, and none of them is in limbo."""

    @property
    def present(self) -> list[Range]:
        """Entries that some bookie returned."""
        return merged(entries for ranges in self.readable.values() for entries in ranges)

    @property
    def unread(self) -> list[Range]:
        """Entries that bookies hold, and none returned."""
        held = merged(entries for ranges in self.damaged.values() for entries in ranges)
        return without(held, self.present)

    @property
    def is_certain(self) -> bool:
        """Whether an entry that was not found was never stored."""
        return self.all_answered and not self.failures and not self.unread

    @property
    def last_entry_id(self) -> EntryId:
        """Last entry of the ledger. An entry that was never stored was not acknowledged, and so no
        later one was: the ledger ends at the first gap after the LAC. Without certainty, it ends at
        the last entry that is known to exist.
        """
        ends = [self.lac, *(last for first, last in self.present if first <= self.lac + 1)]
        if not self.is_certain:
            ends += [last for _, last in (*self.present, *self.unread)]
        return EntryId(max(ends))

    @property
    def lost(self) -> list[Range]:
        """Entries before the end that no bookie returned."""
        return without([(0, self.last_entry_id)], self.present) if self.last_entry_id >= 0 else []

    @property
    def fewest_copies(self) -> int:
        """Least number of copies of an entry that is not lost; 0 if there is none."""
        parts = _parts(self.readable, self.last_entry_id)
        return min((len(names) for _, names in parts if names), default=0)


class RescueSurvey:
    """Reads what bookies hold of single ledgers; the pool presents the key of repair."""

    def __init__(self, pool: BookiePool, on_read: Callable[[int], None] = lambda _: None) -> None:
        """`on_read` is called with the numbers of entries that were read."""
        self._pool = pool
        self._on_read = on_read

    async def read(
        self, ledger_id: LedgerId, holders: Sequence[BookieId], password: bytes, *, fence: bool
    ) -> FoundCopies | None:
        """Read all copies of a ledger; None if no bookie knows its key, and so none has an entry.
        Raises UnauthorizedError, QuorumTimeoutError, NotEnoughBookiesError.
        """
        pool = self._pool
        keys = await attach_copies(pool, ledger_id, holders, password)
        if keys is None:
            return None
        try:
            replicas = FoundCopies(keys)
            for bookie_id in holders:
                try:
                    await self._read_one(replicas, bookie_id, fence=fence)
                except BookieCallError as error:
                    replicas.failures[bookie_id] = str(error)
            return replicas
        finally:
            pool.detach(ledger_id)

    async def _read_one(self, replicas: FoundCopies, bookie_id: BookieId, *, fence: bool) -> None:
        request = ReadLac(replicas.keys.ledger_id, fence=fence)
        known = await self._pool.read_lac(bookie_id, request, timeout_s=CALL_TIMEOUT_S)
        replicas.lac = max(replicas.lac, known.lac)
        reading = ReplicaReading(self._pool, bookie_id, replicas.keys)
        readable = replicas.readable[bookie_id] = list[Range]()
        damaged = replicas.damaged[bookie_id] = list[Range]()
        seen = replicas.present
        async for listed in reading.stored_ranges():
            async for piece in reading.read(*listed):
                if piece.outcome is not ReadOutcome.READ:
                    damaged.append((piece.first, piece.last))
                    continue
                readable.append((piece.first, piece.last))
                for first, last in without([(piece.first, piece.last)], within(seen, *listed)):
                    lengths = piece.lengths[first - piece.first : last + 1 - piece.first]
                    _add_size(replicas.sizes, first, last, sum(lengths))
                self._on_read(piece.last - piece.first + 1)
        readable[:], damaged[:] = merged(readable), merged(damaged)


async def attach_copies(
    pool: BookiePool, ledger_id: LedgerId, holders: Sequence[BookieId], password: bytes
) -> LedgerKeys | None:
    """Attach the key of a ledger without metadata, and return its keys; None if none of these
    bookies knows it. The pool presents the key of repair. The caller detaches the ledger. Raises
    UnauthorizedError, QuorumTimeoutError, NotEnoughBookiesError.
    """
    key = await read_master_key(pool, ledger_id, holders, timeout_s=ANSWER_S)
    if key is None:
        return None
    pool.attach(ledger_id, key)
    plain = LedgerKeys.of_copy(ledger_id, key, password, is_keyed=False)
    for bookie_id in holders:
        try:
            async for first, _ in ReplicaReading(pool, bookie_id, plain).stored_ranges():
                request = ReadEntries(ledger_id, EntryId(first), EntryId(first), 1, fence=False)
                answer = await pool.read_entries(bookie_id, request, timeout_s=CALL_TIMEOUT_S)
                if answer.batches:
                    is_keyed = answer.batches[0].header.is_keyed
                    return LedgerKeys.of_copy(ledger_id, key, password, is_keyed=is_keyed)
        except BookieCallError:
            continue  # the reading of this bookie meets it again
    return plain


def rescued_ledger(
    replicas: FoundCopies,
    *,
    now_ms: int,
    token: UpdateToken,
    encryption: PayloadEncryption | None = None,
) -> LedgerMetadata:
    """Return the metadata of a closed ledger of these copies. Each fragment names exactly the
    bookies that returned its entries, as in in-sync mode (rule 11.1), so repair makes the others.
    Raises InvalidTransitionError if the ledger has too many parts.
    """
    keys, last = replicas.keys, replicas.last_entry_id
    fragments = _fragments(replicas.readable, last)
    if len(fragments) > FRAGMENTS_MAX:
        why = f"its copies make {len(fragments)} fragments, and at most {FRAGMENTS_MAX} fit"
        raise InvalidTransitionError(keys.ledger_id, why)
    most = max(len(fragment.ensemble) for fragment in fragments)
    ledger = LedgerMetadata(
        ledger_id=keys.ledger_id,
        state=LedgerState.CLOSED,
        quorum=QuorumSpec(most, most, most, mode=QuorumMode.IN_SYNC),
        fragments=fragments,
        digest=DigestType.HMAC_SHA256 if keys.have_macs else DigestType.CRC32C,
        created_ms=now_ms,
        creation_token=creation_token_in(keys.master_key),
        update_token=token,
        writer=WRITER,
        last_entry_id=last,
        length=sum(size for _, end, size in replicas.sizes if end <= last),
        encryption=encryption,
    )
    return ledger.with_lost(replicas.lost, now_ms, token) if replicas.lost else ledger


def _fragments(readable: dict[BookieId, list[Range]], last: int) -> tuple[Fragment, ...]:
    fragments = [Fragment(EntryId(0), tuple(readable))]  # if no bookie has an entry
    for first, names in _parts(readable, last):
        if not first:
            fragments = [Fragment(EntryId(0), names or tuple(readable))]
        elif names and names != fragments[-1].ensemble:  # lost entries belong to the one before
            fragments.append(Fragment(EntryId(first), names))
    return tuple(fragments)


def _parts(
    readable: dict[BookieId, list[Range]], last: int
) -> Iterable[tuple[int, tuple[BookieId, ...]]]:
    """Yield where the bookies change that have the entries up to `last`, and which have them."""
    ends = (edge for ranges in readable.values() for a, b in ranges for edge in (a, b + 1))
    for first in sorted(dict.fromkeys((0, *ends))):
        if first <= last:
            names = (name for name, held in readable.items() if within(held, first, first))
            yield first, tuple(names)


def _add_size(sizes: list[tuple[int, int, int]], first: int, last: int, size: int) -> None:
    if sizes and sizes[-1][1] + 1 == first:
        begin, _, before = sizes.pop()
        first, size = begin, before + size
    sizes.append((first, last, size))
