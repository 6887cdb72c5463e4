"""Checkers of each change of the stored metadata of a ledger, and of what it says of the copies."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Final
from unittest.mock import patch

from typing_extensions import override

from ledger_client.recovery.missing_writers import SESSIONS
from metadata.errors import NodeNotFoundError
from metadata.ids import ENTRY_ID_MAX, BookieId, Version
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from metadata.paths import CLIENTS, client_path
from metadata.store.memory import MemoryMetadataServer
from metadata.store.memory_tree import NodeChange
from quire.repair.attempts import Outcome
from quire.repair.open_ledger_repair import OpenLedgerRepair
from quire.repair.standing import Standings
from tests.simulation.checkers.bookie_answers import DISTINCT_BYTES
from tests.simulation.checkers.checker import Checker
from tests.simulation.disk import Platter
from tests.simulation.model import (
    LedgerModel,
    Model,
    copies_wanted,
    fragment_of,
    members_in_sync,
    write_set,
)

ALLOWED = (
    (LedgerState.OPEN, LedgerState.OPEN),
    (LedgerState.OPEN, LedgerState.IN_RECOVERY),
    (LedgerState.OPEN, LedgerState.CLOSED),
    (LedgerState.IN_RECOVERY, LedgerState.IN_RECOVERY),
    (LedgerState.IN_RECOVERY, LedgerState.CLOSED),
    (LedgerState.CLOSED, LedgerState.CLOSED),
)


class ClosingChecker(Checker):
    """A ledger is closed once, with one last entry and the right length.

    The last entry is not before an acknowledged one. Entries that an unclean recovery gives up are
    judged by `UncleanChecker`.

    Source: protocol rules 1.5, 6.1, 6.2, 7.5; invariants "a closed ledger ends at or after every
    acked entry", "one close, one last entry", "no ack after another's close".
    """

    name = "closing"

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        now = ledger.metadata
        if now is None:
            return
        where = f"ledger {ledger.ledger_id}"
        if before is not None and (before.state, now.state) not in ALLOWED:
            self.report(f"{where} went from {before.state} to {now.state}")
        if now.state is not LedgerState.CLOSED:
            return
        assert now.last_entry_id is not None
        if ledger.closed_at is None:
            ledger.closed_at = now.last_entry_id
            self._look_at_first_close(ledger, now)
        elif ledger.closed_at != now.last_entry_id:
            self.report(f"{where} was closed at {ledger.closed_at} and then at {now.last_entry_id}")
        elif before is not None and now.length != before.length:
            self.report(f"{where} had the length {before.length} and then {now.length}")

    @override
    def on_confirmed(self, ledger: LedgerModel, entry_id: int, expected: int) -> None:
        # a writer learns later of an unclean close: see `reach.unclean_closes`
        if ledger.closed_at is not None and entry_id > max(ledger.closed_at, ledger.lost_to):
            self.report(
                f"ledger {ledger.ledger_id} was closed at {ledger.closed_at}, then an append of "
                f"entry {entry_id} succeeded"
            )

    def _look_at_first_close(self, ledger: LedgerModel, now: LedgerMetadata) -> None:
        where = f"ledger {ledger.ledger_id} closed at {now.last_entry_id}"
        assert now.last_entry_id is not None
        if now.last_entry_id < ledger.confirmed and not now.given_up:
            self.report(f"{where}, and entry {ledger.confirmed} was confirmed")
        seen = max(ledger.readers.values(), default=-1)
        if now.last_entry_id < seen and not now.given_up:
            self.report(f"{where}, and a reader's LAC is {seen}")
        ids = range(now.last_entry_id + 1)
        if any(entry_id not in ledger.payloads for entry_id in ids):
            self.report(f"{where}, beyond what was ever appended")
            return
        length = sum(len(ledger.payloads[entry_id]) for entry_id in ids)
        if length != now.length:
            self.report(f"{where} with length {now.length}, and its entries have {length} bytes")


class FragmentsChecker(Checker):
    """Stored fragments are contiguous, and only allowed changes are made to them.

    The last fragment of an open ledger may change. Others change only by copy-then-swap: a target
    is marked as incoming, and only a marked bookie becomes a member.

    Source: protocol rules 1.1, 1.5, 5.1, 7.5, 9.1, 11.2; invariant "fragments contiguous, only the
    last one mutable except for copy-then-swap".
    """

    name = "fragments"

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        now = ledger.metadata
        if now is None or before is None or now.fragments == before.fragments or now.given_up:
            return  # `UncleanChecker` judges them
        where = f"ledger {ledger.ledger_id}"
        was_closed = before.state is LedgerState.CLOSED
        kept = len(before.fragments) - (0 if was_closed else 1)
        if len(now.fragments) < len(before.fragments):
            self.report(f"{where}: fragments vanished: {before.fragments} {now.fragments}")
            return
        if was_closed and len(now.fragments) > len(before.fragments):
            self.report(f"{where} is closed, and has more fragments: {now.fragments}")
        pairs = zip(before.fragments[:kept], now.fragments[:kept], strict=True)
        steps = [(old, new) for old, new in pairs if old != new]
        if len(steps) > 1 or not all(_is_step_of_a_copy(old, new) for old, new in steps):
            self.report(f"{where}: older fragments changed: {before.fragments} {now.fragments}")
        if now.fragments[kept:] == before.fragments[kept:]:
            return
        if now.state is LedgerState.OPEN:
            self._look_at_change(ledger, before, now)
        elif now.state is LedgerState.IN_RECOVERY:
            self.report(f"{where}: a recovery stored its ensembles before its end: {now.fragments}")

    def _look_at_change(
        self, ledger: LedgerModel, before: LedgerMetadata, now: LedgerMetadata
    ) -> None:
        first, lac = now.last_fragment.first_entry_id, ledger.confirmed
        if first != lac + 1:
            self.report(
                f"ledger {ledger.ledger_id}: an ensemble change at entry {first}, and the LAC is "
                f"{lac} ({before.fragments})"
            )


def _is_step_of_a_copy(old: Fragment, new: Fragment) -> bool:
    """Return whether a mark was set or removed, or a marked bookie became a member."""
    if old.first_entry_id != new.first_entry_id:
        return False
    if old.ensemble == new.ensemble:
        return len({*old.incoming} ^ {*new.incoming}) == 1
    joined = [bookie for bookie in new.ensemble if bookie not in old.ensemble]
    left = [bookie for bookie in old.ensemble if bookie not in new.ensemble]
    if len(joined) != 1 or len(left) > 1 or joined[0] not in old.incoming:
        return False
    is_in_place = [bookie for bookie in new.ensemble if bookie not in joined] == [
        bookie for bookie in old.ensemble if bookie not in left
    ]
    unmarked = tuple(bookie for bookie in old.incoming if bookie not in joined)
    return is_in_place and new.incoming == unmarked


class MembersChecker(Checker):
    """The member set of an open in-sync ledger changes only in allowed ways.

    The stored set never shrinks below `min_in_sync`, the last in-sync member never leaves, and no
    current member is removed from an older fragment.

    A caught-up spare may replace a member that is away for long, even when too few members stay in
    sync. The number of members then stays the same, and nothing is acknowledged until enough are
    in sync. So the number in sync is limited only when the set gets smaller.

    Source: protocol rules 11.1, 11.2, 11.4.
    """

    name = "members"

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        now = ledger.metadata
        if now is None or not now.quorum.is_in_sync or now.state is not LedgerState.OPEN:
            return
        where, least = f"ledger {ledger.ledger_id}", now.quorum.min_in_sync
        members, in_sync = now.last_fragment.ensemble, members_in_sync(now)
        if not least <= len(members) <= now.quorum.ensemble_size:
            self.report(f"{where} has the members {members}, and {least} at least are wanted")
        if not in_sync:
            self.report(f"{where}: its last member in sync left: {now.fragments}")
        if before is None:
            return
        if len(members) < len(before.last_fragment.ensemble) and len(in_sync) < least:
            self.report(f"{where} shrank, and only {in_sync} are in sync: {now.fragments}")
        for old, new in zip(before.fragments[:-1], now.fragments, strict=False):
            ousted = [bookie for bookie in old.ensemble if bookie not in new.ensemble]
            if any(bookie in members for bookie in ousted):
                self.report(f"{where}: {ousted} left the fragment at {old.first_entry_id}")


class CopiesChecker(Checker):
    """Every acknowledged entry has enough copies on the bookies that stored metadata names.

    Enough is an ack quorum, also for every entry of a closed ledger. In in-sync mode it is every
    one of these bookies, including those that joined later.

    Source: protocol rules 4.4, 4.5, 5.1, 5.2, 7.4, 11.1, 11.2; invariant "ack implies stored
    metadata names those bookies".
    """

    name = "copies"

    @override
    def on_confirmed(self, ledger: LedgerModel, entry_id: int, expected: int) -> None:
        self._count(ledger, ledger.judged + 1, ledger.kept)

    @override
    def on_fully_replicated(self, ledger: LedgerModel, entry_id: int) -> None:
        metadata = ledger.metadata
        if metadata is None:
            return
        if metadata.given_up and entry_id > ledger.kept:
            return  # its writer has not learned yet that an unclean recovery gave it up (11.7)
        copies = self.model.copies(ledger, metadata, entry_id)
        fragment = fragment_of(metadata, entry_id)
        if len(copies) < copies_wanted(metadata, fragment, full=True):
            self.report(
                f"entry {entry_id} of ledger {ledger.ledger_id} is said to be on all of its write "
                f"quorum, and only {copies} acknowledged it ({metadata.fragments})"
            )

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        if before is None or ledger.metadata is None:
            return
        if ledger.is_closed and before.state is not LedgerState.CLOSED:
            assert ledger.metadata.last_entry_id is not None
            self._count(ledger, ledger.judged + 1, ledger.metadata.last_entry_id)
        if before.fragments != ledger.metadata.fragments:
            same = [
                one.first_entry_id
                for one, other in zip(before.fragments, ledger.metadata.fragments, strict=False)
                if one != other
            ]
            first = min(same, default=ledger.metadata.last_fragment.first_entry_id)
            self._count(ledger, first, ledger.kept)

    def _count(self, ledger: LedgerModel, first: int, last: int) -> None:
        metadata = ledger.metadata
        if metadata is None:
            return
        for entry_id in range(first, last + 1):
            copies = self.model.copies(ledger, metadata, entry_id)
            fragment = fragment_of(metadata, entry_id)
            if len(copies) < copies_wanted(metadata, fragment, full=False):
                self.report(
                    f"entry {entry_id} of ledger {ledger.ledger_id} may be read, and of its write "
                    f"set only {copies} acknowledged it ({metadata.state}, {metadata.fragments})"
                )
                return
        ledger.judged = max(ledger.judged, last)


class CatchingUpChecker(Checker):
    """A member of an older fragment of an in-sync ledger holds every entry of it durably.

    The check reads the member's disk in the step in which the metadata names it. It skips a
    damaged disk. That the entries can also be read there after healing is checked by `replicas`.

    Source: protocol rules 9.1, 11.2; invariant "a member is in sync once it holds every earlier
    entry".
    """

    name: Final = "catching up"

    def __init__(self, model: Model, sound_platter_of: Callable[[str], Platter | None]) -> None:
        """`sound_platter_of` returns a bookie's disk by its id, unless the disk was damaged."""
        super().__init__(model)
        self._platter_of = sound_platter_of

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        now = ledger.metadata
        if now is None or before is None or not now.quorum.is_in_sync or now.given_up:
            return
        for index, old in enumerate(before.fragments[:-1]):
            for bookie_id in now.fragments[index].ensemble:
                if bookie_id not in old.ensemble:
                    stop = before.fragments[index + 1].first_entry_id
                    self._look_at(ledger, str(bookie_id), range(old.first_entry_id, stop))

    def _look_at(self, ledger: LedgerModel, bookie_id: str, entry_ids: range) -> None:
        platter = self._platter_of(bookie_id)
        if platter is None:
            return
        for entry_id in entry_ids:
            payload = ledger.payloads[entry_id]
            if len(payload) >= DISTINCT_BYTES and not platter.holds(payload):
                self.report(
                    f"{bookie_id} was named for entries {entry_ids} of ledger {ledger.ledger_id}, "
                    f"and its disk does not hold entry {entry_id}"
                )
                return


