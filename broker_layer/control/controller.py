"""Controller: assigns a leader to each partition while this broker is the elected controller.

Leaves the choice of leaders to `assignment.py`, taking partitions over to the chosen brokers, and
the ledgers of deleted topics and those that no partition lists to `ledger_erasing.py`.

Invariants: it acts only while it is elected and its view is complete. After each election, and
after each lapse of its session, it reads which brokers are up before it gives leaders. A change is
stored only if the leadership is still the one that it was planned for, so two controllers at once
do no harm.

Source: topics design, "What a takeover does".
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from broker_layer.control.assignment import (
    Plan,
    apply_moves,
    plan_balance,
    plan_leaders,
    plan_new_epochs,
    plan_preferred,
)
from broker_layer.control.cluster_view import (
    ClusterView,
    ControllerChanged,
    ReportsChanged,
    TopicChanged,
    ViewEvent,
    ViewSettled,
)
from broker_layer.control.control_config import ControlConfig
from broker_layer.control.ledger_erasing import LedgerSweeper, TopicEraser
from broker_layer.handlers import grouped
from ledger_client import LedgerError
from ledger_client.tasks import BackgroundTasks
from metadata.backoff import Backoff
from metadata.brokers.election import ControllerElection
from metadata.errors import MetadataError
from metadata.topics.topic import TopicId, TopicRecord
from metadata.topics.topic_store import TopicStore

if TYPE_CHECKING:
    from metadata.store.interface import Cancel

IDLE_S: Final = 3600.0
ERASE_PAUSE_MAX_S: Final = 10.0

_log = logging.getLogger("quire.broker.controller")


@dataclass(frozen=True, slots=True)
class ControllerParts:
    """Parts that a controller uses. The creator of each part also starts and closes it."""

    view: ClusterView
    topics: TopicStore
    election: ControllerElection
    eraser: TopicEraser
    sweeper: LedgerSweeper
    rng: Random


class Controller:
    """One broker's candidate for control of the cluster, from `start` until `aclose`."""

    def __init__(self, parts: ControllerParts, config: ControlConfig) -> None:
        self._parts = parts
        self._config = config
        self._wake = asyncio.Event()
        self._erase_wake = asyncio.Event()
        self._dead: dict[TopicId, None] = {}
        """Topics without a record, whose ledgers are to be deleted."""
        self._dead_wake = asyncio.Event()
        self._is_search_due = False
        """Whether earlier controllers may have left ledgers of dead topics."""
        self._since_s: float | None = None
        self._up_since_s: dict[int, float] = {}
        self._incarnations: dict[int, bytes] = {}
        self._rebalance_due_s = 0.0
        self._cancels: list[Cancel] = []
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        """Begin to act whenever this broker is the controller."""
        assert not self._cancels, "started once"
        self._cancels = [
            self._parts.view.on_event(self._on_event),
            self._parts.view.lease.on_lapse(self._end_term),
        ]
        for work in (self._run(), self._erase(), self._delete_dead(), self._sweep()):
            self._tasks.start(work)
        self._act()

    async def aclose(self) -> None:
        """Stop acting; do not close the election."""
        for cancel in self._cancels:
            cancel()
        await self._tasks.aclose()

    @property
    def is_active(self) -> bool:
        """Whether this broker may act as the controller now."""
        view = self._parts.view
        return self._parts.election.is_controller and view.is_complete and not view.lease.has_lapsed

    def _on_event(self, event: ViewEvent) -> None:
        match event:
            case ReportsChanged():
                return
            case ControllerChanged() if not self._parts.election.is_controller:
                self._end_term()
            case TopicChanged(name):
                if name in self._parts.view.deleting:
                    self._erase_wake.set()
                if self._is_led(name):
                    return  # all its leaders are still eligible
            case ViewSettled() if self._since_s is not None:
                self._erase_wake.set()
                return  # each changed topic had its own event
            case _:
                pass
        self._act()

    def _is_led(self, name: str) -> bool:
        """Return whether all leaders of a topic's partitions are up and not leaving."""
        record = self._parts.view.topics.get(name)
        may_lead = dict.fromkeys(self._parts.view.may_lead())
        return record is None or all(led.leader in may_lead for led in record.partitions)

    def _end_term(self) -> None:
        """Note that others may have changed the cluster before this broker acts the next time."""
        self._since_s = None

    def _act(self) -> None:
        self._wake.set()
        self._erase_wake.set()

    async def _run(self) -> None:
        backoff = Backoff(self._parts.rng)
        delay_s = IDLE_S
        while True:
            try:
                async with asyncio.timeout(delay_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                delay_s = await self._step()
                backoff.count = 0
            except Exception as error:  # noqa: BLE001 - partitions need leaders after any error
                level = logging.WARNING if isinstance(error, MetadataError) else logging.ERROR
                _log.log(level, "leaders were not changed; the controller tries again: %s", error)
                delay_s = backoff.next_s()

    async def _step(self) -> float:
        """Do what is due; return the seconds until the next step is due without an event."""
        if not self.is_active:
            self._end_term()
            return IDLE_S
        if self._since_s is None:
            await self._parts.view.reread_brokers()
            if not self.is_active:
                return IDLE_S  # an event wakes the next step
            self._begin(asyncio.get_running_loop().time())
            _log.info("this broker is the controller")
        now = asyncio.get_running_loop().time()
        self._note_brokers(now)
        wait_s = self._assembly_left_s(now)
        if wait_s > 0:
            return wait_s
        view = self._parts.view
        await self._store(self._plan_restarted(), "got new epochs after a restart")
        if self._is_in_term:
            await self._store(
                plan_leaders(view.topics.values(), view.may_lead(), list(view.brokers)),
                "got new leaders",
            )
        return await self._rebalance(now) if self._is_in_term else IDLE_S

    @property
    def _is_in_term(self) -> bool:
        """Whether what was read at the beginning of the term still holds: a change that was just
        stored may have taken longer than the term. An event wakes the next step.
        """
        return self._since_s is not None and self.is_active

    def _begin(self, now: float) -> None:
        self._since_s = now
        self._search_dead()
        brokers = self._parts.view.brokers
        self._up_since_s = dict.fromkeys(brokers, now)
        self._incarnations = {i: registration.incarnation for i, registration in brokers.items()}
        self._rebalance_due_s = now + self._config.settled_s

    def _note_brokers(self, now: float) -> None:
        brokers = self._parts.view.brokers
        for broker_id in [known for known in self._up_since_s if known not in brokers]:
            del self._up_since_s[broker_id]
            self._incarnations.pop(broker_id, None)
        for broker_id in brokers:
            if broker_id not in self._up_since_s:
                self._up_since_s[broker_id] = now
                self._incarnations[broker_id] = brokers[broker_id].incarnation

    def _assembly_left_s(self, now: float) -> float:
        """Return the seconds to wait for more brokers if the complete cluster is starting."""
        assert self._since_s is not None
        left_s = self._since_s + self._config.assembly_s - now
        if left_s <= 0:
            return 0.0
        view = self._parts.view
        leaders = {led.leader: None for record in view.topics.values() for led in record.partitions}
        is_led = any(broker_id in leaders for broker_id in view.brokers)
        return 0.0 if is_led or not leaders else left_s

    def _plan_restarted(self) -> Plan:
        """Plan new epochs for brokers that restarted faster than their registrations expired."""
        plan: list[Plan] = []
        for broker_id, registration in self._parts.view.brokers.items():
            if self._incarnations[broker_id] != registration.incarnation:
                self._incarnations[broker_id] = registration.incarnation
                self._up_since_s[broker_id] = asyncio.get_running_loop().time()
                plan.append(plan_new_epochs(self._parts.view.topics.values(), broker_id))
        return [move for moves in plan for move in moves]

    async def _rebalance(self, now: float) -> float:
        interval_s = self._config.rebalance_interval_s
        if interval_s <= 0:
            return IDLE_S
        if now >= self._rebalance_due_s:
            self._rebalance_due_s = now + interval_s
            await self._store(self._plan_rebalance(now), "moved for balance")
        return max(0.0, self._rebalance_due_s - now)

    def _plan_rebalance(self, now: float) -> Plan:
        topics = list(self._parts.view.topics.values())
        self._note_brokers(now)  # one may have come while leaders were stored
        may_lead = self._parts.view.may_lead()
        settled = [
            broker_id
            for broker_id in may_lead
            if now - self._up_since_s[broker_id] >= self._config.settled_s
        ]
        plan = plan_preferred(topics, settled, self._config.rebalance_moves_max)
        if plan or len(settled) < len(may_lead):
            return plan
        return plan_balance(topics, settled, self._config.rebalance_moves_max)

    async def _store(self, plan: Plan, what: str) -> None:
        if not plan:
            return
        changes = {
            topic: partial(apply_moves, moves=moves)
            for topic, moves in grouped((move.topic, move) for move in plan).items()
        }
        for record in (await self._parts.topics.change_many(changes)).values():
            self._parts.view.learn(record)
        _log.info("%d partitions %s", len(plan), what)

    # -- deleted topics --------------------------------------------------------------------------

    async def _erase(self) -> None:
        """Free the names of deleted topics in sequence, small ones first."""
        backoff = Backoff(self._parts.rng, max_s=ERASE_PAUSE_MAX_S)
        erased: dict[str, TopicId] = {}  # until the view shows it too
        while True:
            await self._erase_wake.wait()
            self._erase_wake.clear()
            passed = dict(erased)
            while self.is_active and (record := self._next_to_erase(passed)) is not None:
                passed[record.name] = record.topic_id
                try:
                    await self._parts.eraser.release_name(record)
                    erased[record.name] = record.topic_id
                    self._dead[record.topic_id] = None
                    self._dead_wake.set()
                    backoff.count = 0
                except Exception as error:  # noqa: BLE001 - any failure is retried later
                    _log.warning(
                        "topic %s is not erased yet; the controller tries again: %s",
                        record.name,
                        error,
                    )
                    self._erase_wake.set()
                    await asyncio.sleep(backoff.next_s())
            deleting = self._parts.view.deleting
            erased = {name: topic_id for name, topic_id in erased.items() if name in deleting}

    def _search_dead(self) -> None:
        self._is_search_due = True
        self._dead_wake.set()

    async def _find_dead(self) -> None:
        """Find what earlier controllers left; a search that is requested meanwhile stays due."""
        self._is_search_due = False
        try:
            self._dead.update(dict.fromkeys(await self._parts.eraser.dead_topics()))
        except BaseException:
            self._is_search_due = True
            raise

    async def _delete_dead(self) -> None:
        """Delete the ledgers of topics whose names are free already."""
        backoff = Backoff(self._parts.rng, max_s=ERASE_PAUSE_MAX_S)
        eraser = self._parts.eraser
        while True:
            await self._dead_wake.wait()
            self._dead_wake.clear()
            try:
                while self._is_search_due and self.is_active:
                    await self._find_dead()
                while self._dead and self.is_active:
                    topic_id = next(iter(self._dead))
                    del self._dead[topic_id]
                    try:
                        await eraser.delete_ledgers(topic_id)
                    except BaseException:
                        self._dead[topic_id] = None  # the others come first
                        raise
                backoff.count = 0
            except Exception as error:  # noqa: BLE001 - any failure is retried later
                _log.warning(
                    "ledgers of deleted topics are left; the controller tries again: %s", error
                )
                self._dead_wake.set()
                await asyncio.sleep(backoff.next_s())

    def _next_to_erase(self, passed: Mapping[str, TopicId]) -> TopicRecord | None:
        """Return the smallest deleted topic that is not in `passed`; None if there is none."""
        deleting = self._parts.view.deleting.values()
        due = (record for record in deleting if passed.get(record.name) != record.topic_id)
        return min(due, key=lambda topic: (len(topic.partitions), topic.name), default=None)

    async def _sweep(self) -> None:
        """Delete, at intervals, unlisted ledgers that dead leaders left."""
        while True:
            await asyncio.sleep(self._config.sweep_interval_s)
            if not self.is_active:
                continue
            self._search_dead()
            try:
                count = await self._parts.sweeper.sweep()
            except (LedgerError, MetadataError) as error:
                _log.warning(
                    "the search for unlisted ledgers failed and runs again later: %s", error
                )
            else:
                _log.info("%d ledgers that no partition lists were deleted", count)
