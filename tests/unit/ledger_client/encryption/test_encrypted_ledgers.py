"""Encrypted ledgers through the public interface, over in-memory bookies and metadata."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger_client import (
    AS_STORED,
    DecryptionError,
    EncryptedLedgerError,
    Encryption,
    EncryptionKeyError,
    EntryTooLargeError,
    LedgerClient,
    PlainLedgerError,
    StoredPayloads,
)
from metadata.ids import UPDATE_TOKEN_BYTES, LedgerId
from tests.support.ledger_client.cluster import THREE, TestCluster

KEYS = {"old": Random(1).randbytes(32), "new": Random(2).randbytes(32)}
MARK = b"a payload that must not leave the client"


def keys(current: str | None = "new", *, reads_plain: bool = False) -> Encryption:
    return Encryption(KEYS.__getitem__, current, reads_plain=reads_plain, rng=Random(5))


async def payloads_of(
    client: LedgerClient, ledger_id: int, encryption: Encryption | StoredPayloads | None
) -> list[bytes]:
    async with client.open_ledger(ledger_id, encryption=encryption) as reader:
        return [entry.data async for batch in reader.read() for entry in batch]


def stored(cluster: TestCluster, ledger_id: int) -> bytes:
    """Return all that bookies hold of a ledger."""
    held = [bookie.ledgers.get(LedgerId(ledger_id)) for bookie in cluster.bookies]
    return b"".join(
        bytes(view.data) for ledger in held if ledger for view in ledger.entries.values()
    )


async def test_every_way_to_append_is_encrypted(cluster: TestCluster) -> None:
    async with cluster.client() as client:
        async with client.create_ledger(THREE, encryption=keys()) as ledger:
            assert await ledger.append(MARK + b"0") == 0
            assert await ledger.append_many([MARK + b"1", MARK + b"2"]) == range(1, 3)
            assert await ledger.append_nowait(bytearray(MARK + b"3")) == 3
            assert ledger.append_followed(memoryview(MARK + b"4")) == 4

            async def more() -> AsyncIterator[bytes]:
                yield MARK + b"5"
                yield b""

            assert await ledger.append_many(more()) == range(5, 7)
        wanted = [MARK + b"%d" % number for number in range(6)] + [b""]
        assert await payloads_of(client, ledger.id, keys(None)) == wanted
        assert MARK not in stored(cluster, ledger.id)
        info = await client.ledger_info(ledger.id)
        assert info.length == sum(len(each) + 16 for each in wanted)
        assert info.encryption is not None
        assert (info.encryption.key_id, info.encryption.key_token) == ("new", info.creation_token)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.binary(max_size=60), min_size=1, max_size=8), min_size=1, max_size=6))
def test_any_payloads_are_read_back(groups: list[list[bytes]]) -> None:
    async def story() -> None:
        cluster = TestCluster()
        for _ in range(3):
            await cluster.add_bookie()
        async with cluster.client(batch_bytes_max=100) as client:
            async with client.create_ledger(THREE, encryption=keys()) as ledger:
                for group in groups:
                    await ledger.append_many(group)
            wanted = [each for group in groups for each in group]
            assert await payloads_of(client, ledger.id, keys()) == wanted
            async with client.open_ledger(ledger.id, encryption=keys()) as reader:
                for entry_id, payload in enumerate(wanted):  # a part of a batch
                    assert await reader.read_entry(entry_id) == (entry_id, payload)
        await cluster.aclose()

    asyncio.run(story())


async def test_ledgers_with_equal_payloads_hold_different_bytes(cluster: TestCluster) -> None:
    async with cluster.client() as client:
        held = []
        encryption = keys()
        for _ in range(2):
            async with client.create_ledger(THREE, encryption=encryption) as ledger:
                await ledger.append_many([MARK, MARK])
            held += await payloads_of(client, ledger.id, AS_STORED)
        assert len({*held}) == 4


async def test_keys_of_ledgers_do_not_come_from_the_clients_generator(cluster: TestCluster) -> None:
    """A copy of a virtual machine repeats the client's generator, and keys must differ."""
    async with cluster.client() as client:
        async with client.create_ledger(THREE, encryption=keys()) as ledger:
            info = ledger.info
        assert info.creation_token == Random(5).randbytes(UPDATE_TOKEN_BYTES)


