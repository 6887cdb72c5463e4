"""Contact with the metadata service: shared reads that begin after the call."""

import asyncio

import pytest

from metadata.errors import StoreUnavailableError
from quire.gateway.gateway_context import Contact


class Service:
    """Answers reads when the test says so."""

    def __init__(self) -> None:
        self.reads: list[asyncio.Future[None]] = []

    async def read(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reads.append(future)
        await future


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_call_waits_for_a_read_that_begins_after_it() -> None:
    service = Service()
    contact = Contact(service.read)
    first = asyncio.create_task(contact.prove())
    await turns()
    others = [asyncio.create_task(contact.prove()) for _ in range(3)]
    await turns()
    assert len(service.reads) == 1
    service.reads[0].set_result(None)
    await turns()
    assert first.done()
    assert not any(other.done() for other in others)
    assert len(service.reads) == 2
    service.reads[1].set_result(None)
    await asyncio.gather(*others)
    again = asyncio.create_task(contact.prove())
    await turns()
    assert len(service.reads) == 3
    service.reads[2].set_exception(StoreUnavailableError("there", "why"))
    with pytest.raises(StoreUnavailableError):
        await again
    await contact.aclose()


async def test_calls_end_with_the_contact() -> None:
    service = Service()
    contact = Contact(service.read)
    calls = [asyncio.create_task(contact.prove())]
    await turns()
    calls.append(asyncio.create_task(contact.prove()))
    await turns()
    await contact.aclose()
    for call in calls:
        with pytest.raises(asyncio.CancelledError):
            await call
