"""Claims of created ledgers whose metadata another process changes at the same time (9.15)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from ledger_client import (
    EncryptedLedgerError,
    Encryption,
    EncryptionKeyError,
    LedgerClosedError,
    PlainLedgerError,
    Quorum,
)
from ledger_client.client_services import ClientServices
from ledger_client.ledger_calls import NewLedger
from metadata.ids import ClientId, LedgerId, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata
from quire.operate.appends import CLAIMS_MAX, create_unclaimed_by, writer_claimed_by
from tests.support.ledger_client.cluster import TestCluster


async def _services(cluster: TestCluster) -> ClientServices:
    for _ in range(3):
        await cluster.add_bookie()
    return await cluster.client()._session.services()


def _note(found: LedgerMetadata, number: int) -> LedgerMetadata:
    return replace(found, custom={**found.custom, "changed": str(number)})


def _change_meanwhile(
    services: ClientServices,
    count: int,
    change: Callable[[LedgerMetadata, int], LedgerMetadata] = _note,
) -> list[int]:
    """Change the metadata before each of the next compare-and-sets, as repair may do."""
    store = services.ledgers.compare_and_set
    changes: list[int] = []

    async def changed_first(metadata: LedgerMetadata, expected: Version) -> Version:
        if len(changes) < count:
            changes.append(len(changes))
            found, current = await services.ledgers.get(metadata.ledger_id, fresh=True)
            await store(change(found, len(changes)), current)
        return await store(metadata, expected)

    services.ledgers.compare_and_set = changed_first  # type: ignore[method-assign]
    return changes


async def _unclaimed(services: ClientServices) -> LedgerId:
    wanted = NewLedger.of(Quorum(3, 3, 2), None, "crc32c", b"", {})
    return LedgerId((await create_unclaimed_by(services, wanted)).id)


async def test_a_claim_is_tried_again_when_the_metadata_changes() -> None:
    cluster = TestCluster()
    try:
        services = await _services(cluster)
        ledger_id = await _unclaimed(services)
        changes = _change_meanwhile(services, CLAIMS_MAX - 1)
        async with writer_claimed_by(services, ledger_id, b"") as writer:
            assert await writer.append(b"first") == 0
        assert len(changes) == CLAIMS_MAX - 1
        stored, _ = await services.ledgers.get(ledger_id, fresh=True)
        assert stored.custom["changed"] == str(CLAIMS_MAX - 1), "the other change is kept"
    finally:
        await cluster.aclose()


async def test_a_claim_that_always_loses_says_so() -> None:
    cluster = TestCluster()
    try:
        services = await _services(cluster)
        ledger_id = await _unclaimed(services)
        _change_meanwhile(services, CLAIMS_MAX)
        with pytest.raises(LedgerClosedError, match="changed 5 times"):
            async with writer_claimed_by(services, ledger_id, b""):
                pass
        stored, _ = await services.ledgers.get(ledger_id, fresh=True)
        assert stored.is_unclaimed, "the next claim may succeed"
    finally:
        await cluster.aclose()


async def test_a_claim_that_meets_another_one_fails() -> None:
    def claim(found: LedgerMetadata, _number: int) -> LedgerMetadata:
        return replace(found, custom={}, writer=ClientId("the-other-client"))

    cluster = TestCluster()
    try:
        services = await _services(cluster)
        ledger_id = await _unclaimed(services)
        _change_meanwhile(services, 1, claim)
        with pytest.raises(LedgerClosedError, match="the-other-client, is or was its writer"):
            async with writer_claimed_by(services, ledger_id, b""):
                pass
        stored, _ = await services.ledgers.get(ledger_id, fresh=True)
        assert stored.writer == "the-other-client"
    finally:
        await cluster.aclose()


async def test_an_encrypted_ledger_is_claimed_with_its_key() -> None:
    cluster = TestCluster()
    key, other = Encryption({"k": bytes(32)}.__getitem__, "k"), Encryption(lambda _: b"1" * 32)
    try:
        services = await _services(cluster)
        wanted = NewLedger.of(Quorum(3, 3, 2), None, "crc32c", b"", {}, key)
        ledger_id = LedgerId((await create_unclaimed_by(services, wanted)).id)
        for wrong, kind in ((None, EncryptedLedgerError), (other, EncryptionKeyError)):
            with pytest.raises(kind):
                async with writer_claimed_by(services, ledger_id, b"", wrong):
                    pytest.fail("claimed")
        async with writer_claimed_by(services, ledger_id, b"", key) as writer:
            await writer.append(b"first")
        async with cluster.client().open_ledger(ledger_id, encryption=key) as reader:
            assert (await reader.read_entry(0)).data == b"first"
        with pytest.raises(LedgerClosedError):  # no second writer, so no id is encrypted twice
            async with writer_claimed_by(services, ledger_id, b"", key):
                pytest.fail("claimed again")
        plain = await _unclaimed(services)
        with pytest.raises(PlainLedgerError, match="created without encryption"):
            async with writer_claimed_by(services, plain, b"", key):
                pytest.fail("claimed")
    finally:
        await cluster.aclose()
