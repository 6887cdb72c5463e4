"""A writer whose metadata the service refuses: it ends with a typed error, and nothing waits
(protocol 1.3).
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ledger_client import (
    LedgerError,
    LedgerWriter,
    MetadataConflictError,
    MetadataRefusedError,
)
from metadata.errors import MetadataFormatError, StoreRefusedError
from metadata.ids import Version
from metadata.store.memory import MemoryMetadataStore
from tests.support.ledger_client.cluster import THREE, TestCluster


class Faults:
    """Holds the error that each compare-and-set raises while it is set."""

    def __init__(self) -> None:
        self.error: Exception | None = None


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    faults, plain = Faults(), MemoryMetadataStore.compare_and_set

    async def compare_and_set(
        self: MemoryMetadataStore, path: str, value: bytes, expected: Version
    ) -> Version:
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