class SwapsChecker(Checker):
    """A bookie becomes a member of a closed fragment only once it holds its entries.

    A bookie holds what it acknowledged. So a swap never leaves an entry with fewer copies.

    Source: protocol rules 9.1, 9.7 and 11.2; invariant "a new member of a closed fragment holds
    its entries".
    """

    name = "swaps"

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        now = ledger.metadata
        if before is None or now is None or before.fragments == now.fragments:
            return
        fragments = {fragment.first_entry_id: fragment for fragment in now.fragments}
        for old, last in _closed(before):
            new = fragments.get(old.first_entry_id)
            entered = [] if new is None else [b for b in new.ensemble if b not in old.ensemble]
            for entry_id in range(old.first_entry_id, last + 1) if entered else ():
                self._check(ledger, now, entered, entry_id)

    def _check(
        self, ledger: LedgerModel, now: LedgerMetadata, entered: list[BookieId], entry_id: int
    ) -> None:
        held = self.model.copies(ledger, now, entry_id)
        fragment = fragment_of(now, entry_id)
        wanted = write_set(now, fragment, entry_id)
        lacking = [b for b in entered if b in wanted and b not in held]
        if lacking:
            self.report(
                f"{lacking} became members of the fragment at {fragment.first_entry_id} of ledger "
                f"{ledger.ledger_id} and did not acknowledge entry {entry_id}: {now.fragments}"
            )


