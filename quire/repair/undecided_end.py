"""Close of a quorum ledger whose recovery cannot be decided, because bookies were lost for good.

Leaves the clean recovery, which is tried first, to `ledger_client.recovery.recoverer`, the end to
`quire.repair.losses`, and in-sync ledgers to `ledger_client.recovery.unclean_recovery`.

Invariants: each member of the last fragment that was not given up has answered for every entry
after the LAC, and has fenced if the result is stored; one that was given up is not up right before
that. The close is by compare-and-set, from IN_RECOVERY, together with the lost entries. Entries
after the LAC are not written back: they keep the copies that they have.

Source: protocol rule 9.11.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bookie.wire.messages import KNOWN, ReadLac
from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from ledger_client.errors import MetadataConflictError, RecoveryUndecidedError
from ledger_client.reading.followed_ledger import FollowedLedger
from ledger_client.reading.range_reader import RangeReader, find_length_before
from metadata.errors import InvalidTransitionError, VersionConflictError
from metadata.ids import ENTRY_ID_MAX, BookieId, EntryId, LedgerId, Version
from metadata.ledgers.copies import negatives_needed, ranges_by_bookie, write_set
from metadata.ledgers.entry_ranges import Range, common, merged
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState, QuorumSpec
from quire.repair.losses import (
    ATTEMPTS_MAX,
    BookieAnswers,
    LossAcceptance,
    LossParts,
    LossReport,
    LossSurvey,
)

FENCE_TIMEOUT_S: Final = 15.0
"""Time for each member to fence and answer."""


@dataclass(frozen=True, slots=True)
class AcceptedEnd:
    """End of a ledger whose recovery cannot be decided."""

    last_entry_id: EntryId
    is_proved: bool
    """Whether enough bookies never had the next entry: nothing after the end was acknowledged."""

    @property
    def lost_after(self) -> list[Range]:
        """Entries after the end that may have been acknowledged."""
        return [] if self.is_proved else [(self.last_entry_id + 1, ENTRY_ID_MAX)]


@dataclass(frozen=True, slots=True)
class EndReport:
    """Where a ledger ends if some bookies are given up."""

    end: AcceptedEnd
    gone: Mapping[BookieId, str]
    """Members of the last fragment that are lost or removed, with the reason."""
    silent: Mapping[BookieId, str]
    """Other members that are given up because they gave no certain answer."""
    losses: LossReport
    """Lost entries up to the end."""
    closed: LedgerMetadata
    """The metadata to store."""


@dataclass(frozen=True, slots=True)
class _Fences:
    lac: int
    highest: int
    answered: tuple[BookieId, ...]
    silent: Mapping[BookieId, str]


class UndecidedEnd:
    """Close of one ledger without the bookies that could decide its end."""

    def __init__(
        self,
        parts: LossParts,
        pool: BookiePool,
        keys: LedgerKeys,
        survey: LossSurvey,
        *,
        gives_up_unknown: bool = False,
    ) -> None:
        """With `gives_up_unknown`, bookies without a certain answer are given up too, unless they
        are up.
        """
        self._parts = parts
        self._pool = pool
        self._keys = keys
        self._survey = survey
        self._gives_up_unknown = gives_up_unknown
        self._losses = LossAcceptance(parts, survey, gives_up_unknown=gives_up_unknown)

    async def close(self, ledger_id: LedgerId) -> tuple[LedgerMetadata, EndReport | None]:
        """Close a ledger that is IN_RECOVERY; return its metadata, and what was found for it. The
        report is None if another process closed it.

        Raises the errors of `search`, and MetadataConflictError when the ledger or its bookies
        change during each of ATTEMPTS_MAX searches.
        """
        for _ in range(ATTEMPTS_MAX):
            ledger, version = await self._parts.read(ledger_id)
            if ledger.state is LedgerState.CLOSED:
                return ledger, None
            report = await self.search(ledger, version, fence=True)
            if await self._has_changed(report):
                continue
            try:
                await self._parts.ledgers.compare_and_set(report.closed, version)
            except VersionConflictError:
                continue
            return report.closed, report
        raise MetadataConflictError(
            f"the ledger or its bookies changed during each of {ATTEMPTS_MAX} searches: it was not "
            "closed; try again",
            ledger_id=ledger_id,
        )

    async def search(self, ledger: LedgerMetadata, version: Version, *, fence: bool) -> EndReport:
        """Find the end of a ledger that is not closed, and the lost entries before it. Without
        `fence` nothing is changed, and the end may still move.

        Raises RecoveryUndecidedError with the bookies that must answer or be given up;
        MetadataConflictError when there are too many lost ranges; UnauthorizedError, MetadataError,
        and the errors of a read when the length cannot be found.
        """
        gone = await self._parts.gone_bookies(ledger.last_fragment.ensemble)
        fences = await self._fence_all(ledger, gone, fence=fence)
        answers = await self._ask_members(ledger, fences)
        unsure = {answer.bookie_id: answer.failure for answer in answers if answer.unknown}
        await self._require_answers(ledger, unsure)
        quorum = ledger.quorum_of(ledger.last_fragment)
        end = accepted_end(quorum, ledger.last_fragment, EntryId(fences.lac), answers)
        token = self._parts.token()
        recovering = ledger
        if ledger.state is LedgerState.OPEN:
            recovering = ledger.with_recovery_begun(token)
        closed = recovering.with_recovered((), end.last_entry_id, 0, token)
        losses = await self._losses.search(closed)
        lost = [*losses.lost, *end.lost_after]
        closed = self._with_lost(closed, lost)
        length = await self._length_of(closed, version)
        closed = recovering.with_recovered((), end.last_entry_id, length, token)
        closed = self._with_lost(closed, lost)
        return EndReport(end, gone, {**fences.silent, **unsure}, losses, closed)

    async def _fence_all(
        self, ledger: LedgerMetadata, gone: Mapping[BookieId, str], *, fence: bool
    ) -> _Fences:
        """Request the LAC of every member that is not gone."""
        lac = highest = ledger.last_fragment.first_entry_id - 1
        silent: dict[BookieId, str] = {}
        answered: list[BookieId] = []
        for bookie_id in ledger.last_fragment.ensemble:
            if bookie_id in gone:
                continue
            request = ReadLac(ledger.ledger_id, fence=fence)
            try:
                reply = await self._pool.read_lac(bookie_id, request, timeout_s=FENCE_TIMEOUT_S)
            except BookieCallError as error:
                silent[bookie_id] = str(error)
                continue
            if reply.status not in KNOWN or (fence and not reply.fenced):
                silent[bookie_id] = f"answered {reply.status.name}"
                continue
            answered.append(bookie_id)
            lac, highest = max(lac, reply.lac), max(highest, reply.highest_entry_id)
        await self._require_answers(ledger, silent)
        return _Fences(lac, max(lac, highest), tuple(answered), silent)

    async def _ask_members(self, ledger: LedgerMetadata, fences: _Fences) -> list[BookieAnswers]:
        """Ask the members that have fenced for the entries after the LAC, and the one behind."""
        wanted = [(fences.lac + 1, fences.highest + 1)]
        expected = ranges_by_bookie(ledger, fences.highest + 1)
        answers: list[BookieAnswers] = []
        for bookie_id in fences.answered:
            bookie = BookieAnswers(bookie_id, common(expected[bookie_id], wanted))
            await self._survey.ask(bookie, bookie.expected)
            answers.append(bookie)
        return answers

    async def _require_answers(
        self, ledger: LedgerMetadata, silent: Mapping[BookieId, str]
    ) -> None:
        if self._gives_up_unknown:
            up = await self._parts.up_among(silent)
            silent = {bookie: f"it is up: {why}" for bookie, why in silent.items() if bookie in up}
        if not silent:
            return
        why = "; ".join(f"{bookie_id}: {reason}" for bookie_id, reason in silent.items())
        raise RecoveryUndecidedError(
            "its end is decided by bookies that are not known to be lost, and gave no certain "
            f"answer ({why}): bring them back, or give them up",
            ledger_id=ledger.ledger_id,
            missing={str(bookie): reason for bookie, reason in silent.items()},
        )

    def _with_lost(self, closed: LedgerMetadata, lost: Sequence[Range]) -> LedgerMetadata:
        if not lost:
            return closed
        parts = self._parts
        try:
            return closed.with_lost(lost, parts.wall_clock_ms(), parts.token())
        except InvalidTransitionError as error:
            raise MetadataConflictError(error.why, ledger_id=closed.ledger_id) from error

    async def _length_of(self, closed: LedgerMetadata, version: Version) -> int:
        config, rng = ClientConfig(), self._parts.rng
        ledger = FollowedLedger(closed, version, self._parts.ledgers, rng)
        ranges = RangeReader(ledger, self._keys, self._pool, config, rng)
        assert closed.last_entry_id is not None
        stop = EntryId(closed.last_entry_id + 1)
        return await find_length_before(ranges, stop, config.read_timeout_s)

    async def _has_changed(self, report: EndReport) -> bool:
        """Return whether a bookie that was not asked has another state now, or one that is given up
        is up.
        """
        before = {answer.bookie_id: answer.gone for answer in report.losses.answers if answer.gone}
        now = await self._parts.gone_bookies(answer.bookie_id for answer in report.losses.answers)
        members = report.closed.last_fragment.ensemble
        if now != before or {e: now[e] for e in members if e in now} != report.gone:
            return True
        given_up = (*report.silent, *report.losses.given_up)
        return bool(await self._parts.up_among(given_up))


def accepted_end(
    quorum: QuorumSpec, fragment: Fragment, lac: EntryId, answers: Sequence[BookieAnswers]
) -> AcceptedEnd:
    """Return the end of the last fragment (rule 9.11). `lac` is the highest one of the fences, and
    `answers` are those of the members that were not given up, for entries from `lac` + 1 to behind
    the highest one that they hold.
    """
    held = {answer.bookie_id: merged([*answer.readable, *answer.damaged]) for answer in answers}
    missing = {answer.bookie_id: merged(answer.missing) for answer in answers}
    highest = max((ranges[-1][1] for ranges in held.values() if ranges), default=lac)
    end = EntryId(max(lac, fragment.first_entry_id - 1))
    for entry_id in map(EntryId, range(end + 1, max(end, highest) + 2)):
        members = write_set(quorum, fragment, entry_id)
        if any(_contains(held.get(member, []), entry_id) for member in members):
            end = entry_id
            continue
        negatives = sum(_contains(missing.get(member, []), entry_id) for member in members)
        if negatives >= negatives_needed(quorum):
            return AcceptedEnd(end, is_proved=entry_id == end + 1)
    return AcceptedEnd(end, is_proved=False)


def _contains(ranges: Sequence[Range], entry_id: EntryId) -> bool:
    return any(first <= entry_id <= last for first, last in ranges)
