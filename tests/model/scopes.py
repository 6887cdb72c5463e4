"""List of the configurations to explore.

Leaves the exploration to `search`, the size of a world to `words.Scope`, and in-sync mode to
`scopes_in_sync`.

Covered: E=WQ=3 with AQ 1, 2 and 3, and E=WQ=AQ=2, with a spare or two; E=3, WQ=2 for the writer
alone, whose recovery would open a read per entry. One to three entries of a batch each, a writer,
up to two recoverers; changes of the ensemble at any moment, false failures, spares that join late,
closes at any moment, a repair, unknown outcomes of every update, abandoned requests, a bookie that
dies, restarts without its unsynced data, fences by mistake after damage, or returns on an old copy.
`small` takes seconds, `ci` a minute and `full` about twenty, of processor time. A configuration
that is too large for its `states_max` is explored breadth first up to that number, and then along
`walks`; its line says "bounded".

`WANTED` has all faults at once: a trio and a spare, two entries, a writer that may suspect any
bookie, two recoverers, an abandoned request, an update of unknown outcome, a bookie that dies. It
is bounded. Each of these faults alone, or in pairs, is explored to the end in smaller
configurations.

Not covered: more than one fault of most kinds at once, batches of several entries in appends, two
recoverers against three bookies to the end, livelocks (worlds without steps left are checked,
cycles are not).
"""

from dataclasses import replace
from typing import Final

from ledger_client.protocol.append import AppendProtocol
from ledger_client.protocol.append_options import AppendOptions
from ledger_client.protocol.recovery import RecoveryProtocol
from metadata.ids import EntryId, Version
from metadata.ledgers.ledger_metadata import Fragment, LedgerState, QuorumSpec
from tests.model import scopes_in_sync
from tests.model.repairing import scopes as repair
from tests.model.words import NAMES, Scope
from tests.model.world import FirstParts
from tests.scenarios.words import ledger

E3 = QuorumSpec(3, 3, 2)
FULL_ACK = QuorumSpec(3, 3, 3)
PAIR = QuorumSpec(2, 2, 2)
STRIPED = QuorumSpec(3, 2, 2, 1)


def first_parts(scope: Scope) -> FirstParts:
    """Return the production objects at the start of a scope: an empty open ledger."""
    names = NAMES[: scope.quorum.ensemble_size]
    metadata = ledger(scope.quorum, [Fragment(EntryId(0), names)], LedgerState.OPEN)
    writer = AppendProtocol(metadata, Version(1), scope.options)
    return FirstParts(metadata, writer, RecoveryProtocol())


CHANGE: Final = Scope("writer, a change", E3, failures=1)
UNKNOWN_CHANGE: Final = Scope(
    "writer, a change, unknown", E3, failures=1, suspects=(0,), unknowns=1, closes=False
)
SUSPECTED_CHANGE: Final = replace(
    UNKNOWN_CHANGE, name="writer, a suspicion, unknown", kinds=("suspected",)
)
REPAIRED_CHANGE: Final = Scope(
    "writer, 2 changes, unknown, repair",
    PAIR,
    failures=2,
    spares=2,
    unknowns=1,
    repairs=1,
    closes=False,
)
PAIR_RECOVERY: Final = Scope("pair, recovery", PAIR, entries=1, recoverers=1)
PAIR_QUICK: Final = replace(PAIR_RECOVERY, name="pair, recovery, at once", waits=False)
PAIR_UNKNOWN: Final = replace(
    PAIR_RECOVERY, name="pair, recovery, unknown", unknowns=1, waits=False
)
TRIO_RECOVERY: Final = Scope(
    "trio, recovery", E3, entries=1, recoverers=1, closes=False, waits=False
)
ONE_ACK: Final = replace(TRIO_RECOVERY, name="trio, recovery, AQ 1", quorum=QuorumSpec(3, 3, 1))
TWO_RECOVERIES: Final = Scope(
    "pair, two recoveries", PAIR, entries=1, recoverers=2, waits=False, closes=False
)
SILENT_PAIR: Final = replace(PAIR_RECOVERY, name="pair, recovery, silence", silences=1, waits=False)
SILENT_PAIR_OF_TWO: Final = replace(
    SILENT_PAIR, name="pair, 2 entries, silence", entries=2, closes=False
)
CHANGED_PAIR: Final = Scope(
    "pair, 2 entries, change, recovery",
    PAIR,
    recoverers=1,
    failures=1,
    suspects=(0,),
    closes=False,
    waits=False,
)
REPAIRED_PAIR: Final = replace(CHANGED_PAIR, name="pair, change, recovery, repair", repairs=1)
RESTARTED_PAIR: Final = replace(
    PAIR_RECOVERY,
    name="pair, recovery, restart",
    crashes=1,
    is_slow=True,
    waits=False,
    closes=False,
)
DAMAGED_PAIR: Final = Scope(
    "pair, damage, recovery",
    PAIR,
    entries=1,
    recoverers=1,
    damages=1,
    closes=False,
    waits=False,
)
DAMAGED_DEGRADED: Final = replace(
    DAMAGED_PAIR,
    name="trio, degraded, damage, recovery",
    quorum=E3,
    spares=0,
    returns=1,
    options=AppendOptions(run_degraded=True),
)
DAMAGED_CHANGE: Final = replace(
    DAMAGED_PAIR,
    name="pair, two damaged, change, unknown",
    spares=2,
    recoverers=0,
    failures=1,
    damages=2,
    mortals=(0, 1, 2),
    unknowns=1,
    closes=True,
)
OLD_COPY: Final = replace(TRIO_RECOVERY, name="trio, recovery, old copy", old_copies=1, spares=0)
LACS_PAIR: Final = Scope(
    "pair, 2 entries, recovery, LACs",
    PAIR,
    recoverers=1,
    closes=False,
    waits=False,
    keeps_lacs=True,
)

