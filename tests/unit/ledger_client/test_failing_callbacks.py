"""Policies and callbacks of the application that raise: the client reports it and continues (3.3,
5.6).
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

import pytest

from ledger_client import (
    CallbackFailed,
    ClientEvent,
    LedgerClient,
    NotEnoughBookiesError,
    Quorum,
    Shortage,
    SpreadPolicy,
)
from ledger_client.bookies.placement_policy import Candidates
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import QuorumSpec
from metadata.store.memory import MemoryMetadataStore
from tests.support.ledger_client.cluster import QUICK, THREE, TestCluster
from tests.until import until

Ensemble = tuple[BookieId, ...]


class FailingPolicy:
    """The usual policy, which raises or answers nonsense while `answer` is set."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.calls = 0

    def _fail(self) -> Any:
        self.calls += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def new_ensemble(
        self,
        quorum: QuorumSpec,
        candidates: Candidates,
        excluded: Mapping[BookieId, str],
        rng: Random,
    ) -> Ensemble | Shortage:
        chosen = SpreadPolicy().new_ensemble(quorum, candidates, excluded, rng)
        return chosen if self.answer is None else self._fail()

    def replacements(
        self,
        quorum: QuorumSpec,
        ensemble: Ensemble,
        positions: frozenset[int],
        candidates: Candidates,
        excluded: Mapping[BookieId, str],
        rng: Random,
    ) -> Mapping[int, BookieId] | Shortage:
        chosen = SpreadPolicy().replacements(quorum, ensemble, positions, candidates, excluded, rng)
        return chosen if self.answer is None else self._fail()


@pytest.fixture
def policy() -> FailingPolicy:
    return FailingPolicy()


@pytest.fixture
def reports() -> list[dict[str, Any]]:
    """Collect the reports to the event loop."""
    return []


@pytest.fixture
async def client(
    cluster: TestCluster, policy: FailingPolicy, reports: list[dict[str, Any]]
) -> LedgerClient:
    times = count(1_700_000_000_000)
    asyncio.get_running_loop().set_exception_handler(lambda _, what: reports.append(what))
    client = LedgerClient.from_parts(
        MemoryMetadataStore(cluster.server),
        rng=Random(5),
        wall_clock_ms=lambda: next(times),
        config=replace(QUICK, add_timeout_s=0.5),
        policy=policy,
        on_event=cluster.events.append,
    )
    cluster.clients.append(client)
    return client


def failures(events: list[ClientEvent]) -> list[CallbackFailed]:
    return [event for event in events if isinstance(event, CallbackFailed)]


@pytest.mark.parametrize(
    "answer",
    [
        LookupError("no rack 'r7'"),
        None.__class__,
        (),
        ("bookie-0", "bookie-0", "bookie-1"),
        ("bookie-0", "bookie-1", "elsewhere"),
    ],
)
async def test_a_policy_that_raises_is_a_shortage(
    cluster: TestCluster, client: LedgerClient, policy: FailingPolicy, answer: Any
) -> None:
    policy.answer = answer
    with pytest.raises(NotEnoughBookiesError, match="the policy FailingPolicy raised") as caught:
        await client.create_ledger(THREE)
    assert caught.value.needed == 3
    if isinstance(answer, Exception):
        assert "LookupError: no rack 'r7'" in str(caught.value)
    assert failures(cluster.events)[0].callback == "policy"
    policy.answer = None
    writer = await client.create_ledger(THREE)
    assert await writer.append(b"x") == 0
    await writer.aclose()


async def test_a_policy_that_raises_during_a_change_of_members_ends_nothing(
    cluster: TestCluster,
    client: LedgerClient,
    policy: FailingPolicy,
    reports: list[dict[str, Any]],
) -> None:
    """A departed bookie is looked at in a callback of the directory, as is a new one."""
    writer = await client.create_ledger(Quorum.all(3))  # it cannot do without the bookie
    await writer.append(b"0")
    policy.answer = LookupError("no rack 'r7'")
    gone = cluster.bookie(writer.members[0])
    await gone.unregister()
    await gone.stop()
    await until(lambda: policy.calls > 0)
    await cluster.add_bookie()
    with pytest.raises(NotEnoughBookiesError, match="LookupError: no rack 'r7'") as caught:
        while True:  # the failure may come after the first appends
            await writer.append(b"1", timeout=5)
    assert gone.id in str(caught.value)
    policy.answer = None
    newest = await cluster.add_bookie()
    async with client.create_ledger(Quorum.all(5)) as second:  # every bookie is known
        assert newest.id in second.members
        assert await second.append(b"2") == 0
    assert len(failures(cluster.events)) == policy.calls
    assert [report["message"] for report in reports] == ["policy raised"], "logged once"


async def test_an_on_event_that_raises_is_logged_once_for_each_class(cluster: TestCluster) -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: reports.append(what))

    def fail(event: ClientEvent) -> None:
        seen.append(event)
        raise LookupError(str(event))

    seen: list[ClientEvent] = []
    client = LedgerClient.from_parts(
        MemoryMetadataStore(cluster.server),
        rng=Random(5),
        wall_clock_ms=lambda: 1_700_000_000_000,
        config=QUICK,
        on_event=fail,
    )
    async with client, client.create_ledger(THREE) as writer:
        await writer.append(b"0")
    assert len(seen) > 3
    assert [report["message"] for report in reports] == ["on_event raised"]


async def test_an_on_deleted_that_raises_does_not_end_a_collection(
    cluster: TestCluster, client: LedgerClient
) -> None:
    chain = client.chain("orders")
    await chain.create()
    for _ in range(2):
        async with client.create_ledger(THREE, metadata=chain.custom_metadata):
            pass

    def fail(ledger_id: int) -> None:
        raise LookupError(str(ledger_id))

    assert await chain.collect(0, on_deleted=fail) == 2
    assert [failure.callback for failure in failures(cluster.events)] == ["on_deleted"] * 2
