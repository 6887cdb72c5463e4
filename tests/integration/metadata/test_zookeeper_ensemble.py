"""Reads of a client whose ZooKeeper server leads an ensemble, is paused, and is replaced meanwhile
(protocol 1.6).
"""

import asyncio
import random
from pathlib import Path

import pytest

from metadata.errors import OutcomeUnknownError, StoreUnavailableError, VersionConflictError
from metadata.ids import Version
from metadata.store.interface import MetadataStore
from metadata.store.zookeeper.store import open_store
from tests.support.metadata.zookeeper_ensemble import Member, ZooKeeperEnsemble

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ROUNDS = 3
READS = 20
PATIENT_S = 60.0
"""Longer than a pause, so that requests wait for the paused server."""


async def store_at(ensemble: ZooKeeperEnsemble, *members: Member) -> MetadataStore:
    return await open_store(
        ensemble.uri(*members) + "/quire",
        rng=random.Random(7),
        operation_timeout_s=PATIENT_S,
        session_timeout_s=PATIENT_S,
    )


async def write(store: MetadataStore, path: str) -> None:
    """Write 1 over the 0 at version 0, whatever happens to connections."""
    while True:
        try:
            await store.compare_and_set(path, b"1", Version(0))
        except (OutcomeUnknownError, StoreUnavailableError):
            continue
        except VersionConflictError:
            return  # an attempt without an answer was applied
        else:
            return


async def test_a_replaced_leader_answers_no_agreed_read(tmp_path: Path) -> None:
    """Its answers to fresh reads are older than what another client wrote: 60 of 60 here."""
    async with ZooKeeperEnsemble(tmp_path) as ensemble:
        for number in range(ROUNDS):
            path = f"/{number}"
            leader = await ensemble.leader()
            others = ensemble.others(leader)
            one, other = await store_at(ensemble, leader), await store_at(ensemble, *others)
            await other.create(path, b"0")
            assert (await one.get(path, agreed=True)).value == b"0"
            leader.pause()
            await ensemble.leader(among=others)
            await write(other, path)
            reads = [asyncio.create_task(one.get(path, agreed=True)) for _ in range(READS)]
            await asyncio.sleep(0.1)  # the requests wait at the paused leader
            leader.resume()
            assert [stored.value for stored in await asyncio.gather(*reads)] == [b"1"] * READS
            await one.aclose()
            await other.aclose()