PAIR_CHANGE: Final = Scope(
    "pair, writer, 2 changes", PAIR, failures=2, spares=2, kinds=("gone", "suspected")
)
JOINED: Final = Scope(
    "writer, parked, a spare joins",
    E3,
    failures=1,
    suspects=(0,),
    joins=1,
    returns=1,
    unknowns=1,
    closes=False,
    options=AppendOptions(run_degraded=True),
)
DELAYED: Final = Scope(
    "writer, delayed change",
    E3,
    failures=2,
    kinds=("gone", "suspected"),
    returns=1,
    closes=False,
    options=AppendOptions(delay_ensemble_change=True, run_degraded=True),
)
TWO_RECOVERIES_SILENT: Final = replace(
    TWO_RECOVERIES, name="pair, two recoveries, silence", silences=1
)
TRIO_CHANGED: Final = replace(
    TRIO_RECOVERY, name="trio, change, recovery", failures=1, suspects=(0,), spares=1
)
TRIO_OF_TWO: Final = replace(
    TRIO_RECOVERY, name="trio, 2 entries, recovery", entries=2, is_mirrored=True
)
TRIO_WALKED: Final = replace(
    TRIO_OF_TWO,
    name="trio, 2 entries, recovery, random",
    is_mirrored=False,
    states_max=1_000,
    walks=3_000,
)
TRIO_DEAD: Final = replace(TRIO_RECOVERY, name="trio, recovery, one dies", crashes=1)
PAIR_DEAD: Final = replace(PAIR_RECOVERY, name="pair, recovery, one dies", crashes=1, waits=False)
STRIPED_CHANGE: Final = replace(
    CHANGE, name="writer, striped 3/2/2, 3 entries", quorum=STRIPED, entries=3, closes=False
)
FULL_ACK_RECOVERY: Final = replace(TRIO_RECOVERY, name="trio, AQ 3, recovery", quorum=FULL_ACK)
PAIR_OF_THREE: Final = replace(
    PAIR_RECOVERY, name="pair, 3 entries, recovery", entries=3, closes=False, waits=False
)
CHANGE_OF_THREE: Final = replace(
    CHANGE, name="writer, 3 entries, a change", entries=3, suspects=(0,), closes=False
)
WANTED: Final = Scope(
    "trio, 2 recoveries, every fault",
    E3,
    entries=2,
    recoverers=2,
    failures=1,
    suspects=(0, 1, 2),
    silences=1,
    unknowns=1,
    crashes=1,
    closes=False,
    waits=False,
    is_mirrored=True,
    states_max=2_000_000,
    walks=5_000,
)

SMALL: Final = (
    UNKNOWN_CHANGE,
    PAIR_QUICK,
    ONE_ACK,
    RESTARTED_PAIR,
    DAMAGED_PAIR,
    *scopes_in_sync.SMALL,
    *repair.SMALL,
)
CI: Final = (
    *SMALL,
    PAIR_RECOVERY,
    CHANGE,
    STRIPED_CHANGE,
    REPAIRED_CHANGE,
    JOINED,
    TRIO_RECOVERY,
    PAIR_UNKNOWN,
    SILENT_PAIR,
    LACS_PAIR,
    PAIR_DEAD,
    DAMAGED_CHANGE,
    SUSPECTED_CHANGE,
    TWO_RECOVERIES,
    CHANGED_PAIR,
    OLD_COPY,
    TRIO_WALKED,
    *scopes_in_sync.CI,
    *repair.CI,
)
FULL: Final = (
    *CI,
    PAIR_CHANGE,
    DAMAGED_DEGRADED,
    DELAYED,
    CHANGE_OF_THREE,
    SILENT_PAIR_OF_TWO,
    REPAIRED_PAIR,
    PAIR_OF_THREE,
    FULL_ACK_RECOVERY,
    TRIO_DEAD,
    TRIO_CHANGED,
    TRIO_OF_TWO,
    TWO_RECOVERIES_SILENT,
    WANTED,
    *scopes_in_sync.FULL,
    *repair.FULL,
)
