"""One process is the auditor at a time, and all candidates know which one."""

import asyncio
import random

import pytest

from metadata.paths import AUDITOR
from metadata.repair.auditor_election import AuditorElection, read_auditor_id
from metadata.store.memory import MemoryMetadataStore
from tests.until import until, within


async def test_the_next_candidate_follows(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    first = AuditorElection(store, "bookie-a", rng)
    second = AuditorElection(other_store, "bookie-b", rng)
    seen: list[tuple[str | None, bool]] = []
    cancel = second.on_change(lambda: seen.append((second.auditor_id, second.is_auditor)))
    assert await read_auditor_id(other_store) is None
    await first.start()
    await until(lambda: first.is_auditor)
    assert await read_auditor_id(other_store) == "bookie-a"
    await second.start()
    await until(lambda: second.auditor_id == "bookie-a")
    store.suspend()
    store.expire()
    assert not first.is_auditor
    await until(lambda: second.is_auditor)
    assert seen == [("bookie-a", False), ("bookie-b", True)]
    store.resume()
    await until(lambda: first.auditor_id == "bookie-b")
    cancel()
    await second.aclose()
    await until(lambda: first.is_auditor)
    await first.aclose()


async def test_the_election_waits_for_a_readable_value(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    version = await store.create(AUDITOR, b"of no auditor")
    election = AuditorElection(store, "bookie-a", rng)
    await election.start()
    await asyncio.sleep(5)
    assert (election.is_auditor, election.auditor_id) == (False, None)
    await store.delete(AUDITOR, version)
    await until(lambda: election.is_auditor)
    await election.aclose()


async def test_an_end_does_not_wait_for_a_silent_service(
    store: MemoryMetadataStore, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("metadata.store.ephemeral.REMOVE_S_MAX", 0.05)
    election = AuditorElection(store, "bookie-a", rng)
    await election.start()
    await until(lambda: election.is_auditor)
    monkeypatch.setattr(store, "get", never)
    await within(election.aclose())
    assert not election.is_auditor
