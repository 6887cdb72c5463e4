"""Registering and following brokers: one holder per id, and no broker is dropped because the store
is silent.
"""

import asyncio
import random
from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.brokers.broker_registration import BROKER_CODEC, ApiVersions
from metadata.brokers.broker_registry import (
    BrokerDirectory,
    BrokerRegistrar,
    BrokerRegistration,
    Listener,
)
from metadata.errors import MetadataFormatError, NameHeldError
from metadata.paths import BROKERS, broker_path
from metadata.store.memory import MemoryMetadataStore
from metadata.topics.topic import BROKER_ID_MAX
from tests.support.metadata.scripted_faults import ScriptedFaults, reads_of
from tests.until import until

FIRST = BrokerRegistration(1, (Listener("PLAINTEXT", "host-a", 9092),), "http://host-a:1", "r1")
SECOND = BrokerRegistration(2, (Listener("PLAINTEXT", "host-b", 9092),))

versions = st.integers(0, 2**15 - 1)


def api_of(name: str, one: int, other: int) -> ApiVersions:
    return ApiVersions(name, min(one, other), max(one, other))


registrations = st.builds(
    BrokerRegistration,
    broker_id=st.integers(0, BROKER_ID_MAX),
    listeners=st.lists(
        st.builds(Listener, st.text(max_size=9), st.text(max_size=9), st.integers(1, 65_535)),
        max_size=3,
    ).map(tuple),
    admin_url=st.text(max_size=9),
    rack=st.text(max_size=9),
    is_leaving=st.booleans(),
    build=st.text(max_size=9),
    apis=st.lists(st.builds(api_of, st.text(max_size=9), versions, versions), max_size=3).map(
        tuple
    ),
    incarnation=st.binary(max_size=16),
)


async def directory_on(
    store: MemoryMetadataStore, rng: random.Random
) -> tuple[BrokerDirectory, list[dict[int, BrokerRegistration]]]:
    """Return a directory that has started, and its brokers after each change."""
    directory = BrokerDirectory(store, rng)
    seen: list[dict[int, BrokerRegistration]] = []
    directory.on_change(lambda: seen.append(dict(directory.brokers)))
    await directory.start()
    return directory, seen


@given(registrations)
def test_a_registration_round_trips(registration: BrokerRegistration) -> None:
    value = BROKER_CODEC.pack("a broker", registration)
    assert BROKER_CODEC.unpack("/a", value, incarnation=registration.incarnation) == registration


@given(st.binary(max_size=60))
def test_other_bytes_are_a_format_error(value: bytes) -> None:
    with pytest.raises(MetadataFormatError):
        BROKER_CODEC.unpack("/a", value, incarnation=b"")


GOOD_LISTENER = ["PLAINTEXT", "host-a", 9092]


@pytest.mark.parametrize(
    ("broker_id", "listeners", "is_good"),
    [
        (0, [["PLAINTEXT", "host-a", 1]], True),
        (BROKER_ID_MAX, [["PLAINTEXT", "host-a", 65_535]], True),
        (-1, [GOOD_LISTENER], False),
        (BROKER_ID_MAX + 1, [GOOD_LISTENER], False),
        (1, [["PLAINTEXT", "host-a", 0]], False),
        (1, [["PLAINTEXT", "host-a", 65_536]], False),
        (1, [["PLAINTEXT", "host-a"]], False),
        (1, [[*GOOD_LISTENER, 0]], False),
        (1, GOOD_LISTENER, False),
    ],
)
def test_a_field_out_of_range_is_a_format_error(
    broker_id: int, listeners: object, *, is_good: bool
) -> None:
    value = msgpack.packb([1, broker_id, listeners, "", "", False, "", []])
    if is_good:
        assert BROKER_CODEC.unpack("/a", value, incarnation=b"").broker_id == broker_id
    else:
        with pytest.raises(MetadataFormatError, match="/a"):
            BROKER_CODEC.unpack("/a", value, incarnation=b"")


def test_the_fields_in_their_order() -> None:
    registration = replace(FIRST, build="0.9.0", apis=(ApiVersions("Fetch", 4, 16),))
    assert msgpack.unpackb(BROKER_CODEC.pack("a broker", registration)) == [
        *(1, 1, [["PLAINTEXT", "host-a", 9092]], "http://host-a:1", "r1", False),
        *("0.9.0", [["Fetch", 4, 16]]),
    ]


@pytest.mark.parametrize("api", [["Fetch", 4], ["Fetch", 5, 4], ["Fetch", 0, 2**15], [1, 4, 5]])
def test_other_versions_are_a_format_error(api: list[object]) -> None:
    fields = msgpack.unpackb(BROKER_CODEC.pack("a broker", FIRST))
    fields[7] = [api]
    with pytest.raises(MetadataFormatError, match="/a"):
        BROKER_CODEC.unpack("/a", msgpack.packb(fields), incarnation=b"")


def test_listeners_are_found_by_name() -> None:
    assert FIRST.listener("PLAINTEXT") == FIRST.listeners[0]
    assert FIRST.listener("OTHER") is None