def _closed(metadata: LedgerMetadata) -> Iterator[tuple[Fragment, int]]:
    """Yield the closed fragments with their last entries."""
    fragments = metadata.fragments
    for fragment, following in pairwise(fragments):
        yield fragment, following.first_entry_id - 1
    if metadata.state is LedgerState.CLOSED and metadata.last_entry_id is not None:
        yield fragments[-1], metadata.last_entry_id


CLOCK_ERROR: Final = 0.05
"""Largest share by which a machine's clock is wrong, with some room."""


class WriterNodes:
    """Repair recovers a ledger only long after the node of its writer's client went.

    Source: protocol rule 9.2; invariant "repair fences no live writer".
    """

    def __init__(
        self, server: MemoryMetadataServer, model: Model, session_timeout_s: float
    ) -> None:
        self._server = server
        self._model = model
        self._wait_s = SESSIONS * session_timeout_s * (1 - CLOCK_ERROR)
        self._first_missing_s: dict[str, float] = {}
        server.open_session(self)

    def notice(self, change: NodeChange) -> None:
        """See `metadata.store.memory_server.Session`."""
        if not change.path.startswith(f"{CLIENTS}/"):
            return
        try:
            self._server.tree.get(change.path)
        except NodeNotFoundError:
            self._first_missing_s.setdefault(change.path, self._model.loop.now_s)

    def judge(self, ledger: LedgerMetadata) -> None:
        """Check a recovery that repair begins."""
        if ledger.state is not LedgerState.OPEN:
            return
        since_s = self._first_missing_s.get(client_path(ledger.writer))
        if since_s is None or self._model.loop.now_s - since_s < self._wait_s:
            self._model.report(
                "writer nodes",
                f"repair recovers ledger {ledger.ledger_id}, and the node of its writer's client "
                f"was never missing before {since_s} s",
            )


