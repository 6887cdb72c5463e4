"""Health of a cluster: its bookies, the copies of its ledgers, and what an operator does next.

Leaves single checks to `quire.operate.assessment`, reading every ledger's metadata to the caller,
and output to the commands and the console.
"""

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ledger_client.cluster_access import Cluster
from metadata.errors import MetadataFormatError
from metadata.ids import BookieId
from metadata.ledgers.copies import bookies_with_entries, fewest_copies
from metadata.ledgers.ledger_metadata import LedgerState
from metadata.registry.positions import PositionStore
from metadata.registry.registration import BookieRegistration
from metadata.repair.auditor_election import read_auditor_id
from metadata.repair.lifecycle import UNCHANGED, Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.restore.restore_record import is_unaccepted
from quire.operate.assessment import (
    CHECK,
    NO_REPAIR,
    States,
    bookie_findings,
    cluster_host_warnings,
    down_findings,
    health_sentence,
    ledger_findings,
    ledger_host_warnings,
    lost_warnings,
    planned_warnings,
    state_findings,
)
from quire.operate.faulty_servers import Fault, FaultyServer, Kind, down_bookie
from quire.operate.fields import Json
from quire.operate.findings import Finding, LedgerFinding, LedgerGroups, LedgerSample
from quire.operate.ledger_pass import EachLedger

UNREADABLE: Final = "the metadata cannot be read"
UNACCEPTED: Final = Finding(
    "metadata",
    "was restored, or is older than it was, and that is not accepted: nothing is collected",
    "quire metadata compare, then quire metadata accept-restore",
)


@dataclass(slots=True)
class LedgerCounts:
    """Counts over all ledgers."""

    by_state: Counter[LedgerState] = field(default_factory=Counter)
    certain_copies: Counter[int] = field(default_factory=Counter)
    """Ledgers by the least number of certain copies of their entries."""
    holding: defaultdict[BookieId, LedgerSample] = field(
        default_factory=lambda: defaultdict(LedgerSample)
    )
    """Ledgers with entries on each bookie."""


@dataclass(slots=True)
class Health:
    """Result of one check."""

    known: Sequence[BookieId]
    """Bookies that were formatted."""
    up: Mapping[BookieId, BookieRegistration]
    states: States
    answer_ms: float
    """Time of one read of the metadata service, in ms."""
    findings: list[Finding]
    """Problems."""
    warnings: list[Finding]
    """Possible problems."""
    ledgers: LedgerCounts | None
    """None if the ledgers were not read."""
    by_ledger: list[tuple[str, LedgerFinding]] | None
    """All findings and warnings about ledgers, with their kind; None if they are not wanted."""
    faulty: list[FaultyServer] = field(default_factory=list)
    """Servers that are down or cannot be reached, of all kinds."""

    @property
    def sentence(self) -> str:
        """The health in one sentence."""
        certain = None if self.ledgers is None else self.ledgers.certain_copies
        return health_sentence(len(self.findings), certain)