async def test_a_directory_shows_the_live_ones(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    registrar = BrokerRegistrar(store, FIRST, rng)
    await registrar.start()
    directory, seen = await directory_on(other_store, rng)
    first = replace(FIRST, incarnation=registrar._keeper.incarnation)
    assert directory.brokers == {1: first}
    second_registrar = BrokerRegistrar(store, SECOND, rng)
    await second_registrar.start()
    await until(lambda: 2 in directory.brokers)
    second = replace(SECOND, incarnation=second_registrar._keeper.incarnation)
    leaving = replace(second, is_leaving=True)
    second_registrar.update(leaving)
    await until(lambda: directory.brokers[2].is_leaving)
    await registrar.aclose()
    await until(lambda: 1 not in directory.brokers)
    assert seen == [{1: first}, {1: first, 2: second}, {1: first, 2: leaving}, {2: leaving}]
    await directory.aclose()
    await second_registrar.aclose()


async def test_a_new_process_under_an_id_is_a_change(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    first = BrokerRegistrar(store, FIRST, rng)
    await first.start()
    directory, seen = await directory_on(other_store, rng)
    other_store.suspend()
    await first.aclose()
    second = BrokerRegistrar(store, FIRST, rng)
    await second.start()
    assert len(seen) == 1
    other_store.resume()
    await until(lambda: seen[-1] == {1: replace(FIRST, incarnation=second._keeper.incarnation)})
    await directory.aclose()
    await second.aclose()


async def test_a_registration_returns_with_a_new_session(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    registrar = BrokerRegistrar(store, FIRST, rng)
    await registrar.start()
    directory, seen = await directory_on(other_store, rng)
    store.expire()
    await until(lambda: {} in seen and 1 in directory.brokers)
    assert directory.brokers[1].incarnation == registrar._keeper.incarnation
    await directory.aclose()
    await registrar.aclose()


async def test_no_broker_is_dropped_while_the_service_is_silent(
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    faults: ScriptedFaults,
    rng: random.Random,
) -> None:
    registrar = BrokerRegistrar(store, FIRST, rng)
    await registrar.start()
    directory, seen = await directory_on(other_store, rng)
    faults.meets, faults.refusals = reads_of(other_store), 20
    other_store.suspend()
    other_store.resume()
    await until(lambda: faults.refusals == 0)
    assert 1 in directory.brokers
    await directory.refresh()
    assert len(seen) == 1
    await directory.aclose()
    await registrar.aclose()


async def test_an_id_has_one_live_holder(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    lost: list[NameHeldError] = []
    first = BrokerRegistrar(store, FIRST, rng, on_lost=lost.append)
    await first.start()
    second = BrokerRegistrar(other_store, FIRST, rng)
    with pytest.raises(NameHeldError):
        await second.start(held_wait_s=0.0)
    third = BrokerRegistrar(other_store, FIRST, rng, dead_incarnations=(first._keeper.incarnation,))
    await third.start(held_wait_s=0.0)
    await until(lambda: len(lost) == 1)
    await third.aclose()
    await first.aclose()


@pytest.mark.parametrize(
    "name", ["a-name", "1a", "\N{SUPERSCRIPT ONE}", "7", "00", str(BROKER_ID_MAX + 1)]
)
async def test_a_node_that_is_not_its_brokers_is_ignored(
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    rng: random.Random,
    name: str,
) -> None:
    """A copy of a broker's value under another name neither registers a broker nor removes one."""
    reports: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: reports.append(what))
    registrar = BrokerRegistrar(store, replace(FIRST, broker_id=0), rng)
    await registrar.start()
    value = (await store.get(broker_path(0))).value
    path = f"{BROKERS}/{name}"
    directory, seen = await directory_on(other_store, rng)
    await store.create(path, value.replace(b"host-a", b"host-x"))
    await asyncio.sleep(1.0)
    await store.delete(path, (await store.get(path)).version)
    await asyncio.sleep(1.0)
    assert [each[0].listeners for each in seen] == [FIRST.listeners]
    assert reports == []
    await directory.aclose()
    await registrar.aclose()


async def test_an_unreadable_registration_is_ignored(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    await store.create(broker_path(7), b"of no broker")
    registrar = BrokerRegistrar(store, FIRST, rng)
    await registrar.start()
    directory, seen = await directory_on(other_store, rng)
    assert list(directory.brokers) == [1]
    await store.delete(broker_path(7), (await store.get(broker_path(7))).version)
    await directory.refresh()
    assert len(seen) == 1
    await directory.aclose()
    await registrar.aclose()


async def test_a_value_that_is_written_again_is_no_change(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    registrar = BrokerRegistrar(store, FIRST, rng)
    await registrar.start()
    directory, seen = await directory_on(other_store, rng)
    stored = await store.get(broker_path(1))
    await store.compare_and_set(broker_path(1), stored.value, stored.version)
    await asyncio.sleep(1.0)
    assert len(seen) == 1
    await directory.aclose()
    await registrar.aclose()


async def test_a_refresh_does_not_wait_for_the_watch(
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    faults: ScriptedFaults,
    rng: random.Random,
) -> None:
    directory, _ = await directory_on(other_store, rng)
    faults.news_s = 60.0
    registrar = BrokerRegistrar(store, FIRST, rng)
    await registrar.start()
    await asyncio.sleep(1.0)
    assert directory.brokers == {}
    await directory.refresh()
    assert list(directory.brokers) == [1]
    await directory.aclose()
    await registrar.aclose()


async def test_a_closed_directory_keeps_what_it_knew(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    registrar = BrokerRegistrar(store, FIRST, rng)
    await registrar.start()
    directory, seen = await directory_on(other_store, rng)
    await directory.aclose()
    await registrar.aclose()
    await asyncio.sleep(1.0)
    assert list(directory.brokers) == [1]
    assert len(seen) == 1