async def test_tailing_and_long_polls(cluster: TestCluster) -> None:
    async with cluster.client() as client, cluster.client() as other:
        ledger = await client.create_ledger(THREE, encryption=keys())
        reader = await other.open_ledger(ledger.id, encryption=keys())
        found: list[bytes] = []

        async def tail() -> None:
            async for batch in reader.tail():
                found.extend(entry.data for entry in batch)

        following = asyncio.create_task(tail())
        for number in range(20):
            await ledger.append(b"%d" % number)
            await asyncio.sleep(0.01)
        await reader.wait_confirmed(10, timeout=5)
        await ledger.aclose()
        await following
        assert found == [b"%d" % number for number in range(20)]
        await reader.aclose()


async def test_unconfirmed_entries_are_decrypted(cluster: TestCluster) -> None:
    async with cluster.client() as client:
        ledger = await client.create_ledger(THREE, encryption=keys())
        await ledger.append_many([b"a", b"b"])
        async with client.open_ledger(ledger.id, encryption=keys()) as reader:
            batches = [batch async for batch in reader.read_unconfirmed(0, 1)]
            assert [entry.data for batch in batches for entry in batch] == [b"a", b"b"]
            payload, offsets = batches[0].buffers()
            assert (bytes(payload), offsets[:2], batches[0].ledger_id) == (b"ab", [0, 1], ledger.id)
        await ledger.aclose()


async def test_recovery_needs_no_key(cluster: TestCluster) -> None:
    async with cluster.client() as client, cluster.client() as other:
        ledger = await client.create_ledger(THREE, encryption=keys())
        await ledger.append_many([b"a", b"b", b"c"])
        info = await other.recover_ledger(ledger.id)
        assert (info.last_entry_id, info.length) == (2, 51)
        assert await payloads_of(other, ledger.id, keys()) == [b"a", b"b", b"c"]


async def test_the_limit_of_an_entry_includes_the_tag(cluster: TestCluster) -> None:
    async with cluster.client(entry_bytes_max=100) as client:
        async with client.create_ledger(THREE, encryption=keys()) as ledger:
            await ledger.append(bytes(84))
            await ledger.append_many([bytes(84)])
            for call in (ledger.append(bytes(85)), ledger.append_many([b"", bytes(85)])):
                with pytest.raises(EntryTooLargeError, match="85 bytes is over the limit of 84"):
                    await call
        async with client.create_ledger(THREE) as plain:
            await plain.append(bytes(100))


async def test_the_window_counts_stored_bytes(cluster: TestCluster) -> None:
    async with cluster.client() as client:
        async with client.create_ledger(THREE, encryption=keys()) as ledger:
            ledger.append_followed(bytes(10))
            assert ledger.admission.window._bytes == 10 + 16 + 64
            await ledger.append_many([bytes(5)] * 3)
        assert ledger.admission.window._bytes == 0


# -- keys ------------------------------------------------------------------------------------------


async def test_without_a_key_nothing_is_returned(cluster: TestCluster) -> None:
    async with cluster.client() as client:
        async with client.create_ledger(THREE, encryption=keys()) as ledger:
            await ledger.append(MARK)
        with pytest.raises(EncryptedLedgerError, match="key 'new', and no key was given"):
            await client.open_ledger(ledger.id)
        other = Encryption(lambda _: KEYS["old"])
        with pytest.raises(EncryptionKeyError, match="not the one that the ledger was written"):
            await client.open_ledger(ledger.id, encryption=other)
        with pytest.raises(EncryptionKeyError, match="was not found"):
            await client.open_ledger(ledger.id, encryption=Encryption({"old": b""}.__getitem__))
        (ciphertext,) = await payloads_of(client, ledger.id, AS_STORED)
        assert len(ciphertext) == len(MARK) + 16


