"""Contract of metadata stores, as one suite that runs on each implementation.

Leaves creating stores, breaking their connections and ending their sessions to the `StoreService`
of the implementation.
"""

import asyncio

import pytest

from metadata.errors import (
    NodeExistsError,
    NodeNotEmptyError,
    NodeNotFoundError,
    StoreClosedError,
    ValueTooLargeError,
    VersionConflictError,
)
from metadata.ids import Version
from metadata.store.interface import (
    MULTI_OPERATIONS_MAX,
    VALUE_BYTES_MAX,
    Check,
    CompareAndSet,
    Create,
    Delete,
    MetadataStore,
    Operation,
    SessionState,
    Stored,
)
from tests.contracts.metadata_watches import MetadataWatchContract
from tests.contracts.store_service import Signal, StoreService, eventually, settle


class MetadataStoreContract(MetadataWatchContract):
    """Tests to inherit in a class with a `service` fixture."""

    async def test_a_created_value_is_read_at_version_0(self, service: StoreService) -> None:
        store = await service.connect()
        assert await store.create("/a", b"one") == 0
        assert await store.get("/a") == Stored(b"one", Version(0))

    async def test_create_makes_parents(self, service: StoreService) -> None:
        store = await service.connect()
        await store.create("/a/b/c", b"x")
        await store.create("/a/b/d", b"y")
        assert await store.children("/a/b") == ["c", "d"]

    async def test_create_without_parents_needs_them(self, service: StoreService) -> None:
        store = await service.connect()
        with pytest.raises(NodeNotFoundError):
            await store.create("/a/b", b"", make_parents=False)

    async def test_a_second_create_finds_the_path_taken(self, service: StoreService) -> None:
        store = await service.connect()
        await store.create("/a", b"one")
        with pytest.raises(NodeExistsError) as caught:
            await store.create("/a", b"two")
        assert caught.value.path == "/a"
        assert (await store.get("/a")).value == b"one"

    async def test_compare_and_set_counts_versions(self, service: StoreService) -> None:
        store = await service.connect()
        await store.create("/a", b"0")
        assert await store.compare_and_set("/a", b"1", Version(0)) == 1
        assert await store.compare_and_set("/a", b"2", Version(1)) == 2
        assert await store.get("/a") == Stored(b"2", Version(2))

    async def test_times_are_by_one_clock_or_not_said(self, service: StoreService) -> None:
        store, other = await service.connect(), await service.connect()
        await store.create("/a", b"0")
        created = await store.get("/a")
        await other.compare_and_set("/a", b"1", Version(0))
        changed = await other.get("/a")
        assert created.created_ms == created.modified_ms == changed.created_ms
        if changed.created_ms is None:
            assert changed.modified_ms is None
        else:
            assert changed.modified_ms is not None
            assert changed.modified_ms >= changed.created_ms

    async def test_compare_and_set_at_another_version_conflicts(
        self, service: StoreService
    ) -> None:
        store = await service.connect()
        await store.create("/a", b"0")
        await store.compare_and_set("/a", b"1", Version(0))
        for wrong in (0, 2):
            with pytest.raises(VersionConflictError):
                await store.compare_and_set("/a", b"x", Version(wrong))
        assert (await store.get("/a")).value == b"1"

    async def test_of_many_writers_one_wins_each_version(self, service: StoreService) -> None:
        stores = [await service.connect() for _ in range(3)]
        await stores[0].create("/count", b"0")

        async def add(store: MetadataStore) -> None:
            while True:
                stored = await store.get("/count", fresh=True)
                try:
                    await store.compare_and_set(
                        "/count", b"%d" % (int(stored.value) + 1), stored.version
                    )
                except VersionConflictError:
                    continue
                return

        await asyncio.gather(*[add(store) for store in stores for _ in range(5)])
        assert await stores[0].get("/count", fresh=True) == Stored(b"15", Version(15))

    async def test_error_names_the_missing_node(self, service: StoreService) -> None:
        store = await service.connect()
        with pytest.raises(NodeNotFoundError) as caught:
            await store.get("/none")
        assert caught.value.path == "/none"
        with pytest.raises(NodeNotFoundError):
            await store.compare_and_set("/none", b"", Version(0))
        with pytest.raises(NodeNotFoundError):
            await store.delete("/none", Version(0))
        assert await store.children("/none") == []

    async def test_delete_checks_version_and_children(self, service: StoreService) -> None:
        store = await service.connect()
        await store.create("/a/b", b"")
        with pytest.raises(NodeNotEmptyError):
            await store.delete("/a", Version(0))
        with pytest.raises(VersionConflictError):
            await store.delete("/a/b", Version(1))
        await store.delete("/a/b", Version(0))
        assert await store.children("/a") == []

    async def test_children_are_sorted(self, service: StoreService) -> None:
        store = await service.connect()
        for name in ("c", "a", "b"):
            await store.create(f"/p/{name}", b"")
        assert await store.children("/p") == ["a", "b", "c"]
        assert await store.children("/p", fresh=True) == ["a", "b", "c"]

    async def test_a_fresh_read_sees_what_another_wrote(self, service: StoreService) -> None:
        one, other = await service.connect(), await service.connect()
        await one.create("/a", b"0")
        for version in range(20):
            await one.compare_and_set("/a", b"%d" % version, Version(version))
            assert (await other.get("/a", fresh=True)).value == b"%d" % version

    async def test_an_agreed_read_sees_what_another_wrote(self, service: StoreService) -> None:
        one, other = await service.connect(), await service.connect()
        await one.create("/a", b"0")
        for version in range(20):
            await one.compare_and_set("/a", b"%d" % version, Version(version))
            assert (await other.get("/a", agreed=True)).value == b"%d" % version
        assert await other.children("/", agreed=True) == ["a"]
        with pytest.raises(NodeNotFoundError):
            await other.get("/none", agreed=True)

    async def test_multi_applies_all(self, service: StoreService) -> None:
        store = await service.connect()
        await store.create("/a", b"")
        await store.create("/b", b"")
        versions = await store.multi(
            [
                CompareAndSet("/a", b"1", Version(0)),
                Create("/a/new", b"2"),
                Delete("/b", Version(0)),
                Check("/a", Version(1)),
            ]
        )
        assert versions == [1, 0, 0, 1]
        assert await store.get("/a") == Stored(b"1", Version(1))
        assert await store.get("/a/new") == Stored(b"2", Version(0))
        with pytest.raises(NodeNotFoundError):
            await store.get("/b")

    async def test_multi_applies_none_when_one_fails(self, service: StoreService) -> None:
        store = await service.connect()
        await store.create("/a", b"")
        await store.create("/b", b"")
        before: list[Operation] = [Create("/new", b""), CompareAndSet("/a", b"1", Version(0))]
        failing: Operation
        for failing, error in (
            (Check("/b", Version(7)), VersionConflictError),
            (Create("/b", b""), NodeExistsError),
            (Delete("/none", Version(0)), NodeNotFoundError),
            (CompareAndSet("/b", b"", Version(1)), VersionConflictError),
        ):
            with pytest.raises(error) as caught:
                await store.multi([*before, failing, Delete("/a", Version(1))])
            assert getattr(caught.value, "path", None) == failing.path
        assert await store.get("/a") == Stored(b"", Version(0))
        assert await store.children("/") == ["a", "b"]

    async def test_a_full_multi(self, service: StoreService) -> None:
        store = await service.connect()
        operations = [Create(f"/n{i:03}", b"x" * 5000) for i in range(MULTI_OPERATIONS_MAX)]
        assert await store.multi(operations) == [0] * MULTI_OPERATIONS_MAX
        assert len(await store.children("/")) == MULTI_OPERATIONS_MAX

    async def test_value_of_maximum_size(self, service: StoreService) -> None:
        store = await service.connect()
        value = bytes(VALUE_BYTES_MAX)
        await store.create("/a", value)
        assert (await store.get("/a")).value == value
        await store.compare_and_set("/a", value, Version(0))

    async def test_reads_together_have_their_own_results(self, service: StoreService) -> None:
        store = await service.connect()
        values = {f"/{number}": bytes([number]) * VALUE_BYTES_MAX for number in range(8)}
        values |= {f"/small-{number}": b"%d" % number for number in range(200)}
        await asyncio.gather(*[store.create(*value) for value in values.items()])
        paths = ["/missing", *values, "/small-1/missing"]
        found = await asyncio.gather(*map(store.get, paths), return_exceptions=True)
        assert found[1:-1] == [Stored(value, Version(0)) for value in values.values()]
        assert [type(found[0]), type(found[-1])] == [NodeNotFoundError] * 2
        assert [str(found[0]), str(found[-1])] == [
            str(NodeNotFoundError(path)) for path in ("/missing", "/small-1/missing")
        ]

    async def test_a_larger_value_is_refused_before_sending(self, service: StoreService) -> None:
        store = await service.connect()
        await store.create("/a", b"")
        value = bytes(VALUE_BYTES_MAX + 1)
        with pytest.raises(ValueTooLargeError):
            await store.create("/b", value)
        with pytest.raises(ValueTooLargeError):
            await store.compare_and_set("/a", value, Version(0))
        with pytest.raises(ValueTooLargeError):
            await store.multi([Create("/b", bytes(300_000)), Create("/c", bytes(300_000))])
        assert await store.children("/") == ["a"]

    async def test_ephemeral_node_ends_with_its_store(self, service: StoreService) -> None:
        one, other = await service.connect(), await service.connect()
        await one.create("/live/one", b"1", ephemeral=True)
        assert await other.get("/live/one", fresh=True) == Stored(b"1", Version(0), ephemeral=True)
        await one.aclose()
        with pytest.raises(NodeNotFoundError):
            await other.get("/live/one", fresh=True)
        assert await other.children("/live", fresh=True) == []

    async def test_ephemeral_node_ends_with_its_session(self, service: StoreService) -> None:
        one, other = await service.connect(), await service.connect()
        states: list[SessionState] = []
        one.on_session(states.append)
        first = one.session_id
        await one.create("/live/one", b"1", ephemeral=True)
        gone = Signal()
        other.watch_children("/live", gone)
        await settle(other)
        gone.clear()
        await service.expire(one)
        await eventually(lambda: SessionState.CONNECTED in states)
        assert SessionState.EXPIRED in states[: states.index(SessionState.CONNECTED)]
        assert one.session_id != first
        await gone.wait()
        with pytest.raises(NodeNotFoundError):
            await other.get("/live/one", fresh=True)
        await one.create("/live/one", b"2", ephemeral=True)

    async def test_an_interruption_keeps_the_session(self, service: StoreService) -> None:
        store = await service.connect()
        states: list[SessionState] = []
        store.on_session(states.append)
        first = store.session_id
        await store.create("/live/one", b"1", ephemeral=True)
        await service.interrupt(store)
        await eventually(lambda: SessionState.CONNECTED in states)
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert store.session_id == first
        assert (await store.get("/live/one", fresh=True)).ephemeral

    async def test_a_failing_session_callback_affects_nothing_else(
        self, service: StoreService
    ) -> None:
        store = await service.connect()
        await store.create("/a", b"")
        states: list[SessionState] = []
        reports: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, what: reports.append(what["exception"]))

        def fail(state: SessionState) -> None:
            raise LookupError(state)

        store.on_session(fail)
        store.on_session(states.append)
        signal = Signal()
        store.watch_value("/a", signal)
        await settle(store)
        signal.clear()
        await service.interrupt(store)
        await signal.wait()
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert [type(report) for report in reports] == [LookupError]

    async def test_closed_store_refuses_calls(self, service: StoreService) -> None:
        store = await service.connect()
        states: list[SessionState] = []
        store.on_session(states.append)
        await store.aclose()
        await store.aclose()
        assert store.session_state is SessionState.CLOSED
        for call in (
            store.create("/a", b""),
            store.get("/a"),
            store.compare_and_set("/a", b"", Version(0)),
            store.delete("/a", Version(0)),
            store.children("/"),
            store.multi([Create("/a", b"")]),
        ):
            with pytest.raises(StoreClosedError):
                await call
        await eventually(lambda: SessionState.CLOSED in states)

    async def test_the_address_is_known(self, service: StoreService) -> None:
        store = await service.connect()
        assert store.address
