"""Search for the lost entries of a closed ledger, and storing of their accepted loss.

Leaves the questions to `quire.repair.losses.survey`, the decision to
`quire.repair.losses.lost_ranges`, and ledgers that are not closed to
`quire.repair.losses.undecided_end`.

Invariants: the stored ranges were found for the version that they replace; the states of bookies
that were not asked are the same before and after the search, and no bookie that is given up is up
before or after it. An operator calls it; nothing in Quire accepts a loss by itself.

Source: protocol rules 9.9 and 9.10.
"""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from ledger_client.errors import LedgerNotFoundError, MetadataConflictError
from metadata.errors import (
    InvalidTransitionError,
    MetadataFormatError,
    NodeNotFoundError,
    VersionConflictError,
)
from metadata.ids import UPDATE_TOKEN_BYTES, BookieId, LedgerId, UpdateToken, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import bookie_path
from metadata.registry.registration import REGISTRATION_CODEC
from metadata.repair.lifecycle import UNCHANGED, Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.store.ephemeral import unpack_held
from metadata.store.interface import MetadataStore, find
from quire.repair.losses.lost_ranges import LossReport, judge_losses
from quire.repair.losses.survey import LossSurvey

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
    """The search for the lost entries of one ledger, and their acceptance."""

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
        unsure = [each.bookie_id for each in answers if each.unknown]
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
        before = {each.bookie_id: each.gone for each in report.answers if each.gone}
        has_returned = await self._parts.gone_bookies(before) != before
        return has_returned or bool(await self._parts.up_among(report.given_up))


def _members(ledger: LedgerMetadata) -> dict[BookieId, None]:
    fragments = ledger.fragments
    return dict.fromkeys(b for each in fragments for b in (*each.ensemble, *each.incoming))