async def test_after_a_rotation_both_keys_are_used(cluster: TestCluster) -> None:
    async with cluster.client() as client:
        ids = []
        for current in ("old", "new"):
            async with client.create_ledger(THREE, encryption=keys(current)) as ledger:
                await ledger.append(current.encode())
            ids.append(ledger.id)
        assert [await payloads_of(client, ledger_id, keys()) for ledger_id in ids] == [
            [b"old"],
            [b"new"],
        ]


async def test_keys_for_a_plain_ledger(cluster: TestCluster) -> None:
    async with cluster.client() as client:
        async with client.create_ledger(THREE) as ledger:
            await ledger.append(MARK)
        with pytest.raises(PlainLedgerError):
            await client.open_ledger(ledger.id, encryption=keys())
        assert await payloads_of(client, ledger.id, keys(reads_plain=True)) == [MARK]
        assert await payloads_of(client, ledger.id, AS_STORED) == [MARK]


def test_a_ledger_is_not_created_without_its_key() -> None:
    client = LedgerClient("zk://localhost:1/none")
    with pytest.raises(EncryptionKeyError, match="no key is named"):
        client.create_ledger(THREE, encryption=keys(None))


# -- copies and changed bytes ----------------------------------------------------------------------


async def copied(client: LedgerClient, ledger_id: int, payloads: list[bytes]) -> int:
    """Create a ledger with the encryption of another one, from its stored payloads."""
    info = await client.ledger_info(ledger_id)
    async with client.create_ledger(THREE, encryption=info.encryption) as copy:
        await copy.append_many(payloads)
    return copy.id


async def test_a_copy_of_the_ciphertext_is_read_with_the_same_key(cluster: TestCluster) -> None:
    async with cluster.client() as client:
        async with client.create_ledger(THREE, encryption=keys()) as ledger:
            await ledger.append_many([b"a", b"b", MARK])
        held = await payloads_of(client, ledger.id, AS_STORED)
        copy = await copied(client, ledger.id, held)
        assert await payloads_of(client, copy, keys()) == [b"a", b"b", MARK]
        assert await payloads_of(client, copy, AS_STORED) == held
        again = await copied(client, copy, held)
        assert await payloads_of(client, again, keys()) == [b"a", b"b", MARK]
        info = await client.ledger_info(again)
        assert info.encryption is not None
        assert info.encryption.key_token != info.creation_token


async def test_changed_exchanged_and_foreign_entries_are_refused(cluster: TestCluster) -> None:
    """With valid digests, as someone who can write to bookies could make them."""
    async with cluster.client() as client:
        ids, held = [], []
        encryption = keys()
        for _ in range(2):
            async with client.create_ledger(THREE, encryption=encryption) as ledger:
                await ledger.append_many([b"one", b"two"])
            ids.append(ledger.id)
            held.append(await payloads_of(client, ledger.id, AS_STORED))
        (one, two), (foreign, _) = held
        changed = bytes([one[0] ^ 1]) + one[1:]
        bad = {0: [two, one], 1: [one, one], 2: [changed, two], 3: [foreign, two], 4: [b"", two]}
        bad_ids = {0: 0, 1: 1, 2: 0, 3: 0, 4: 0}
        for case, payloads in bad.items():
            copy = await copied(client, ids[0], payloads)
            with pytest.raises(DecryptionError) as caught:
                await payloads_of(client, copy, keys())
            assert (caught.value.entry_id, caught.value.ledger_id) == (bad_ids[case], copy)
            async with client.open_ledger(copy, encryption=keys()) as reader:
                with pytest.raises(DecryptionError):
                    async for batch in reader.tail():
                        pytest.fail(f"returned {list(batch)}")


async def test_an_entry_is_read_although_another_one_of_its_batch_was_changed(
    cluster: TestCluster,
) -> None:
    async with cluster.client() as client:
        async with client.create_ledger(THREE, encryption=keys()) as ledger:
            await ledger.append_many([b"one", b"two"])
        one, _ = await payloads_of(client, ledger.id, AS_STORED)
        copy = await copied(client, ledger.id, [one, one])
        async with client.open_ledger(copy, encryption=keys()) as reader:
            assert (await reader.read_entry(0)).data == b"one"
            with pytest.raises(DecryptionError, match="entry 1 cannot be decrypted"):
                await reader.read_entry(1)
