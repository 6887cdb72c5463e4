"""A writer whose metadata the service refuses: it ends with a typed error, and nothing waits
(protocol 1.3).
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
from kazoo import exceptions as kazoo_errors

from ledger_client import (
    LedgerError,
    LedgerWriter,
    MetadataConflictError,
    MetadataRefusedError,
)
from metadata.errors import MetadataFormatError, StoreRefusedError
from metadata.ids import Version
from metadata.store.interface import CompareAndSet
from metadata.store.memory import MemoryMetadataStore
from metadata.store.zookeeper.calls import translated
from tests.support.ledger_client.cluster import THREE, TestCluster
from tests.until import until


class Faults:
    """Holds the error that each compare-and-set raises while it is set, and errors that one
    compare-and-set each raises.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.once: list[Exception] = []


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    faults, plain = Faults(), MemoryMetadataStore.compare_and_set

    async def compare_and_set(
        self: MemoryMetadataStore, path: str, value: bytes, expected: Version
    ) -> Version:
        if faults.once:
            raise faults.once.pop()
        if faults.error is not None:
            raise faults.error
        return await plain(self, path, value, expected)

    monkeypatch.setattr(MemoryMetadataStore, "compare_and_set", compare_and_set)
    return faults


@pytest.fixture
async def writer(cluster: TestCluster, faults: Faults) -> AsyncIterator[LedgerWriter]:
    writer = await cluster.client().create_ledger(THREE)
    await writer.append(b"confirmed")
    yield writer
    faults.error = None


ERRORS = [
    (StoreRefusedError("/ledgers", "zk", "NoAuthError"), MetadataRefusedError, "NoAuthError"),
    (MetadataFormatError("/ledgers", "a newer format"), MetadataConflictError, "a newer format"),
    (LookupError("a defect"), LedgerError, "LookupError: a defect"),
]


@pytest.mark.parametrize(("error", "expected", "text"), ERRORS)
async def test_a_refused_close_raises_at_once(
    writer: LedgerWriter,
    faults: Faults,
    error: Exception,
    expected: type[LedgerError],
    text: str,
) -> None:
    faults.error = error
    async with asyncio.timeout(1):
        with pytest.raises(expected, match=text) as caught:
            await writer.aclose()
    assert caught.value.ledger_id == writer.id
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(("error", "expected", "text"), ERRORS)
async def test_a_refused_change_of_members_fails_the_pending_appends(
    writer: LedgerWriter,
    faults: Faults,
    error: Exception,
    expected: type[LedgerError],
    text: str,
) -> None:
    faults.error = error
    async with asyncio.timeout(3):
        with pytest.raises(expected, match=text) as caught:
            while True:
                writer._watch.suspect(writer.members[0], 1.0)
                await writer.append(b"pending")
        assert caught.value.outcome in ("unknown", "not_written")
        with pytest.raises(expected, match=text):
            await writer.aclose()


@pytest.mark.parametrize("error", [RuntimeError("new"), kazoo_errors.SystemZookeeperError()])
async def test_an_error_of_unknown_meaning_only_delays_a_writer(
    writer: LedgerWriter, faults: Faults, error: Exception
) -> None:
    unknown = translated(error, CompareAndSet("/ledgers", b"", Version(0)), "zk:2181")
    members = writer.members
    faults.once = [unknown] * 3
    writer._watch.suspect(members[0], 1.0)
    assert await writer.append(b"confirmed too") == 1
    await until(lambda: writer.members != members)
    assert not faults.once
    faults.once = [unknown]
    async with asyncio.timeout(30):
        await writer.aclose()
    assert (writer.info.state, writer.info.last_entry_id) == ("closed", 1)
