"""Losses: which entries of a closed ledger have no copy, and storing that an operator accepts that.

An operator calls it; nothing in Quire accepts a loss by itself. Ledgers whose recovery cannot be
decided are in `quire.repair.undecided_end`.

Source: protocol rules 2.4, 8.2 and 9.9 to 9.11.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from bookie.wire.messages import ReadEntries, Status
from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.digest import LedgerKeys
from ledger_client.errors import LedgerNotFoundError, MetadataConflictError, UnauthorizedError
from ledger_client.reading.replica_reading import CALL_TIMEOUT_S, READ_BYTES, ReplicaReading
from ledger_client.reading.verified_entries import VerifiedEntries, verify_entries
from metadata.errors import (
    InvalidTransitionError,
    MetadataFormatError,
    NodeNotFoundError,
    VersionConflictError,
)
from metadata.ids import (
    UPDATE_TOKEN_BYTES,
    BookieId,
    EntryId,
    LedgerId,
    UpdateToken,
    Version,
)
from metadata.ledgers.copies import copies_of, ranges_by_bookie
from metadata.ledgers.entry_ranges import Range, common, merged, without
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.ledgers.lost_entries import entries_left
from metadata.paths import bookie_path
from metadata.registry.registration import REGISTRATION_CODEC
from metadata.repair.lifecycle import UNCHANGED, Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.store.ephemeral import unpack_held
from metadata.store.interface import MetadataStore, find


@dataclass(slots=True)
class BookieAnswers:
    """What one bookie said about the entries that it should hold."""

    bookie_id: BookieId
    expected: list[Range]
    gone: str = ""
    """Reason why it counts as lost without a question; empty if it was asked."""
    readable: list[Range] = field(default_factory=list)
    """Entries that it returned, with valid digests."""
    missing: list[Range] = field(default_factory=list)
    """Entries of which it said that it has none."""
    damaged: list[Range] = field(default_factory=list)
    """Entries that it has, and returns damaged or not at all."""
    failure: str = ""
    """Why it did not answer for the others."""

    @property
    def unknown(self) -> list[Range]:
        """Entries of which it gave no certain answer."""
        if self.gone:
            return []
        return without(self.expected, [*self.readable, *self.missing, *self.damaged])


@dataclass(frozen=True, slots=True)
class LossReport:
    """Entries that no bookie returns."""

    answers: tuple[BookieAnswers, ...]
    lost: tuple[Range, ...]
    """Entries that no bookie can return."""
    unknown: tuple[Range, ...]
    """Entries that a bookie without a certain answer may return."""
    given_up: tuple[BookieId, ...] = ()
    """Bookies without a certain answer that the operator gives up."""

    @property
    def unsure_bookies(self) -> dict[BookieId, str]:
        """Bookies whose answers would decide on unknown entries, and what they did instead."""
        return {
            answer.bookie_id: answer.failure
            for answer in self.answers
            if common(answer.unknown, self.unknown or self.lost)
        }

    def standing_of(self, answers: BookieAnswers) -> str:
        """Return why a bookie returns none of the lost and the unknown entries, as text."""
        unread = [*self.lost, *self.unknown]
        if answers.gone:
            return answers.gone
        parts = {
            "does not have them": answers.missing,
            "returns them damaged": answers.damaged,
            answers.failure or "gave no certain answer": answers.unknown,
        }
        return "; ".join(text for text, ranges in parts.items() if common(ranges, unread))


def judge_losses(
    ledger: LedgerMetadata,
    answers: Sequence[BookieAnswers],
    given_up: Collection[BookieId] = (),
) -> LossReport:
    """Return the lost entries of a closed ledger, without those accepted before (rule 9.10). What
    the bookies that are `given_up` did not answer counts as lost; else it is unknown. An entry that
    one bookie returned is not lost.
    """
    assert ledger.last_entry_id is not None, "the ledger is closed"
    readable = [entries for answer in answers for entries in answer.readable]
    unread = without(entries_to_find(ledger), readable)
    asked = (answer for answer in answers if answer.bookie_id not in given_up)
    unknown = common(unread, [entries for bookie in asked for entries in bookie.unknown])
    return LossReport(
        tuple(answers), tuple(without(unread, unknown)), tuple(unknown), tuple(given_up)
    )


def entries_to_find(ledger: LedgerMetadata) -> list[Range]:
    """Return the entries of a closed ledger, without those whose loss was accepted."""
    last = ledger.last_entry_id
    return [] if last is None else entries_left(ledger.lost, 0, last)


DAMAGED_READS_MAX: Final = 3
"""Number of reads of a listed entry after which it counts as damaged."""
DAMAGED_PAUSE_S: Final = 0.5
"""Pause between these reads, one for all entries of a bookie."""
HAS_A_COPY: Final = "has a copy from a repair that did not end, and is not a member"
NO_LEDGER: Final = (Status.NO_SUCH_LEDGER, Status.DELETED)
NEGATIVES: Final = (Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER)


class LossSurvey:
    """Asks the bookies of one ledger which entries each of them returns.

    Nothing is fenced and nothing is written. Only certain answers are recorded. A gap in the list
    of a bookie's entries is certain if a read of its first entry says so too: a bookie in limbo
    lists what is left, and answers UNKNOWN. An entry is damaged if the bookie lists it, does not
    return it in DAMAGED_READS_MAX reads, and lists it after them too: one whose disk has failed
    refuses both. A bookie that is marked as incoming is asked last: what it returns is unknown, not
    readable, because it is not a member.
    """

    def __init__(
        self, pool: BookiePool, keys: LedgerKeys, on_read: Callable[[int], None] = lambda _: None
    ) -> None:
        """`on_read` is called with the number of entries of each answer. The pool sends the key."""
        self._pool = pool
        self._keys = keys
        self._on_read = on_read

    async def ask_all(
        self, ledger: LedgerMetadata, gone: Mapping[BookieId, str]
    ) -> list[BookieAnswers]:
        """Ask each bookie of a closed ledger for the entries that no other one returned, then those
        that are marked as incoming. Bookies in `gone` are not asked. Raises UnauthorizedError.
        """
        assert ledger.last_entry_id is not None, "the ledger is closed"
        unread, answers = entries_to_find(ledger), list[BookieAnswers]()
        for bookie_id, expected in ranges_by_bookie(ledger, ledger.last_entry_id).items():
            bookie = BookieAnswers(bookie_id, expected, gone.get(bookie_id, ""))
            answers.append(bookie)
            if not bookie.gone:
                await self.ask(bookie, common(expected, unread))
                unread = without(unread, bookie.readable)
        for bookie_id, expected in _marked_ranges(ledger):
            bookie = BookieAnswers(bookie_id, common(expected, unread), gone.get(bookie_id, ""))
            answers.append(bookie)
            if not bookie.gone:
                await self.ask(bookie, bookie.expected)
            if bookie.readable:
                bookie.readable, bookie.failure = [], HAS_A_COPY
        return answers

    async def ask(self, bookie: BookieAnswers, wanted: Sequence[Range]) -> None:
        """Ask one bookie for some entries, and record its certain answers. Raises
        UnauthorizedError.
        """
        if not wanted:
            return
        reading = ReplicaReading(self._pool, bookie.bookie_id, self._keys)
        try:
            held = merged([stored_range async for stored_range in reading.stored_ranges()])
            left = await self._read(bookie, common(wanted, held))
            for _ in range(DAMAGED_READS_MAX - 1):
                if left:
                    await asyncio.sleep(DAMAGED_PAUSE_S)
                    left = await self._read(bookie, left)
            if left:
                bookie.damaged = common(left, [range_ async for range_ in reading.stored_ranges()])
            for first, last in without(wanted, held):
                if (await self._read_once(bookie, first, first)).status in NEGATIVES:
                    bookie.missing.append((first, last))
                else:
                    bookie.failure = "cannot say whether it has them (limbo)"
        except BookieCallError as error:
            self._require_authorized(error.status, bookie.bookie_id)
            bookie.failure = str(error)
            bookie.damaged.clear()
        finally:
            bookie.readable = merged(bookie.readable)
            bookie.damaged = merged(bookie.damaged)

    async def _read(self, bookie: BookieAnswers, listed: Sequence[Range]) -> list[Range]:
        """Read entries that the bookie lists; return those that may be damaged. Raises
        BookieCallError when it does not store the ledger any more.
        """
        left: list[Range] = []
        for first, last in listed:
            at = first
            while at <= last:
                answer = await self._read_once(bookie, at, last)
                if answer.next_entry_id > at:
                    bookie.readable.append((at, answer.next_entry_id - 1))
                    self._on_read(answer.next_entry_id - at)
                    at = answer.next_entry_id
                    continue
                if answer.status in NO_LEDGER:
                    why = f"listed entry {at}, and {answer.reason}"
                    raise BookieCallError(bookie.bookie_id, why, status=answer.status)
                if answer.status is Status.UNKNOWN:
                    left.append((at, at))
                else:
                    bookie.failure = f"lists entry {at}, and {answer.reason}"
                at += 1
        return merged(left)

    async def _read_once(self, bookie: BookieAnswers, first: int, last: int) -> VerifiedEntries:
        request = ReadEntries(
            self._keys.ledger_id, EntryId(first), EntryId(last), READ_BYTES, fence=False
        )
        answer = await self._pool.read_entries(bookie.bookie_id, request, timeout_s=CALL_TIMEOUT_S)
        self._require_authorized(answer.status, bookie.bookie_id)
        return verify_entries(answer, self._keys, EntryId(first), EntryId(last))

    def _require_authorized(self, status: Status | None, bookie_id: BookieId) -> None:
        if status is Status.UNAUTHORIZED:
            text = f"bookie {bookie_id} refused the password: search with the correct one"
            raise UnauthorizedError(text, ledger_id=self._keys.ledger_id)


def _marked_ranges(ledger: LedgerMetadata) -> list[tuple[BookieId, list[Range]]]:
    """Return the bookies that are marked as incoming, each with the entries of its fragment."""
    return [
        (bookie_id, copies.ranges)
        for fragment, copies in zip(ledger.fragments, copies_of(ledger), strict=True)
        for bookie_id in fragment.incoming
    ]


ATTEMPTS_MAX: Final = 5
"""Maximum number of searches while other processes change the ledger or its bookies."""
StoredMetadata = tuple[LedgerMetadata, Version]


@dataclass(frozen=True, slots=True)
class LossParts:
    """Parts of the cluster that a search and its acceptance use."""

    store: MetadataStore
    ledgers: LedgerStore
    rng: Random
    wall_clock_ms: Callable[[], int]

    def token(self) -> UpdateToken:
        """Return a new token for a change of metadata."""
        return UpdateToken(self.rng.randbytes(UPDATE_TOKEN_BYTES))

    async def read(self, ledger_id: LedgerId) -> StoredMetadata:
        """Read a ledger's metadata with a fresh read. Raises LedgerNotFoundError, MetadataError."""
        try:
            return await self.ledgers.get(ledger_id, fresh=True)
        except NodeNotFoundError as error:
            text = "it does not exist: it was never created, or was deleted"
            raise LedgerNotFoundError(text, ledger_id=ledger_id) from error

    async def gone_bookies(self, bookie_ids: Iterable[BookieId]) -> dict[BookieId, str]:
        """Return the bookies that are removed, or lost and not registered, with the reason. Raises
        MetadataError.
        """
        states = await LifecycleStore(self.store, self.rng).get_all()
        gone: dict[BookieId, str] = {}
        for bookie_id in bookie_ids:
            state = states.get(bookie_id, UNCHANGED).state
            if state is Lifecycle.REMOVED:
                gone[bookie_id] = "is removed"
            elif state is Lifecycle.LOST and await find(self.store, bookie_path(bookie_id)) is None:
                gone[bookie_id] = "is lost"
        return gone

    async def up_among(self, bookie_ids: Iterable[BookieId]) -> frozenset[BookieId]:
        """Return the bookies that are registered and not in limbo. Raises MetadataError."""
        up: list[BookieId] = []
        for bookie_id in bookie_ids:
            path = bookie_path(bookie_id)
            stored = await find(self.store, path)
            if stored is None:
                continue
            with contextlib.suppress(MetadataFormatError):  # of a later release: it is up
                held = unpack_held(path, stored.value).content
                if REGISTRATION_CODEC.unpack(path, held).is_in_limbo:
                    continue
            up.append(bookie_id)
        return frozenset(up)


