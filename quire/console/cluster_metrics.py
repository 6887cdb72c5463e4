"""Checks of the complete cluster in the background, and Prometheus metrics of what they found."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ledger_client.cluster_access import Cluster
from metadata.errors import MetadataError, MetadataFormatError
from metadata.ids import BookieId
from metadata.ledgers.copies import Loss, WriteSet, fewest_copies_of, loss_of, write_sets
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.paths import BROKERS, CONTROLLER
from metadata.repair.lifecycle import UNCHANGED, Lifecycle
from metadata.store.interface import find
from quire.operate.as_json import DOWN, READ_ONLY, UP, state_of
from quire.operate.faulty_servers import Fault
from quire.operate.health import Health, check_health
from quire.operate.ledger_pass import LedgerPass, Read
from quire.operate.repair import URGENCY_TEXTS, RepairSummary, read_summary
from quire.server.overriding import override
from quire.server.server_log import ServerLog

PREFIX: Final = "quire_cluster"
READ_S_MAX: Final = 5.0
COPIES_SHOWN_MAX: Final = 3
"""Number of certain copies from which on ledgers are counted together."""
STATES: Final = (
    UP,
    READ_ONLY,
    DOWN,
    *(str(e) for e in Lifecycle if e is not Lifecycle.ACTIVE),
)
"""States of a bookie: how it is registered if it is active, otherwise its lifecycle."""
MISSED: Final = (Lifecycle.ACTIVE, Lifecycle.LOST)
"""States of a bookie that is missed when it is down."""
FAULTY_LABELS: Final = ("kind", "name", "fault", "address", "host", "rack")
REST: Final = 4.0
RETRY_S: Final = 5.0
SHAPES_MAX: Final = 200_000
"""Maximum number of different sets of bookies that are remembered for what a loss would take."""


@dataclass(frozen=True, slots=True)
class BrokersSeen:
    """Brokers, as the metadata has them."""

    up: int
    has_controller: bool


@dataclass(slots=True)
class Shapes:
    """Sets of bookies that hold ledgers, with the number of ledgers that each of them holds."""

    ledgers: Counter[tuple[WriteSet, ...]] = field(default_factory=Counter)
    left_out: int = 0
    """Ledgers that are not counted, because there were too many different sets."""

    def add(self, ledger: LedgerMetadata) -> None:
        """Count one ledger."""
        shape = tuple(sorted({write_set.of_any_fragment for write_set in write_sets(ledger)}))
        if shape not in self.ledgers and len(self.ledgers) >= SHAPES_MAX:
            self.left_out += 1
        elif shape:
            self.ledgers[shape] += 1

    def losses(
        self, up: Collection[BookieId], in_limbo: Collection[BookieId] = ()
    ) -> Counter[Loss]:
        """Return the number of ledgers by what they would lack if only some bookies were up."""
        losses = Counter[Loss]()
        for shape, count in self.ledgers.items():
            copies = fewest_copies_of(shape, up, in_limbo)
            loss = None if copies is None else loss_of(copies)
            if loss is not None:
                losses[loss] += count
        return losses


@dataclass(frozen=True, slots=True)
class Surveyed:
    """Result of one check."""

    health: Health
    shapes: Shapes
    began_s: float
    """Time of the event loop at which the check began, in seconds."""
    ended_s: float


class ClusterMetrics(Collector):
    """Collector of one request's figures.

    A figure that is not known, because no check has ended or the metadata service does not answer,
    is absent; it is never 0.
    """

    def __init__(
        self,
        surveyed: Surveyed | None,
        failure: str,
        now_s: float,
        repair: RepairSummary | None,
        brokers: BrokersSeen | None,
    ) -> None:
        """`failure` says why the last check failed, and is empty if it did not. `repair` and
        `brokers` are None if the metadata service did not answer.
        """
        self._surveyed = surveyed
        self._failure = failure
        self._now_s = now_s
        self._repair = repair
        self._brokers = brokers

    @override
    def collect(self) -> Iterator[Metric]:
        """Return every metric that is known."""
        yield _gauge(
            "check_failed",
            "1 if the last check of all ledgers failed, else 0.",
            bool(self._failure),
        )
        if self._surveyed is not None:
            yield from self._of_survey(self._surveyed)
        if self._repair is not None:
            yield from _of_repair(self._repair)
        if self._brokers is not None:
            yield _gauge("brokers", "Brokers that are up.", self._brokers.up)
            text = "1 while a broker is the controller, else 0."
            yield _gauge("controller", text, self._brokers.has_controller)

    def _of_survey(self, surveyed: Surveyed) -> Iterator[Metric]:
        health = surveyed.health
        age_s = self._now_s - surveyed.ended_s
        yield _gauge(
            "check_age_seconds", "Seconds since the last check of all ledgers ended.", age_s
        )
        yield _gauge(
            "check_duration_seconds",
            "Seconds that the last check of all ledgers took.",
            surveyed.ended_s - surveyed.began_s,
        )
        yield _gauge(
            "metadata_answer_seconds",
            "Seconds of one read of the metadata service at the last check.",
            health.answer_ms / 1000,
        )
        yield _gauge("findings", "Problems that the last check found.", len(health.findings))
        yield _gauge("warnings", "Warnings of the last check.", len(health.warnings))
        yield _labelled(
            "bookies",
            "Bookies by state: up, read-only or down if they are active, else their lifecycle.",
            "state",
            bookies_by_state(health),
        )
        faulty = GaugeMetricFamily(
            f"{PREFIX}_server_faulty",
            "1 for each server that is down, or that clients or other bookies cannot reach; not for"
            " bookies that an operator takes away.",
            labels=FAULTY_LABELS,
        )
        for server in health.faulty:
            state = health.states.get(BookieId(server.name), UNCHANGED).state
            if state in MISSED or server.fault is Fault.UNREACHABLE:
                faulty.add_metric([str(getattr(server, label)) for label in FAULTY_LABELS], 1.0)
        yield faulty
        if health.ledgers is not None:
            states = {str(state): health.ledgers.by_state[state] for state in LedgerState}
            yield _labelled("ledgers", "Ledgers by state.", "state", states)
            yield _labelled(
                "ledgers_by_copies",
                "Ledgers by the certain copies, on bookies that are up, of their entries with the"
                f" fewest copies; {COPIES_SHOWN_MAX} stands for more too.",
                "copies",
                ledgers_by_copies(health.ledgers.certain_copies),
            )


class Survey:
    """The last check of a cluster, from `run` until it is cancelled.

    One check runs at a time; after each one there is a pause of at least REST times its length; a
    check that fails leaves the last result, with its age.
    """

    def __init__(
        self, cluster: Cluster, log: ServerLog, every_s: float, now: Callable[[], float]
    ) -> None:
        self._cluster = cluster
        self._log = log
        self._every_s = every_s
        self._now = now
        self._wanted = asyncio.Event()
        self.last: Surveyed | None = None
        """None until the first check has ended."""
        self.failure = ""
        """Why the last check failed; empty if it did not."""
        self.ledgers_read = 0
        """Number of ledgers that the running check has read."""

    async def run(self) -> None:
        """Check again and again until cancelled."""
        while True:
            self._wanted.clear()
            try:
                self.last = await self._check()
                self.failure = ""
                length_s = self.last.ended_s - self.last.began_s
                pause_s = max(self._every_s, REST * length_s)
            except (MetadataError, TimeoutError) as error:
                self.failure = str(error) or type(error).__name__
                self._log.warning("check of the cluster failed", reason=self.failure)
                pause_s = RETRY_S
            try:
                async with asyncio.timeout(pause_s):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    def ask(self) -> None:
        """Begin a check now instead of after the pause."""
        self._wanted.set()

    async def _check(self) -> Surveyed:
        began_s, shapes = self._now(), Shapes()
        self.ledgers_read = 0
        health = await check_health(self._cluster, self._each_ledger(shapes))
        return Surveyed(health, shapes, began_s, self._now())

    async def _each_ledger(self, shapes: Shapes) -> AsyncIterator[Read]:
        async for read in LedgerPass(self._cluster, on_read=self._count):
            if not isinstance(read[1], MetadataFormatError):
                shapes.add(read[1])
            yield read

    def _count(self, ledgers: int) -> None:
        self.ledgers_read += ledgers


async def read_cluster_metrics(cluster: Cluster, survey: Survey, now_s: float) -> ClusterMetrics:
    """Read what no check keeps, and return the metrics of now."""
    repair, brokers = None, None
    with contextlib.suppress(MetadataError, TimeoutError):
        async with asyncio.timeout(READ_S_MAX):
            repair = await read_summary(cluster)
            names = await cluster.store.children(BROKERS)
            brokers = BrokersSeen(len(names), await find(cluster.store, CONTROLLER) is not None)
    return ClusterMetrics(survey.last, survey.failure, now_s, repair, brokers)


def bookies_by_state(health: Health) -> dict[str, int]:
    """Return the number of bookies in each state; removed ones do not count as down."""
    counts = dict.fromkeys(STATES, 0)
    for bookie in {*health.known, *health.up}:
        lifecycle = health.states.get(bookie, UNCHANGED).state
        counts[state_of(health.up.get(bookie), lifecycle)] += 1
    return counts


def ledgers_by_copies(certain: Counter[int]) -> dict[str, int]:
    """Return the number of ledgers for each number of certain copies."""
    counts = {str(copies): 0 for copies in range(COPIES_SHOWN_MAX + 1)}
    for copies, ledgers in certain.items():
        counts[str(min(copies, COPIES_SHOWN_MAX))] += ledgers
    return counts


def _of_repair(repair: RepairSummary) -> Iterator[Metric]:
    yield _gauge("auditor", "1 while a process is the auditor, else 0.", bool(repair.auditor_id))
    yield _gauge("repair_workers", "Processes that repair ledgers.", len(repair.workers))
    yield _gauge("repair_paused", "1 while an operator's pause of repair lasts.", repair.is_paused)
    yield _gauge("repair_jobs", "Published jobs of repair.", len(repair.published))
    yield _gauge("repair_claims", "Ledgers that are repaired now.", len(repair.claims))
    status = repair.status
    if status is None:
        return
    ledgers = dict.fromkeys(map(str, URGENCY_TEXTS), 0)
    for total in status.totals:
        ledgers[str(total.urgency)] = total.ledgers
    classes = "; ".join(f"{urgency}: {text}" for urgency, text in URGENCY_TEXTS.items())
    yield _labelled(
        "repair_ledgers", f"Ledgers that need a repair, by class. {classes}.", "class", ledgers
    )
    blocked = sum(total.ledgers for total in status.blocked)
    yield _gauge("repair_blocked_ledgers", "Ledgers that cannot be repaired now.", blocked)
    yield _gauge("repair_lost_ledgers", "Ledgers with entries without a copy.", status.lost_ledgers)
    yield _gauge("repair_left_bytes", "Bytes that are to be copied.", status.bytes_left)
    yield _gauge(
        "repair_bytes_per_second", "Bytes copied per second in the last minute.", status.bytes_per_s
    )
    yield _gauge(
        "repair_status_age_seconds",
        "Seconds since the auditor wrote its summary, which it does each minute at least.",
        max(0, repair.now_ms - status.written_ms) / 1000,
    )


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, float(value))


def _labelled(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family
