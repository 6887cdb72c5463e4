"""Members that depart while their ledger waits for its turn are all replaced (rule 5.6)."""

import asyncio

from ledger_client import Quorum
from tests.support.ledger_client.cluster import TestCluster
from tests.until import until


async def test_two_members_that_depart_before_the_turn_of_their_ledger_are_both_replaced(
    cluster: TestCluster,
) -> None:
    for _ in range(2):
        await cluster.add_bookie()
    client = cluster.client(metadata_changes_at_once=1)
    writer = await client.create_ledger(Quorum(4, 4, 2))
    await writer.append(b"order")
    services, changed = await client._session.services(), asyncio.Event()

    async def change_another_ledger() -> None:
        await changed.wait()

    task = asyncio.get_running_loop().create_task(change_another_ledger())
    services.for_writers.turns.count(task)
    gone = writer.info.fragments[-1].ensemble[:2]
    for each in gone:
        bookie = cluster.bookie(each)
        await bookie.unregister()
        await bookie.stop()
    await until(lambda: not any(each in services.directory.bookies for each in gone))
    await asyncio.sleep(0.05)
    assert writer.info.fragments[-1].ensemble[:2] == gone, "it is not its turn"
    changed.set()
    await until(lambda: not {*gone} & {*writer.info.fragments[-1].ensemble})
    await writer.aclose()
