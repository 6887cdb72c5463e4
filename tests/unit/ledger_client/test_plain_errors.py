"""Misuse that Python would report in words about internals has a plain error, a handle says what it
is, and one that is dropped warns.
"""

import asyncio
import copy
import gc
import pickle
from typing import Any

import pytest

from ledger_client import LedgerClient, MetadataUnavailableError
from ledger_client import sync as blocking
from ledger_client.config import ClientConfig
from tests.support.ledger_client.cluster import THREE, TestCluster

ATTEMPTS_MAX = 20


@pytest.mark.parametrize("kind", [LedgerClient, blocking.LedgerClient])
@pytest.mark.parametrize("uri", [None, b"zk://127.0.0.1:1/quire", 7])
def test_an_address_that_is_no_text(kind: Any, uri: object) -> None:
    with pytest.raises(TypeError, match="a metadata URI is a str such as zk://host:2181/quire"):
        kind(uri)


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        (
            "zk://no-such-host.invalid/quire",
            "DNS does not know no-such-host.invalid: check",
        ),
        ("zk://127.0.0.1:1,no-such-host.invalid/quire", "DNS does not know no-such-host.invalid"),
        ("gateway://no-such-host.invalid", "no-such-host.invalid:2188: [Errno"),
    ],
)
def test_a_host_that_has_no_address(uri: str, why: str) -> None:
    async def refused() -> str:
        client = LedgerClient(uri, config=ClientConfig(metadata_timeout_s=0.5))
        said: list[str] = []
        while not any(why in each for each in said) and len(said) < ATTEMPTS_MAX:
            with pytest.raises(MetadataUnavailableError) as raised:
                await client.ledger_info(1)
            said.append(str(raised.value))  # the reason is known once an attempt has ended
        await client.aclose()
        return said[-1]

    assert why in asyncio.run(refused())  # by the names of this machine, in its time


async def test_handles_are_not_pickled_and_asynchronous_items_need_async_for(
    cluster: TestCluster,
) -> None:
    client = cluster.client()
    async with client.create_ledger(THREE) as writer, client.open_ledger(writer.id) as reader:
        for handle in (client, writer, reader, client.chain("events")):
            for spread in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match=r"pass the metadata URI and ledger ids"):
                    spread(handle)
        items: Any = reader.read()
        with pytest.raises(TypeError, match="write `async for`"):
            list(items)


async def test_handles_say_what_they_are(cluster: TestCluster) -> None:
    client = cluster.client()
    chain, address = client.chain("events"), "memory"
    assert repr(client) == f"<LedgerClient of {address}, not connected>"
    writer = await client.create_ledger(THREE, password=b"a ledger's secret")
    assert repr(writer) == f"<LedgerWriter of ledger {writer.id}, last confirmed -1, open>"
    await writer.append(b"payload")
    reader = await client.open_ledger(writer.id, password=b"a ledger's secret")
    assert repr(reader) == f"<LedgerReader of ledger {writer.id}, last confirmed 0, open>"
    assert repr(chain) == f"<Chain 'events' of {address}, connected>"
    await reader.aclose()
    await writer.aclose()
    await client.aclose()
    assert repr(reader) == f"<LedgerReader of ledger {writer.id}, last confirmed 0, closed>"
    assert repr(writer) == f"<LedgerWriter of ledger {writer.id}, last confirmed 0, closed>"
    assert repr(client) == f"<LedgerClient of {address}, closed>"


async def test_a_client_that_is_dropped_warns_if_it_was_used(cluster: TestCluster) -> None:
    def left() -> LedgerClient:
        cluster.client()
        return cluster.clients.pop()

    left()
    gc.collect()  # it never connected, so it holds nothing
    client = left()
    writer = await client.create_ledger(THREE)
    session = client._session
    dropped = [client]
    del client
    with pytest.warns(ResourceWarning, match="<LedgerClient of .*, connected> was dropped and is"):
        dropped.clear()
    await writer.append(b"its writer goes on")
    await session.aclose()
