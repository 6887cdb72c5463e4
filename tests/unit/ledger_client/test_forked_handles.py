"""Handles in a forked child, by a real fork: they do not use the parent's connections (api,
"Client").
"""

import os
import warnings
from collections.abc import Callable, Coroutine

import pytest

from ledger_client import ClientClosedError
from tests.support.ledger_client.cluster import THREE, TestCluster, entries_of


def refuses(call: Callable[[], object]) -> bool:
    try:
        found = call()
        if isinstance(found, Coroutine):
            found.send(None)  # there is no loop in the child
    except ClientClosedError as error:
        return "before a fork" in str(error)
    except StopIteration:
        pass
    return False


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
async def test_handles_refuse_to_work_in_a_forked_child(cluster: TestCluster) -> None:
    client = cluster.client()
    writer = await client.create_ledger(THREE)
    await writer.append(b"parent 0")
    reader = await client.open_ledger(writer.id)
    calls: list[Callable[[], object]] = [
        lambda: writer.append_nowait(b"child"),
        lambda: writer.append(b"child"),
        lambda: writer.append_many([b"child"]),
        writer.aclose,
        writer.abort,
        lambda: reader.read_entry(0),
        reader.refresh_last_confirmed,
        client.aclose,
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads do not matter here
        child = os.fork()
    if child == 0:
        refused = -1
        try:
            refused = sum(refuses(call) for call in calls)
        finally:
            os._exit(refused if refused >= 0 else 99)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == len(calls) - 1  # closing the client raises nothing
    assert await writer.append(b"parent 1") == 1
    await reader.aclose()
    await writer.aclose()
    assert await entries_of(client, writer.id, 1) == [b"parent 0", b"parent 1"]