async def check_health(
    cluster: Cluster, ledgers: EachLedger | None, *, by_ledger: bool = False
) -> Health:
    """Check a cluster, and its ledgers unless they are None. `by_ledger` keeps each finding about
    a ledger: their number has no limit. Raises MetadataError.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    known = await cluster.cookies.list_bookie_ids()
    answer_ms = (loop.time() - started) * 1000
    states = await LifecycleStore(cluster.store, cluster.rng).get_all()
    up = dict(cluster.directory.bookies)
    warnings = [*cluster_host_warnings(up), *planned_warnings(states)]
    health = Health(known, up, states, answer_ms, [], warnings, None, [] if by_ledger else None)
    for registration in up.values():
        state = states.get(registration.bookie_id, UNCHANGED).state
        health.findings.extend(bookie_findings(registration, state))
    if ledgers is not None:
        health.ledgers = await _check_ledgers(cluster, ledgers, health)
        up = dict(cluster.directory.bookies)  # those of now, since it may have taken long
    await _contact(cluster, health, up)
    holding = None if health.ledgers is None else health.ledgers.holding
    is_repaired = await read_auditor_id(cluster.store) is not None
    last_seen = {
        BookieId(server.name): f"last at {server.address}, host {server.host}, rack {server.rack}"
        for server in health.faulty
        if server.kind is Kind.BOOKIE and server.fault is Fault.DOWN and server.host
    }
    problems, no_problems = down_findings(
        known, up, holding, states, is_repaired=is_repaired, last_seen=last_seen
    )
    health.findings[:0] = [*problems, *state_findings(states, up)]
    health.warnings.extend(no_problems)
    if up and not is_repaired:
        health.warnings.append(NO_REPAIR)
    if await is_unaccepted(cluster.store):
        health.warnings.append(UNACCEPTED)
    health.up = up
    return health


async def _contact(
    cluster: Cluster, health: Health, up: Mapping[BookieId, BookieRegistration]
) -> None:
    """Contact every server, and add those that are faulty; findings about bookies that are down
    follow.
    """
    # Here, because other commands import this module, and start without the protocol of bookies.
    from quire.operate import reachability

    health.faulty = await reachability.contact_servers(cluster)
    health.findings.extend(server.finding for server in health.faulty)
    positions = PositionStore(cluster.store)
    for bookie_id in health.known:
        state = health.states.get(bookie_id, UNCHANGED).state
        if bookie_id not in up and state is not Lifecycle.REMOVED:
            last = None
            with contextlib.suppress(MetadataFormatError):
                last = (await positions.get(bookie_id)).record
            health.faulty.append(down_bookie(bookie_id, last))


async def _check_ledgers(cluster: Cluster, ledgers: EachLedger, health: Health) -> LedgerCounts:
    counts = LedgerCounts()
    findings, warnings = LedgerGroups(), LedgerGroups()

    def add(groups: LedgerGroups, listed: list[LedgerFinding]) -> None:
        groups.add(listed)
        if health.by_ledger is not None:
            kind = "finding" if groups is findings else "warning"
            health.by_ledger += [(kind, finding) for finding in listed]

    async for ledger_id, ledger in ledgers:
        if isinstance(ledger, MetadataFormatError):
            add(findings, [LedgerFinding(ledger_id, UNREADABLE, str(ledger), CHECK)])
            continue
        up = cluster.directory.bookies
        counts.by_state[ledger.state] += 1
        for bookie_id in bookies_with_entries(ledger):
            counts.holding[bookie_id].add(ledger_id)
        in_limbo = [bookie for bookie, registration in up.items() if registration.is_in_limbo]
        copies = fewest_copies(ledger, up, in_limbo)
        if copies is not None:
            counts.certain_copies[copies.certain] += 1
        add(findings, ledger_findings(ledger, up))
        add(warnings, [*lost_warnings(ledger), *ledger_host_warnings(ledger, up)])
    health.findings += findings.findings()
    health.warnings += warnings.findings()
    return counts


def health_as_json(address: str, health: Health) -> dict[str, Json]:
    """Return the figures of a check, without its findings."""
    states, ledgers = health.states, health.ledgers
    removed = [e for e in health.known if states.get(e, UNCHANGED).state is Lifecycle.REMOVED]
    lifecycles = Counter(str(state.state) for state in states.values())
    return {
        "state": health.sentence,
        "metadata": address,
        "metadata_answer_ms": round(health.answer_ms, 2),
        "bookies_known": len(health.known) - len(removed),
        "bookies_up": len(health.up),
        "bookies_writable": sum(registration.writable for registration in health.up.values()),
        "bookies_not_active": {
            str(state): lifecycles[state] for state in Lifecycle if state is not Lifecycle.ACTIVE
        },
        "hosts_up": len(dict.fromkeys(registration.place for registration in health.up.values())),
        "ledgers": {} if ledgers is None else {str(s): ledgers.by_state[s] for s in LedgerState},
        "servers_faulty": [
            {
                "kind": str(server.kind),
                "name": server.name,
                "fault": str(server.fault),
                "address": server.address or None,
                "host": server.host or None,
                "rack": server.rack or None,
                "why": server.why,
            }
            for server in health.faulty
        ],
        "finding_count": len(health.findings),
        "warning_count": len(health.warnings),
        "is_healthy": not health.findings,
    }
