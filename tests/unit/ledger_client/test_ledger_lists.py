"""Lists of named ledgers, read from a metadata server that lags behind."""

from ledger_client import LedgerClient
from metadata.store.memory_faults import NoFaults, StoreCall
from tests.support.ledger_client.cluster import THREE, TestCluster


class LaggingServer(NoFaults):
    """Server whose ordinary reads miss the newest changes, once it lags."""

    is_lagging = False

    def missed_changes(self, call: StoreCall) -> int:  # type: ignore[explicit-override]
        return 5 if self.is_lagging and not call.is_fresh and not call.is_agreed else 0


async def ids_found(client: LedgerClient, asked: list[int]) -> list[int | None]:
    found = [info async for info in client.ledger_infos(asked)]
    return [None if ledger_info is None else ledger_info.id for ledger_info in found]


async def test_a_ledger_that_a_lagging_server_does_not_have_yet_is_not_missing() -> None:
    server = LaggingServer()
    cluster = TestCluster(server)
    for _ in range(3):
        await cluster.add_bookie()
    client = cluster.client()
    never_made = 1_000_000
    assert await ids_found(client, [never_made]) == [None]
    server.is_lagging = True
    writer = await cluster.client().create_ledger(THREE)
    assert await ids_found(client, [writer.id, never_made]) == [writer.id, None]
    server.is_lagging = False
    await writer.aclose()
    await cluster.aclose()
