"""Gaps: entries that silent members of a fragment miss, and their later delivery.

Leaves the copies to `copying`.

Invariants: a member has at most one open-ended gap, its last; a gap that was open-ended ends with
its fragment or with its bookie's silence, whichever is first.

Source: protocol rules 4.6, 6.3.
"""

from benchmarks.fleet.bookies import Silence
from benchmarks.fleet.copying import Copying
from benchmarks.fleet.ledgers import Gap, Ledger
from benchmarks.fleet.world import World
from metadata.ids import BookieId


class Gaps:
    """Gaps of all ledgers."""

    def __init__(self, world: World, copying: Copying) -> None:
        self._world = world
        self._copying = copying

    def begin(self, ledger: Ledger, bookie_id: BookieId) -> None:
        """Record that a silent member misses the entries appended from now on."""
        silence = self._world.bookies.silent[bookie_id]
        gaps = ledger.gaps.get(bookie_id, [])
        if gaps and gaps[-1].end is None:
            gaps[-1].will_arrive &= silence.keeps_what_was_sent
            return
        gap = Gap(ledger.end(self._world.now), None, silence.keeps_what_was_sent)
        self._world.alter(ledger, lambda: ledger.gaps.setdefault(bookie_id, []).append(gap))
        self._world.lacking.setdefault(bookie_id, {})[ledger.number] = ledger

    def end_with_fragment(self, ledger: Ledger) -> None:
        """End the open-ended gaps at the end of the fragment."""
        for gaps in ledger.gaps.values():
            if gaps[-1].end is None:
                gaps[-1].end = ledger.end(self._world.now)

    def end_with_silence(self, bookie_id: BookieId, silence: Silence) -> None:
        """Deliver what was sent to a bookie that is back, and queue copies of the rest."""
        for ledger in list(self._world.lacking.get(bookie_id, {}).values()):
            self._arrive(ledger, bookie_id, silence)

    def _arrive(self, ledger: Ledger, bookie_id: BookieId, silence: Silence) -> None:
        gaps = ledger.gaps[bookie_id]
        end = ledger.end(self._world.now)

        def arrive() -> None:
            if gaps[-1].end is None:
                gaps[-1].end = end
            gaps[:] = [gap for gap in gaps if _is_left(gap, silence)]
            if not gaps:
                self._world.drop_gaps(ledger, bookie_id)

        self._world.alter(ledger, arrive)
        if gaps:
            self._copying.fill_gaps(ledger, bookie_id)


def _is_left(gap: Gap, silence: Silence) -> bool:
    arrives = gap.will_arrive and silence.keeps_what_was_sent
    return gap.end is not None and gap.first < gap.end and not arrives
