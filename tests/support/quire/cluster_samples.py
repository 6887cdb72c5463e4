"""Results of a check of a cluster and of its repair, for tests of what shows them."""

from collections import Counter
from collections.abc import Mapping, Sequence

from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerState
from metadata.registry.registration import BookieRegistration
from metadata.repair.lifecycle import BookieLifecycle, Lifecycle
from metadata.repair.settings import RepairSettings
from metadata.repair.status import BlockedTotal, RepairStatus, UrgencyTotal
from quire.console.cluster_metrics import Shapes, Surveyed
from quire.operate.health import Health, LedgerCounts
from quire.operate.repair import RepairSummary


def sample_survey(
    known: Sequence[str] = ("a", "b"),
    up: Sequence[str] = ("a",),
    states: Mapping[str, Lifecycle] | None = None,
    copies: Mapping[int, int] | None = None,
) -> Surveyed:
    """Return a check that ended at 1.0 s after 0.5 s."""
    registered = {
        BookieId(each): BookieRegistration(BookieId(each), f"host-{each}", 4181) for each in up
    }
    lifecycles = {BookieId(each): BookieLifecycle(state) for each, state in (states or {}).items()}
    counts = LedgerCounts(Counter({LedgerState.CLOSED: 2}), Counter(copies or {2: 2}))
    bookies = [BookieId(each) for each in known]
    health = Health(bookies, registered, lifecycles, 2.0, [], [], counts, None)
    return Surveyed(health, Shapes(), 0.5, 1.0)


def sample_repair(auditor_id: str | None = "one") -> RepairSummary:
    """Return a summary with one ledger of class 2, which is blocked."""
    status = RepairStatus(
        "one",
        0,
        1_000,
        2_000,
        (UrgencyTotal(2, 1, 10),),
        bytes_left=10,
        bytes_per_s=5,
        blocked=(BlockedTotal("no room", 1),),
    )
    return RepairSummary(
        now_ms=5_000,
        settings=RepairSettings(),
        auditor_id=auditor_id,
        status=status,
        workers=["one"],
        published=[],
        claims=[],
        not_up=[],
        lifecycles={},
        scrubs={},
    )