class LossAcceptance:
    """The search for the lost entries of one ledger, and their acceptance.

    The stored ranges were found for the version that they replace. The states of bookies that were
    not asked are the same before and after the search, and no bookie that is given up is up before
    or after it.
    """

    def __init__(
        self, parts: LossParts, survey: LossSurvey, *, gives_up_unknown: bool = False
    ) -> None:
        """With `gives_up_unknown`, bookies without a certain answer count as lost, unless they are
        up: a call to one that serves may fail once.
        """
        self._parts = parts
        self._survey = survey
        self._gives_up_unknown = gives_up_unknown

    async def search(self, ledger: LedgerMetadata) -> LossReport:
        """Find the lost entries of a closed ledger. Raises UnauthorizedError, MetadataError."""
        gone = await self._parts.gone_bookies(_members(ledger))
        answers = await self._survey.ask_all(ledger, gone)
        unsure = [answer.bookie_id for answer in answers if answer.unknown]
        up = await self._parts.up_among(unsure) if self._gives_up_unknown else frozenset(unsure)
        return judge_losses(ledger, answers, frozenset(unsure) - up)

    async def accept(self, ledger_id: LedgerId) -> tuple[LedgerMetadata, LossReport]:
        """Find the lost entries of a closed ledger and store them; return the stored metadata, and
        what was found for it. Entries without a certain answer stay as they are.

        Raises MetadataConflictError when the ledger or its bookies change during each of
        ATTEMPTS_MAX searches, and when there are too many ranges; LedgerNotFoundError,
        UnauthorizedError, MetadataError.
        """
        parts = self._parts
        for _ in range(ATTEMPTS_MAX):
            ledger, version = await parts.read(ledger_id)
            report = await self.search(ledger)
            if not report.lost:
                return ledger, report
            if await self.has_changed(report):
                continue
            try:
                changed = ledger.with_lost(report.lost, parts.wall_clock_ms(), parts.token())
                await parts.ledgers.compare_and_set(changed, version)
            except VersionConflictError:
                continue
            except InvalidTransitionError as error:
                raise MetadataConflictError(error.why, ledger_id=ledger_id) from error
            return changed, report
        raise MetadataConflictError(
            f"the ledger or its bookies changed during each of {ATTEMPTS_MAX} searches: nothing "
            "was accepted; try again",
            ledger_id=ledger_id,
        )

    async def has_changed(self, report: LossReport) -> bool:
        """Return whether a bookie that was not asked, or is given up, may have returned since."""
        before = {answer.bookie_id: answer.gone for answer in report.answers if answer.gone}
        has_returned = await self._parts.gone_bookies(before) != before
        return has_returned or bool(await self._parts.up_among(report.given_up))


def _members(ledger: LedgerMetadata) -> dict[BookieId, None]:
    fragments = ledger.fragments
    return dict.fromkeys(b for part in fragments for b in (*part.ensemble, *part.incoming))
