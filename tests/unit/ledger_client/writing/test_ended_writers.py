"""The errors of a writer that has ended: no call of it can succeed, so none is retriable."""

import asyncio

import pytest

from ledger_client import ClientConfig, LedgerError, NotEnoughBookiesError, QuorumTimeoutError
from quire.errors import ExitCode, exit_code
from tests.support.ledger_client.cluster import THREE, TestCluster


async def refusal(call: object) -> LedgerError:
    with pytest.raises(LedgerError) as raised:
        await call  # type: ignore[misc]  # a call of a writer
    return raised.value


async def test_no_error_of_an_ended_writer_is_retriable(cluster: TestCluster) -> None:
    client = cluster.client()
    writer = await client.create_ledger(THREE)
    await writer.append(b"zero")
    members = [cluster.bookie(member) for member in writer.members]
    spare = next(
        storing_bookie for storing_bookie in cluster.bookies if storing_bookie not in members
    )
    for bookie in (spare, *members[:2]):
        await bookie.unregister()
        await bookie.stop()
    pending = await refusal(writer.append(b"pending", timeout=20))
    for bookie in (spare, *members[:2]):
        await bookie.start()
    errors = [
        pending,
        await refusal(writer.append(b"later")),
        await refusal(writer.append_many([b"later"])),
        await refusal(writer.aclose()),
    ]
    for error in errors:
        assert isinstance(error, NotEnoughBookiesError)
        assert not error.retriable
        assert str(error).startswith(f"ledger {writer.id}: this writer has ended: no replacement")
        assert error.message.startswith("this writer has ended: ")
    assert NotEnoughBookiesError.retriable, "a new ledger can be created later"
    assert exit_code(pending) is ExitCode.UNAVAILABLE, "so can one of the next command"


async def test_an_append_that_is_late_can_be_repeated(cluster: TestCluster) -> None:
    deadline_s = ClientConfig().append_deadline_s
    writer = await cluster.client(append_deadline_s=deadline_s).create_ledger(THREE)
    for bookie in cluster.bookies:
        bookie.is_silent = True
    late = await refusal(writer.append(b"a", timeout=0.05))
    assert isinstance(late, QuorumTimeoutError)
    assert late.retriable
    assert "this writer has ended" not in str(late)
    await asyncio.sleep(0)
    await writer.abort()