@contextmanager
def watched_recoveries(nodes: WriterNodes) -> Iterator[None]:
    """Judge every recovery that repair begins, in the step in which it begins."""
    recover = OpenLedgerRepair._recover

    async def watched(
        self: OpenLedgerRepair, ledger: LedgerMetadata, version: Version, standings: Standings
    ) -> Outcome:
        nodes.judge(ledger)
        return await recover(self, ledger, version, standings)

    with patch.object(OpenLedgerRepair, "_recover", watched):
        yield


class UncleanChecker(Checker):
    """What an unclean recovery gives up is recorded, and consists of complete fragments.

    No sound member that is up holds an entry of a fragment that was given up. The entries that
    remain are judged as those of any closed ledger.

    Source: protocol rule 11.6.
    """

    name = "unclean"

    def __init__(self, model: Model, is_sound: Callable[[str], bool]) -> None:
        """`is_sound` says, by its id, that a bookie serves, was never damaged, and is reached.

        It says so only after the faults: `reach.unclean_closes` judges what is given up before.
        """
        super().__init__(model)
        self._is_sound = is_sound

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        now = ledger.metadata
        if now is None or before is None:
            return
        where = f"ledger {ledger.ledger_id}"
        if before.given_up:
            if now.given_up != before.given_up:
                self.report(f"{where} gave up {before.given_up}, and now says {now.given_up}")
            return
        if now.given_up:
            self._look_at_close(ledger, before, now)
        elif len(now.fragments) < len(before.fragments):
            self.report(f"{where} lost {before.fragments[len(now.fragments) :]} without a word")

    def _look_at_close(
        self, ledger: LedgerModel, before: LedgerMetadata, now: LedgerMetadata
    ) -> None:
        where = f"ledger {ledger.ledger_id}"
        if before.state is not LedgerState.IN_RECOVERY or not now.quorum.is_in_sync:
            self.report(
                f"{where} was {before.state} in mode {now.quorum.mode}, and gave up entries"
            )
        gives_up_all = now.given_up[0].first_entry_id == 0  # then one fragment stays, empty
        kept = () if gives_up_all and now.fragments == before.fragments[:1] else now.fragments
        if (*kept, *now.given_up) != before.fragments:
            self.report(f"{where} had {before.fragments}, keeps {now.fragments}, {now.given_up}")
        elif now.last_entry_id != now.given_up[0].first_entry_id - 1:
            self.report(f"{where} gave up {now.given_up}, and ends at {now.last_entry_id}")
        ends = [part.first_entry_id for part in now.given_up[1:]]
        for part, end in zip(now.given_up, [*ends, ENTRY_ID_MAX + 1], strict=True):
            holders = [
                bookie
                for bookie in part.ensemble
                if self._is_sound(str(bookie))
                and self._holds(bookie, ledger, part.first_entry_id, end)
            ]
            if holders:
                self.report(f"{where} gave up {part}, and {holders} could have been asked")

    def _holds(self, bookie_id: str, ledger: LedgerModel, first: int, end: int) -> bool:
        held = self.model.held.get((bookie_id, ledger.ledger_id), ())
        return any(first <= entry_id < end for entry_id in held)
